"""Convolutions as a copy and a product: for each pixel of the output a column of the inputs that
reach it, and the filter times these columns.

Software devices multiply so where lanes exchange what they load of the columns or of a filter
(``product_dispatch.row_schedules``, ``loads.lanes_that_shuffle``): that saves more than the columns
take, if there are few enough to stay in the processor's caches. ``conv_channels`` is faster for the
filters that it takes. GPUs multiply so by cooperative matrices, which read whole vectors of columns
that lie one behind the other, and whose inner dimension can be cut into parts. Channels come first;
padding is written out, in a dispatch of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.access import strides
from ..types.data_types import DATA_TYPES
from ..types.sizes import Size
from . import coopmat, split_k
from .dispatch import Dispatch, Scratch
from .heuristics import device_class
from .loads import has_texels
from .node import KernelNode
from .product import Product, fits_bindings
from .product_dispatch import Tensors, in_parts, one_dispatch, row_schedules
from .raw_copy import Box, move
from .rows import check_iterations
from .schedule import Schedule

KERNEL, BY_MATRICES = "conv_columns", "conv_coopmat"


def candidates(g: Any, profile: DeviceProfile) -> list[Schedule]:
    """The schedules by which the device could compute a convolution (``conv.Geometry``) so: the
    product's. None where a dimension is named: columns would grow with it beyond the caches."""
    if (
        any(isinstance(n, Size) for _, n in g.numbers) or g.transposed or g.channels_last
        or g.G > 1 or g.IC == 1 or g.zero_point is not None
        or not (g.constant or _lies_in_rows(g))
        or _size(g) * g.N * _padded_size(g) > profile.max_storage_buffer_range
    ):
        return []
    by_texels = has_texels(profile) and g.data_types[0] == "float32" and not _depth(g) % 4
    made = []
    if by_texels and _fits(g, False, profile):
        made += [replace(s, kernel=KERNEL) for s in _by_texels(g, profile)]
    if _fits(g, True, profile):
        made += [replace(s, kernel=BY_MATRICES) for s in _by_matrices(g, profile)]
    return made


def _fits(g: Any, by_matrices: bool, profile: DeviceProfile) -> bool:
    return bool(fits_bindings(product(g, by_matrices), profile))


def _by_texels(g: Any, profile: DeviceProfile) -> list[Schedule]:
    tall = Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", 32), ("TN", 4)), "texel")
    return [tall, *row_schedules(product(g), profile)]


def _by_matrices(g: Any, profile: DeviceProfile) -> list[Schedule]:
    p = product(g, by_matrices=True)
    tilings = coopmat.schedules(p, profile)
    return tilings + (
        split_k.schedules(p, tilings, profile) if device_class(profile).cuts_products else []
    )


def _tiling(g: Any, schedule: Schedule, profile: DeviceProfile) -> Schedule:
    """The schedule of the product."""
    if schedule.kernel == BY_MATRICES:
        return replace(schedule, kernel=coopmat.KERNEL)
    return next(s for s in _by_texels(g, profile) if s.numbers == schedule.numbers)


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
        padded = Scratch(_size(g) * g.N * _padded_size(g), g.data_types[0])
        dispatches += move(source, padded, box, profile, value=(0,) * 4)
        source = padded
    columns = Scratch(_size(g) * g.N * g.OH * g.OW * _depth(g), g.data_types[0])
    # An image's taps and channels, and its pixels: as they lie in the columns, and in the input.
    taps, steps = (g.IC, g.KH, g.KW), (rows * width, g.DH * width, g.DW)
    pixels, strides_of_pixels = (g.OH, g.OW), (g.SH * width, g.SW)
    by_matrices = schedule.kernel == BY_MATRICES
    if by_matrices:
        shape, steps = (*pixels, *taps), (*strides_of_pixels, *steps)
    else:
        shape, steps = (*taps, *pixels), (*steps, *strides_of_pixels)
    shape, steps = (g.N, *shape), (g.IC * rows * width, *steps)
    dispatches += move(source, columns, Box(shape, steps, strides(shape)), profile)
    operands = Tensors(node.operands["filter"], columns, node.operand("bias"), node.output)
    p, tiling = product(g, by_matrices), _tiling(g, schedule, profile)
    if tiling.parts > 1:
        return [*dispatches, *in_parts(p, node, operands, tiling, profile)]
    return [*dispatches, one_dispatch(p, node, operands, tiling, profile)]


def _size(g: Any) -> int:
    """Bytes of an element of the input."""
    return DATA_TYPES[g.data_types[0]].size


def _lies_in_rows(g: Any) -> bool:
    return (g.fo, g.fc, g.fw) == (_depth(g), g.KH * g.KW, 1)


def _reached(g: Any) -> tuple[int, int]:
    """Rows and columns of an image that the filter reaches, from the padding's first on."""
    return (g.OH - 1) * g.SH + (g.KH - 1) * g.DH + 1, (g.OW - 1) * g.SW + (g.KW - 1) * g.DW + 1


def _padded_size(g: Any) -> int:
    rows, width = _reached(g)
    return int(g.IC * rows * width)


def product(g: Any, by_matrices: bool = False) -> Product:
    """The product of a filter and columns; ``by_matrices``: the columns are stored as rows."""
    pixels, k = g.OH * g.OW, _depth(g)
    many = g.N > 1
    return Product(
        g.OC, pixels, k, k, k if by_matrices else pixels, pixels, b_transposed=by_matrices,
        batch=(g.N,) * many, a_batch=(0,) * many, b_batch=(k * pixels,) * many,
        out_batch=(g.OC * pixels,) * many, c_strides=(1, 0), data_type=g.data_types[0],
        operands=("filter", "columns", "bias"),
    )
