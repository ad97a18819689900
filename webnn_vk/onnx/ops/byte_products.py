"""Products of bytes, summed up exactly: by float32 while the sums stay below 2²⁴, in as few parts
as that takes, and the parts' by int32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..values import Tensor
from .convolution import ConvAttributes, convolve
from .matrix_products import matmul

#: Up to here float32 holds every whole number.
_WHOLE = 1 << 24


def centred(c: NodeContext, x: Tensor, zero_point: Tensor | None, view: list[int]) -> MLOperand:
    """x − zero point as float32, exact for bytes; ``view`` is a per-channel zero point's shape."""
    data = c.cast(x, "float32")
    if zero_point is None:
        return data
    if zero_point.array is not None and not zero_point.array.any():
        return data
    shape = [] if zero_point.size == 1 else view
    return c.b.sub(data, c.cast(c.reshape(zero_point, shape), "float32"))


def most(x: Tensor, zero_point: Tensor | None) -> int:
    """How far an element may be from its zero point."""
    limits = np.iinfo(x.type)
    low = high = 0
    if zero_point is not None:
        zeros = zero_point.array
        known = zeros is not None
        low, high = (int(zeros.min()), int(zeros.max())) if known else (limits.min, limits.max)
    return int(max(high - limits.min, limits.max - low))


def _sizes(w: Tensor, zero_point: Tensor | None, view: list[int]) -> np.ndarray | None:
    """|w − zero point| where it is known."""
    if w.array is None or (zero_point is not None and zero_point.array is None):
        return None
    wide = w.array.astype(np.int32)
    if zero_point is not None:
        shape = [] if zero_point.size == 1 else view
        wide = wide - zero_point.array.astype(np.int32).reshape(shape)
    return np.abs(wide)


def cuts(sizes: np.ndarray | None, depth: int, taps: int, left: int, right: int) -> list[int]:
    """How many of ``depth`` steps at a time float32 sums exactly. ``sizes`` [rows, depth] are what
    each step adds for each result, in units of the largest left factor; None where all that is
    known is that it adds ``taps`` products with numbers up to ``right``."""
    if sizes is None:
        each = max(1, _WHOLE // max(1, left * right * taps))
        return [min(each, depth - i) for i in range(0, depth, each)]
    allowed, made, start = _WHOLE // max(1, left), [], 0
    if sizes.sum(axis=1, dtype=np.int64).max(initial=0) <= allowed:
        return [depth]
    running = np.cumsum(sizes, axis=1, dtype=np.int64)
    while start < depth:
        before = running[:, start - 1 : start] if start else 0
        so_far = (running[:, start:] - before).max(axis=0)
        made.append(max(1, int(np.searchsorted(so_far, allowed, "right"))))
        start += made[-1]
    return made


def _total(
    c: NodeContext, lengths: Sequence[int], part: Callable[[int, int], MLOperand]
) -> MLOperand:
    """The sum of ``part(start, count)``: float32 where there is one, else int32."""
    if len(lengths) == 1:
        return part(0, lengths[0])
    starts = np.cumsum([0, *lengths[:-1]])
    parts = [
        c.b.cast(part(int(s), n), "int32") for s, n in zip(starts, lengths, strict=True)
    ]
    return reduce(c.b.add, parts)


def row_view(x: Tensor) -> list[int]:
    """The shape of a number for each row of matrices."""
    return [x.shape[-2] if x.rank > 1 else 1, 1]


def product(
    c: NodeContext, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None
) -> MLOperand:
    """The matrix product of bytes: whole numbers as float32 or int32."""
    return product_with(c, centred(c, a, a_zero, row_view(a)), most(a, a_zero), b, b_zero)


def product_with(
    c: NodeContext, left: MLOperand, left_most: int, b: Tensor, b_zero: Tensor | None
) -> MLOperand:
    """The product of whole numbers up to ``left_most`` with a matrix of bytes."""
    view = [1, b.shape[-1]]
    right, at = centred(c, b, b_zero, view), max(b.rank - 2, 0)
    sizes = _sizes(b, b_zero, view)
    if sizes is not None:
        sizes = np.moveaxis(sizes, at, -1).reshape(-1, b.shape[at])
    lengths = cuts(sizes, b.shape[at], 1, left_most, most(b, b_zero))

    def part(start: int, count: int) -> MLOperand:
        last = len(left.shape) - 1
        return matmul(c, c.slice(left, last, start, count), c.slice(right, at, start, count))

    return _total(c, lengths, part)


def convolution(
    c: NodeContext, x: Tensor, x_zero: Tensor | None, w: Tensor, w_zero: Tensor | None,
    given: ConvAttributes,
) -> MLOperand:
    """The convolution of bytes: whole numbers as float32 or int32."""
    view = [w.shape[0], *[1] * (w.rank - 1)]
    data, weight = centred(c, x, x_zero, []), centred(c, w, w_zero, view)
    channels, taps = w.shape[1], math.prod(w.shape[2:])
    sizes = _sizes(w, w_zero, view)
    if sizes is not None:
        sizes = sizes.reshape(*w.shape[:2], taps).sum(axis=2)
    lengths = cuts(sizes, channels, taps, most(x, x_zero), most(w, w_zero))
    window, groups = given.of(x, w), given.group

    def whole(data: MLOperand, weight: MLOperand, groups: int) -> MLOperand:
        def part(start: int, count: int) -> MLOperand:
            return convolve(
                c, data if count == channels else c.slice(data, 1, start, count),
                c.slice(weight, 1, start, count), None, window, groups,
            )

        return _total(c, lengths, part)

    if groups == 1 or len(lengths) == 1:
        return whole(data, weight, groups)
    pairs = zip(c.b.split(data, groups, axis=1), c.b.split(weight, groups, axis=0), strict=True)
    return c.b.concat([whole(d, v, 1) for d, v in pairs], 1)


def with_bias(c: NodeContext, total: MLOperand, bias: Tensor | None, view: list[int]) -> MLOperand:
    """A product and a bias of int32 as float32, rounded once."""
    if bias is not None:
        total = c.b.add(c.cast(total, "int32"), c.reshape(c.cast(bias, "int32"), view))
    return c.cast(total, "float32")
