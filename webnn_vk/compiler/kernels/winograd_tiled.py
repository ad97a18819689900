"""Winograd's convolution for GPUs: it uses the products of ``matmul_tiled``, with tiles in shared
memory, a batch for each point.

What lies side by side in the input does so all the way, so that neighbouring invocations load and
store neighbours: tiles where channels come first ([point, channel, tile] times [point, input
channel, output channel]), else channels. See ``winograd`` for the form for CPUs, and for what
either is worth in digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide, round_up

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from . import epilogue as fused
from .dispatch import Dispatch, Packed, Scratch, workgroup
from .expression import used_features
from .matmul import MATMUL
from .multi_binding import Bound, bound, dispatch
from .node import KernelNode
from .product import Product
from .product_dispatch import between, tile_shape
from .rows import check_iterations
from .schedule import Schedule
from .winograd_tiles import WinogradFilter, points, sizes, tile_counts, tiles_for

KERNEL = "winograd_tiled"
_INPUT = ("N", "IC", "H", "W", "TY", "TX", "PH", "PW", "xc", "xw", "tiles")
_OUTPUT = ("N", "OC", "OH", "OW", "TY", "TX", "yc", "ys", "tiles")


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so."""
    return [
        Schedule(KERNEL, (("TILE", tile), *tiling.numbers))
        for tile in tiles_for(g)
        if 4 * max(sizes(g, tile, columns(g, tile))) <= profile.max_storage_buffer_range
        for tiling in MATMUL.candidates(product(g, tile), profile)
        if tiling.kernel == "matmul_tiled" and tiling.parts == 1
    ]


def columns(g: Any, tile: int) -> int:
    """Tiles of all images as the kernels count them: where they lie side by side whole vectors."""
    down, across = tile_counts(g, tile)
    tiles = g.N * down * across
    return tiles if g.channels_last else round_up(tiles, 4)


def product(g: Any, tile: int) -> Product:
    """What is multiplied between the transforms: filter and tiles where channels come first, else
    tiles and filter."""
    tiles, taps = columns(g, tile), g.IC * g.OC
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
    tile, kernel = schedule["TILE"], node.operands["filter"]
    check_iterations(g.IC / 4, profile)
    packed = Packed(kernel.value, WinogradFilter(tile, g.OC, g.IC, g.fo, g.fc, g.fw))
    down, across = tile_counts(g, tile)
    x, products = (Scratch(4 * size) for size in sizes(g, tile, columns(g, tile))[:2])
    numbers = {**dict(g.numbers), "TY": down, "TX": across, "tiles": columns(g, tile)}
    lanes, variant = workgroup(profile, 64), f"{tile}x{tile}"
    along = "channels" if g.channels_last else "tiles"

    def transform(
        name: str, spec: KernelSpec, operands: Sequence[Bound], channels: int,
        params: Sequence[str], extra: fused.Epilogue,
    ) -> Dispatch:
        groups = ceil_divide(columns(g, tile) * channels, lanes)
        return dispatch(
            node, spec, operands, extra, groups, {n: numbers[n] for n in params}, {"LX": lanes},
            profile, kernel=name, variant=variant, flops=0,
        )

    tiling = Schedule("matmul_tiled", schedule.numbers[1:])
    multiplied, transformed = product(g, tile), Access.dense(packed)
    operands = (x, transformed) if g.channels_last else (transformed, x)
    products_of = between(multiplied, node, *operands, products, tiling, profile)
    rows, across = tile_shape(multiplied, tiling)

    extra, bias = fused.build(node), node.operand("bias")
    sums = [bound("x", products, profile, data_type="float32")]
    if bias is not None:
        sums.append(bound("c", bias, profile))
    sums.append(bound("out", node.output, profile, "w"))
    by_rows = tile == 4 and not g.channels_last and not g.OW % 4 and (
        DATA_TYPES[node.out_type].size == 4
    )
    return [
        transform(
            "winograd_input", _input_spec(tile, along),
            (
                bound("x", node.operands["input"], profile),
                bound("out", x, profile, "w", "float32"),
            ),
            g.IC, _INPUT, fused.nothing("float32"),
        ),
        replace(products_of, kernel="winograd_product", variant=f"{variant} {rows}x{across}"),
        transform(
            "winograd_output",
            _output_spec(
                tile, along, tuple(b.buffer for b in sums), by_rows, profile.features, extra
            ),
            sums, g.OC, _OUTPUT, extra,
        ),
    ]


# -- kernels


def _input_spec(tile: int, along: str) -> KernelSpec:
    return KernelSpec(
        "winograd_input.comp.j2",
        (Buffer("x", "float32"), Buffer("out", "float32", "w")),
        tuple(map(Param, _INPUT)), (), (("along", along), ("rows", False), ("tile", tile)),
    )


def _output_spec(
    tile: int, along: str, buffers: Sequence[Buffer], rows: bool, features: frozenset[str],
    extra: fused.Epilogue,
) -> KernelSpec:
    *sums, out = buffers
    buffers = (*sums, replace(out, width=4 if rows else 1), *extra.buffers)
    return KernelSpec(
        "winograd_tiled_output.comp.j2", buffers,
        (*map(Param, _OUTPUT), *extra.params), (),
        (("addend", len(sums) > 1), ("along", along), ("rows", rows), ("tile", tile),
         *extra.options),
        used_features(features, buffers, extra.int64),
    )
