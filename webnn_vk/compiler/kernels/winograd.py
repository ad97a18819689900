"""Winograd's convolution: 3x3 taps with stride 1 by fewer multiplications.

Tiles of 2x2 outputs take 16 multiplications an input channel instead of 36, tiles of 4x4 take 36
instead of 144. Three kernels: the input's transform, a product of matrices for each of the points,
and the output's transform. The filter is transformed once, at set-up (``WinogradFilter``).

Sums of rounded transforms are less exact than sums of products where neighbouring pixels differ
much in size: an output's error is relative to the largest inputs of its tile. It stays below
2·n·ε·Σ|x·w| (n products) for inputs of like size; an infinity or a NaN reaches all the outputs of
its tile. Only float32 convolutions are computed so, of as many channels as `LEAST_INPUTS` says.

This is the form for CPUs; ``winograd_tiled`` has that for GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from . import epilogue as fused
from .dispatch import Dispatch, Packed, Scratch, workgroup
from .expression import used_features
from .loads import as_texels, has_texels
from .multi_binding import Bound, bound, dispatch
from .node import KernelNode
from .rows import check_iterations
from .schedule import Schedule
from .winograd_tiles import (
    WinogradFilter,
    points,
    sizes,
    tile_counts,
    tiles_for,
)

_INPUT = ("N", "IC", "H", "W", "TY", "TX", "PH", "PW", "xc", "xw")
_PRODUCT = ("points", "tiles", "IC", "OC")
_OUTPUT = ("N", "OC", "OH", "OW", "TY", "TX", "yc", "ys")


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so."""
    limit = profile.max_storage_buffer_range
    return [
        Schedule("winograd", (("TILE", tile), ("LX", 8), ("TM", rows), ("TN", columns)), load)
        for load in ("storage", *["texel"] * has_texels(profile))
        for tile in tiles_for(g)
        for rows, columns in ((4, 4), (4, 8), (8, 4), (8, 8))
        if 4 * max(sizes(g, tile, g.N * math.prod(tile_counts(g, tile)))) <= limit
    ]


def lower(
    node: KernelNode, g: Any, schedule: Schedule, profile: DeviceProfile
) -> list[Dispatch]:
    """The three dispatches of a convolution; the filter is bound in its transformed form."""
    tile, kernel, texels = schedule["TILE"], node.operands["filter"], schedule.load == "texel"
    check_iterations(g.IC / 4, profile)
    packed = Packed(kernel.value, WinogradFilter(tile, g.OC, g.IC, g.fo, g.fc, g.fw))
    down, across = tile_counts(g, tile)
    tiles = g.N * down * across
    x, products = (Scratch(4 * size) for size in sizes(g, tile, tiles)[:2])
    numbers = {
        **dict(g.numbers), "TY": down, "TX": across, "tiles": tiles, "points": points(tile),
    }
    lanes, variant = workgroup(profile, 64), f"{tile}x{tile}"

    def part(
        name: str, spec: KernelSpec, operands: Sequence[Bound], groups: int,
        params: Sequence[str], flops: int, extra: fused.Epilogue, constants: dict[str, int],
        variant: str = variant,
    ) -> Dispatch:
        return dispatch(
            node, spec, operands, extra, groups, {n: numbers[n] for n in params}, constants,
            profile, kernel=name, variant=variant, flops=flops,
        )

    nothing = fused.nothing("float32")
    planes = tile == 4 and not g.channels_last
    rows_in = planes and g.PW == 1 and not g.W % 4 and g.W == g.OW
    rows_out = planes and not g.OW % 4 and DATA_TYPES[node.out_type].size == 4
    columns = schedule["LX"] * schedule["TN"]
    product_groups = (
        points(tile) * ceil_divide(tiles, schedule["TM"]) * ceil_divide(g.OC, columns)
    )
    extra = fused.build(node)
    bias = node.operand("bias")
    sums = [bound("x", products, profile, data_type="float32")]
    if bias is not None:
        sums.append(bound("c", bias, profile))
    sums.append(bound("out", node.output, profile, "w"))
    return [
        part(
            "winograd_input", _input_spec(tile, texels, rows_in),
            (
                bound("x", node.operands["input"], profile),
                bound("out", x, profile, "w", "float32"),
            ),
            ceil_divide(tiles, 8) * g.IC, _INPUT, 0, nothing, {"LX": 8},
        ),
        part(
            "winograd_product", _product_spec(texels),
            (
                bound("x", x, profile, data_type="float32"),
                bound("w", Access.dense(packed), profile),
                bound("out", products, profile, "w", "float32"),
            ),
            product_groups, _PRODUCT, 2 * points(tile) * tiles * g.IC * g.OC, nothing,
            schedule.constants("LX", "TM", "TN"),
            f"{variant} {schedule['TM']}x{columns}",
        ),
        part(
            "winograd_output",
            _output_spec(
                tile, tuple(b.buffer for b in sums), texels, rows_out, profile.features, extra
            ),
            sums,
            ceil_divide(tiles * (g.OC // 4), lanes), _OUTPUT, 0, extra, {"LX": lanes},
        ),
    ]


# -- kernels


def _params(names: Sequence[str]) -> tuple[Param, ...]:
    return tuple(map(Param, names))


def _loaded(texels: bool, *buffers: Buffer) -> tuple[Buffer, ...]:
    return as_texels(buffers) if texels else buffers


def _input_spec(tile: int, texels: bool, rows: bool) -> KernelSpec:
    return KernelSpec(
        "winograd_input.comp.j2",
        _loaded(
            texels, Buffer("x", "float32", "r", 4 if rows else 1), Buffer("out", "float32", "w")
        ),
        _params(_INPUT), (), (("rows", rows), ("tile", tile)),
    )


def _product_spec(texels: bool) -> KernelSpec:
    return KernelSpec(
        "winograd_product.comp.j2",
        _loaded(
            texels, Buffer("x", "float32", "r", 4), Buffer("w", "float32", "r", 4),
            Buffer("out", "float32", "w", 4),
        ),
        _params(_PRODUCT), (Constant("TM"), Constant("TN")),
    )


def _output_spec(
    tile: int, buffers: Sequence[Buffer], texels: bool, rows: bool, features: frozenset[str],
    extra: fused.Epilogue,
) -> KernelSpec:
    *sums, out = buffers
    buffers = _loaded(
        texels, replace(sums[0], width=4), *sums[1:], replace(out, width=4 if rows else 1),
        *extra.buffers,
    )
    return KernelSpec(
        "winograd_output.comp.j2", buffers, (*_params(_OUTPUT), *extra.params), (),
        (("addend", len(sums) > 1), ("rows", rows), ("tile", tile), *extra.options),
        used_features(features, buffers, extra.int64),
    )
