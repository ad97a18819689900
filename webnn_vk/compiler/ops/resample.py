"""resample2d (§8.9.41)."""

from __future__ import annotations

import numpy as np

from ..types.data_types import MLOperandDescriptor
from ..types.expressions import scaled
from ..types.sizes import Size
from .arguments import Double, Enum, Operand, SequenceOf, Shape
from .lowering import PlainKernel
from .record import Check, Inferred, Like, Limits, operator


@operator(
    "§8.9.41", input=Limits(("float32", "float16", "uint8", "int8"), (4, 4)), output=Like("input")
)
def resample2d(
    check: Check,
    input: Operand,
    *,
    mode: Enum("nearest-neighbor", "linear") = "nearest-neighbor",
    scales: SequenceOf(Double) = None,
    sizes: Shape = None,
    axes: Shape = None,
) -> Inferred:
    """The input resized along two axes, by the nearest element or by linear interpolation.

    ``sizes``: the two new dimensions; or ``scales``: their ratios to the old ones (1 when absent),
    rounded down. ``axes``: the two dimensions to resize, in that order ([2, 3] when absent).
    Positions are of the centres of elements; interpolated integers are rounded to nearest.
    TypeError for a wrong count, a scale that is not positive or an empty output.
    """
    scales = (1.0, 1.0) if scales is None else scales
    axes = (2, 3) if axes is None else axes
    check.that(
        len(scales) == 2 and min(scales) > 0,
        f"scales is {list(scales)}; two positive numbers are expected",
    )
    check.that(
        sizes is None or (len(sizes) == 2 and 0 not in sizes),
        f"sizes is {sizes}; two positive integers are expected",
    )
    check.that(len(axes) == 2, f"axes is {list(axes)}; two axes are expected")
    check.axes(axes, input.rank)
    if sizes is None:
        # Scales are single floats in the IDL, and so is the product: 10 × 0.7 is 7, not 6.
        sizes = tuple(
            size.scaled(scale) if isinstance(size, Size) else scaled(size, scale)
            for size, scale in zip((input.shape[a] for a in axes), scales, strict=True)
        )
    check.dimensions(
        sizes, f"input is {input}, scales {list(scales)}: sizes that are not valid dimensions"
    )
    shape = list(input.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return Inferred.like(input, shape, scales=scales, sizes=sizes, axes=axes)


def source_positions(size: int, new_size: int, mode: str) -> tuple[np.ndarray, ...]:
    """The source positions of the elements of a resampled axis, computed exactly in integers.

    nearest-neighbor: (indices,); linear: (left indices, right indices, weights of the right).
    """
    # (o + 0.5) · size / new_size − 0.5 = ((2o + 1) · size − new_size) / (2 · new_size)
    middle = (2 * np.arange(new_size, dtype=np.int64) + 1) * size
    if mode == "nearest-neighbor":
        return ((middle - 1) // (2 * new_size),)  # ceil(x − 0.5)
    left, remainder = np.divmod(np.clip(middle - new_size, 0, None), 2 * new_size)
    remainder = np.where(left >= size - 1, 0, remainder)
    right = left + (remainder > 0)
    return left, right, (remainder / (2 * new_size)).astype(np.float32)


@resample2d.reference
def _(
    out: MLOperandDescriptor,
    input: np.ndarray,
    mode: str,
    scales: tuple[float, ...],
    sizes: tuple[int, ...],
    axes: tuple[int, ...],
) -> np.ndarray:
    x = input
    pairs = sorted(zip(axes, sizes, strict=True))
    if mode == "nearest-neighbor":
        # First the axis that shrinks more, so that no array is larger than both input and output.
        for axis, size in sorted(pairs, key=lambda pair: pair[1] / input.shape[pair[0]]):
            x = np.take(x, source_positions(x.shape[axis], size, mode)[0], axis)
        return x
    (early, new_early), (late, new_late) = pairs
    top = source_positions(x.shape[early], new_early, mode)
    side = source_positions(x.shape[late], new_late, mode)
    # The later axis first, as the kernel does, so that interpolated integers round alike. If that
    # takes more memory, the needed rows are selected first.
    if x.shape[early] * new_late <= new_early * x.shape[late]:
        x = _between(np.take(x, side[0], late), np.take(x, side[1], late), side[2], late)
        x = _between(np.take(x, top[0], early), np.take(x, top[1], early), top[2], early)
    else:
        rows = (np.take(x, positions, early) for positions in top[:2])
        x = _between(
            *(
                _between(np.take(row, side[0], late), np.take(row, side[1], late), side[2], late)
                for row in rows
            ),
            top[2],
            early,
        )
    return np.rint(x) if out.data_type in ("uint8", "int8") else x


def _between(a: np.ndarray, b: np.ndarray, t: np.ndarray, axis: int) -> np.ndarray:
    """From ``a`` (where ``t`` is 0) to ``b`` along an axis."""
    t = t.reshape([-1 if i == axis else 1 for i in range(4)])
    return a * (1 - t) + b * t


resample2d.lowers_to(PlainKernel("resample"))
