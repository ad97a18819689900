"""Winograd's convolution: 3x3 taps with stride 1 by fewer multiplications.

Tiles of 2x2 outputs take 16 multiplications an input channel instead of 36, tiles of 4x4 take 36
instead of 144. Three kernels: the input's transform, a product of matrices for each of the points,
and the output's transform. The filter is transformed once, at set-up (``WinogradFilter``).

Sums of rounded transforms are less exact than sums of products where neighbouring pixels differ
much in size: an output's error is relative to the largest inputs of its tile. It stays below
2·n·ε·Σ|x·w| (n products) for inputs of like size; an infinity or a NaN reaches all the outputs of
its tile. Only float32 convolutions are computed so, of as many channels as `LEAST_INPUTS` says.

There are two forms. ``winograd`` (CPUs) has products of its own. ``winograd_tiled`` (GPUs) uses
the products of ``matmul_tiled``, with tiles in shared memory, a batch for each point. Neighbours in
the input stay neighbours all the way, so that neighbouring invocations load and store neighbours:
tiles where channels come first ([point, channel, tile] times [point, input channel, output
channel]), else channels.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide, round_up

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from . import epilogue as fused
from .dispatch import Dispatch, Packed, Scratch, workgroup
from .loads import has_texels, lanes_that_shuffle, shuffling
from .matmul import MATMUL
from .multi_binding import bound, dispatch
from .node import KernelNode
from .product import Product
from .product_dispatch import Tensors, one_dispatch
from .rows import check_iterations
from .schedule import Schedule
from .winograd_tiles import WinogradFilter, points, sizes, tile_counts, tiles_for

TILED = "winograd_tiled"
# Tiles and channels of an invocation. Where lanes exchange what they load, each further tile costs
# an eighth of a load; 49 of them are 5 to 9 % faster than 25 and take 0.1 s more to compile.
_TILINGS = {
    "storage": ((4, 4), (4, 8), (8, 4), (8, 8)),
    "texel": ((8, 4), (16, 4), (25, 4)),
}
_INPUT = ("N", "IC", "H", "W", "TY", "TX", "PH", "PW", "xc", "xw")
_PRODUCT = ("points", "tiles", "IC", "OC")
_OUTPUT = ("N", "OC", "OH", "OW", "TY", "TX", "yc", "ys")


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so."""
    limit = profile.max_storage_buffer_range
    direct = [
        Schedule("winograd", (("TILE", tile), ("LX", 8), ("TM", rows), ("TN", columns)), load)
        for load in ("storage", *["texel"] * has_texels(profile))
        for tile in tiles_for(g)
        for rows, columns in _TILINGS[load]
        if 4 * max(sizes(g, tile, g.N * math.prod(tile_counts(g, tile)))) <= limit
    ]
    return direct + [
        Schedule(TILED, (("TILE", tile), *tiling.numbers))
        for tile in tiles_for(g)
        if 4 * max(sizes(g, tile, _columns(g, tile))) <= limit
        for tiling in MATMUL.tilings(_product(g, tile), profile)
        if tiling.kernel == "matmul_tiled" and tiling.parts == 1
    ]


def _columns(g: Any, tile: int) -> int:
    """Tiles of all images as the tiled form counts them: whole vectors where they lie side by
    side."""
    tiles: int = g.N * math.prod(tile_counts(g, tile))
    return tiles if g.channels_last else round_up(tiles, 4)


def _product(g: Any, tile: int) -> Product:
    """The product of the tiled form: filter and tiles where channels come first, else tiles and
    filter."""
    tiles, taps = _columns(g, tile), g.IC * g.OC
    if g.channels_last:
        return Product(
            tiles, g.OC, g.IC, g.IC, g.OC, g.OC, batch=(points(tile),),
            a_batch=(tiles * g.IC,), b_batch=(taps,), out_batch=(tiles * g.OC,),
        )
    return Product(
        g.OC, tiles, g.IC, g.OC, tiles, tiles, a_transposed=True, batch=(points(tile),),
        a_batch=(taps,), b_batch=(tiles * g.IC,), out_batch=(tiles * g.OC,),
    )


def lower(
    node: KernelNode, g: Any, schedule: Schedule, profile: DeviceProfile
) -> list[Dispatch]:
    """The three dispatches of a convolution; the filter is bound in its transformed form."""
    tile, kernel, tiled = schedule["TILE"], node.operands["filter"], schedule.kernel == TILED
    check_iterations(g.IC / 4, profile)
    filter = Access.dense(
        Packed(kernel.value, WinogradFilter(tile, g.OC, g.IC, g.fo, g.fc, g.fw))
    )
    down, across = tile_counts(g, tile)
    tiles = _columns(g, tile) if tiled else g.N * down * across
    x, products = (Scratch(4 * size) for size in sizes(g, tile, tiles)[:2])
    numbers = {
        **dict(g.numbers), "TY": down, "TX": across, "tiles": tiles, "points": points(tile),
    }
    lanes, texels = workgroup(profile, 64), schedule.load == "texel"
    about: dict[str, Any] = {"variant": f"{tile}x{tile}", "texels": texels}

    def given(*names: str) -> dict[str, int]:
        return {name: numbers[name] for name in names}

    planes = tile == 4 and not g.channels_last
    rows_in = planes and not tiled and g.PW == 1 and not g.W % 4 and g.W == g.OW
    rows_out = planes and not g.OW % 4 and DATA_TYPES[node.out_type].size == 4
    along = [("along", "channels" if g.channels_last else "tiles")] * tiled
    of_tiles = ("tiles",) * tiled
    transformed = dispatch(
        node, "winograd_input",
        (
            bound("x", node.operands["input"], profile, width=4 if rows_in else 1),
            bound("out", x, profile, "w"),
        ),
        fused.NONE, ceil_divide(tiles * g.IC, lanes) if tiled else ceil_divide(tiles, 8) * g.IC,
        given(*_INPUT, *of_tiles), {"LX": lanes if tiled else 8}, profile,
        (*along, ("rows", rows_in), ("tile", tile)), **about,
    )
    if tiled:
        tiling, multiplied = Schedule("matmul_tiled", schedule.numbers[1:]), _product(g, tile)
        operands = (x, filter) if g.channels_last else (filter, x)
        rows, columns = tiling.tile
        product = replace(
            one_dispatch(multiplied, node, Tensors(*operands, None, products), tiling, profile),
            kernel="winograd_product", variant=f"{tile}x{tile} {rows}x{columns}",
        )
    else:
        columns = schedule["LX"] * schedule["TN"]
        product = dispatch(
            node, "winograd_product",
            (
                bound("x", x, profile, width=4), bound("w", filter, profile, width=4),
                bound("out", products, profile, "w", width=4),
            ),
            fused.NONE,
            points(tile) * ceil_divide(tiles, schedule["TM"]) * ceil_divide(g.OC, columns),
            given(*_PRODUCT), schedule.constants("LX", "TM", "TN"), profile, texels=texels,
            variant=f"{tile}x{tile} {schedule['TM']}x{columns}",
            flops=2 * points(tile) * tiles * g.IC * g.OC,
        )
        product = shuffling(product, lanes_that_shuffle(schedule, profile) if texels else 0)
    bias = node.operand("bias")
    sums = [
        bound("x", products, profile, width=1 if tiled else 4),
        *([] if bias is None else [bound("c", bias, profile)]),
        bound("out", node.output, profile, "w", width=4 if rows_out else 1),
    ]
    each = g.OC if tiled else g.OC // 4
    return [transformed, product, dispatch(
        node, "winograd_tiled_output" if tiled else "winograd_output", sums,
        fused.by_vectors(fused.build(node), tiled and rows_out),
        ceil_divide(tiles * each, lanes), given(*_OUTPUT, *of_tiles), {"LX": lanes}, profile,
        (("addend", bias is not None), *along, ("rows", rows_out), ("tile", tile)),
        kernel="winograd_output", **about,
    )]
