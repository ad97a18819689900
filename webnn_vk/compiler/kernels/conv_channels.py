"""Convolutions whose lanes are output channels and exchange the pixels that they load.

On software devices, for constant filters, channels first. A tile's part of an input plane is loaded
once for eight times four output channels, and each of its pixels serves all the taps that reach it.
Where one tile has all pixels, the taps over the padding are left out.
"""

from __future__ import annotations

import math
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..types.access import Access
from ..types.sizes import Size
from . import epilogue as fused
from .dispatch import Dispatch, Packed
from .heuristics import device_class
from .loads import SHUFFLES, has_texels, lanes_of_processor, shuffling
from .multi_binding import bound, dispatch
from .node import KernelNode
from .packing import Panels
from .rows import check_iterations
from .schedule import Schedule

KERNEL = "conv_channels"
# Rows and columns of a tile's outputs, in images and in one dimension. The code is repeated for
# each of them.
_TILES, _ROW = ((2, 14), (4, 7), (4, 8)), ((1, 28),)
# Outputs of one tile for all of them, at most. Tiles of 100 are no faster than four of 28, and take
# 0.3 s to compile.
_WHOLE = 56
# Multiply-adds in the body of the loop, at most: of one tile for all outputs, whose code still fits
# a processor's instruction cache, and of other tiles before only a row of taps is unrolled.
_MOST, _MANY = 1500, 1200
# Pixels of an input plane that are loaded at once, at most.
_LOADED = 256


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so: one
    tile for all outputs where they are few. One tap leaves nothing to share."""
    lanes = lanes_of_processor(profile, SHUFFLES)
    possible = (
        not any(isinstance(n, Size) for _, n in g.numbers) and lanes and has_texels(profile)
        and not g.transposed and not g.channels_last and g.G == 1 < g.KH * g.KW
        and g.data_types == ("float32", "float32") and g.zero_point is None and g.constant
        and (g.fo, g.fc, g.fw) == (g.IC * g.KH * g.KW, g.KH * g.KW, 1) and g.OH * g.OW >= 4
    )
    if not possible:
        return []

    def tiled(rows: int, columns: int, taps: int) -> Schedule:
        numbers = ("LX", lanes), ("TH", rows), ("TW", columns), ("KU", taps)
        return Schedule(KERNEL, numbers, "texel")

    if g.OH * g.OW <= _WHOLE and _reached(g) <= _MOST and g.H * g.W <= _LOADED:
        return [tiled(g.OH, g.OW, g.KH)]
    made = [
        tiled(rows, columns, g.KH if 4 * rows * columns * g.KH * g.KW <= _MANY else 1)
        for rows, columns in (_TILES if g.OH > 1 else _ROW)
    ]
    return [s for s in made if math.prod(_loaded(g, s)) <= _LOADED]


def _reached(g: Any) -> int:
    """Multiply-adds of an input channel with four output channels, those over the padding left
    out."""
    along = (
        sum(
            0 <= o * stride + tap * dilation - before < size
            for o in range(outputs) for tap in range(taps)
        )
        for outputs, taps, stride, dilation, before, size in (
            (min(g.OH, _LOADED), g.KH, g.SH, g.DH, g.PH, g.H),
            (min(g.OW, _LOADED), g.KW, g.SW, g.DW, g.PW, g.W),
        )
    )
    return 4 * math.prod(along)


def _loaded(g: Any, schedule: Schedule) -> tuple[int, int]:
    """Rows and columns of the input that a tile loads in a step of the loop."""
    rows, columns, taps = (schedule[name] for name in ("TH", "TW", "KU"))
    high = (rows - 1) * g.SH + (taps - 1) * g.DH + 1 if taps == g.KH else rows
    return high, (columns - 1) * g.SW + (g.KW - 1) * g.DW + 1


def _constants(g: Any, schedule: Schedule) -> dict[str, int]:
    """The kernel's specialisation constants beside the schedule's."""
    whole = (schedule["TH"], schedule["TW"], schedule["KU"]) == (g.OH, g.OW, g.KH)
    high, wide = (g.H, g.W) if whole else _loaded(g, schedule)
    numbers = {name: getattr(g, name) for name in ("KH", "KW", "SH", "SW", "DH", "DW")}
    return numbers | {
        "RH": high, "RW": wide, "RP": 1 if schedule["KU"] == g.KH else g.SH,
        "WHOLE": int(whole), "OY": whole * g.PH, "OX": whole * g.PW,
    }


def lower(
    node: KernelNode, g: Any, schedule: Schedule, profile: DeviceProfile
) -> list[Dispatch]:
    """The dispatch; the filter is bound in panels."""
    lanes, k = schedule["LX"], g.IC * g.KH * g.KW
    check_iterations(g.IC * g.KH, profile)
    kernel, bias = node.operands["filter"], node.operand("bias")
    panels = Access.dense(Packed(kernel.value, Panels(k, g.OC, 4 * lanes, 1, k)))
    operands = [
        bound("x", node.operands["input"], profile), bound("w", panels, profile, width=4),
        *([] if bias is None else [bound("c", bias, profile)]),
        bound("out", node.output, profile, "w"),
    ]
    extra = fused.build(node)
    if device_class(profile).merges_epilogues:
        extra = fused.merged(node, extra, operands[0].bindings[0])
    constants = _constants(g, schedule)
    params = {name: getattr(g, name) for name in ("N", "IC", "OC", "H", "W", "OH", "OW")}
    params |= {"PY": g.PH - constants["OY"], "PX": g.PW - constants["OX"]}
    tiles = schedule.tiles(g.OH, g.OW)
    step = dispatch(
        node, KERNEL, operands, extra, g.N * tiles * ceil_divide(g.OC, 4 * lanes),
        params, {**dict(schedule.numbers), **constants}, profile,
        (("addend", bias is not None),), texels=True,
        variant=f"{g.KH}x{g.KW} {schedule['TH']}x{schedule['TW']}",
        flops=2 * node.results[0].size * k,
    )
    return [shuffling(step, lanes)]
