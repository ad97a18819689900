"""Convolutions as a copy and a product: for each pixel of the output a column of the inputs that
reach it, and the filter times these columns.

Software devices multiply so where lanes exchange what they load of the columns or of a filter
(``product_dispatch.row_schedules``, ``loads.lanes_that_shuffle``): that saves more than the columns
take, if there are few enough to stay in the processor's caches. ``conv_channels`` is faster for the
filters that it takes. Channels come first; padding is written out, in a dispatch of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import strides
from ..types.sizes import Size
from .dispatch import Dispatch, Scratch
from .loads import has_texels
from .node import KernelNode
from .product import Product, fits_bindings
from .product_dispatch import Tensors, one_dispatch, row_schedules
from .raw_copy import Box, move
from .rows import check_iterations
from .schedule import Schedule

KERNEL = "conv_columns"


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so: the
    product's. None where a dimension is named: columns would grow with it beyond the caches."""
    possible = (
        not any(isinstance(n, Size) for _, n in g.numbers) and has_texels(profile)
        and not g.transposed and not g.channels_last and g.G == 1 < g.IC
        and g.data_types[0] == "float32" and g.zero_point is None
        and (g.constant or _lies_in_rows(g)) and not _depth(g) % 4
        and 4 * g.N * _padded_size(g) <= profile.max_storage_buffer_range
        and fits_bindings(_product(g), profile)
    )
    return [replace(s, kernel=KERNEL) for s in (_tilings(g, profile) if possible else ())]


def _tilings(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules of the product."""
    tall = Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", 32), ("TN", 4)), "texel")
    return [tall, *row_schedules(_product(g), profile)]


def _depth(g: Any) -> int:
    """Elements of a column."""
    return int(g.IC * g.KH * g.KW)


def lower(
    node: KernelNode, g: Any, schedule: Schedule, profile: DeviceProfile
) -> list[Dispatch]:
    """The dispatches of a convolution whose filter lies in rows, each a column's length."""
    check_iterations(_depth(g) / 4, profile)
    dispatches: list[Dispatch] = []
    source, (rows, width) = node.operands["input"].value, _reached(g)
    if (g.PH, g.PW) == (0, 0) and rows <= g.H and width <= g.W:
        rows, width = g.H, g.W
    else:
        shape, size = (g.N * g.IC, rows, width), (g.N * g.IC, g.H, g.W)
        box = Box(
            shape, strides(size), strides(shape), begin=(0, g.PH, g.PW), size=size, mode="constant"
        )
        padded = Scratch(4 * g.N * _padded_size(g))
        dispatches += move(source, padded, box, profile, value=(0,) * 4)
        source = padded
    columns = Scratch(4 * g.N * g.OH * g.OW * _depth(g))
    shape = g.N * g.IC, g.KH, g.KW, g.OH, g.OW
    steps = rows * width, g.DH * width, g.DW, g.SH * width, g.SW
    dispatches += move(source, columns, Box(shape, steps, strides(shape)), profile)
    operands = Tensors(node.operands["filter"], columns, node.operand("bias"), node.output)
    tiling = next(s for s in _tilings(g, profile) if s.numbers == schedule.numbers)
    return [*dispatches, one_dispatch(_product(g), node, operands, tiling, profile)]


def _lies_in_rows(g: Any) -> bool:
    return (g.fo, g.fc, g.fw) == (_depth(g), g.KH * g.KW, 1)


def _reached(g: Any) -> tuple[int, int]:
    """Rows and columns of an image that the filter reaches, from the padding's first on."""
    return (g.OH - 1) * g.SH + (g.KH - 1) * g.DH + 1, (g.OW - 1) * g.SW + (g.KW - 1) * g.DW + 1


def _padded_size(g: Any) -> int:
    rows, width = _reached(g)
    return int(g.IC * rows * width)


def _product(g: Any) -> Product:
    pixels, k = g.OH * g.OW, _depth(g)
    many = g.N > 1
    return Product(
        g.OC, pixels, k, k, pixels, pixels, batch=(g.N,) * many, a_batch=(0,) * many,
        b_batch=(k * pixels,) * many, out_batch=(g.OC * pixels,) * many, c_strides=(1, 0),
        operands=("filter", "columns", "bias"),
    )
