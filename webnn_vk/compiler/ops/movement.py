"""Operators that only move elements: reshape, transpose, slice, concat, split, expand, tile,
reverse, pad, triangular. Their references copy bits (``promotes=False``), NaN payloads included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..types.access import Access
from ..types.broadcasting import broadcast_shapes
from ..types.data_types import (
    ALL_TYPES,
    MAX_RANK,
    MLOperandDescriptor,
    cast_number,
    smallest_dimension,
)
from .arguments import I32, U32, Bool, Enum, Number, Operand, Operands, Shape, U32OrShape
from .lowering import Join, Move, PlainKernel, View
from .record import Check, Inferred, Like, Limits, operator

# "valid number of tensors" that concat accepts and split returns.
MAX_TENSORS = 8192

_ANY = Limits(ALL_TYPES)
_FROM_1 = Limits(ALL_TYPES, (1, MAX_RANK))


def _check_tensors(check: Check, count: int, what: str) -> None:
    check.that(
        1 <= count <= MAX_TENSORS, f"{what}: {count} tensors; 1 … {MAX_TENSORS} are accepted"
    )


def _check_length(
    check: Check, name: str, values: Sequence[int], input: MLOperandDescriptor
) -> None:
    check.that(
        len(values) == input.rank,
        f"{name} {list(values)} has {len(values)} items; input is {input} and needs {input.rank}",
    )


# -- reshape ---------------------------------------------------------------------------------
@operator("§8.9.42", input=_ANY, output=Like("input"))
def reshape(check: Check, input: Operand, new_shape: Shape):
    """The same elements in the same order in another shape. ``new_shape`` has as many elements as
    ``input``; ``[]`` is a scalar."""
    check.that(
        len(new_shape) <= MAX_RANK, f"new_shape {list(new_shape)} has a rank over {MAX_RANK}"
    )
    check.dimensions(new_shape, "new_shape")
    check.that(
        math.prod(new_shape) == input.size,
        f"new_shape {list(new_shape)} has {math.prod(new_shape)} elements, "
        f"input {input} has {input.size}",
    )
    return MLOperandDescriptor(input.data_type, new_shape)


reshape.lowers_to(View())


@reshape.reference(promotes=False)
def _(out, input, new_shape):
    return np.reshape(input, new_shape)


# -- transpose -------------------------------------------------------------------------------
@operator("§8.9.54", input=_ANY, output=Like("input"))
def transpose(check: Check, input: Operand, *, permutation: Shape = None):
    """Dimensions permuted: output dimension ``i`` is input dimension ``permutation[i]``; by default
    all dimensions are reversed."""
    if permutation is None:
        permutation = tuple(reversed(range(input.rank)))
    _check_length(check, "permutation", permutation, input)
    check.axes(permutation, input.rank, "permutation")
    shape = tuple(input.shape[axis] for axis in permutation)
    return Inferred.like(input, shape, permutation=permutation)


transpose.lowers_to(Move(lambda input, outputs, permutation: [input.permuted(permutation)]))


@transpose.reference(promotes=False)
def _(out, input, permutation):
    return np.transpose(input, permutation)


# -- slice -----------------------------------------------------------------------------------
@operator("§8.9.47", input=_ANY, output=Like("input"))
def slice_(check: Check, input: Operand, starts: Shape, sizes: Shape, *, strides: Shape = None):
    """A window of the input: in each dimension every ``strides[i]``-th (default 1) of the
    ``sizes[i]`` elements from ``starts[i]`` on."""
    _check_length(check, "starts", starts, input)
    _check_length(check, "sizes", sizes, input)
    if strides is None:
        strides = (1,) * input.rank
    _check_length(check, "strides", strides, input)
    shape = []
    for i, (extent, start, size, stride) in enumerate(
        zip(input.shape, starts, sizes, strides, strict=True)
    ):
        check.that(
            size >= smallest_dimension(),
            f"sizes {list(sizes)}: sizes[{i}] is 0; at least 1 is needed",
        )
        check.that(stride > 0, f"strides {list(strides)}: strides[{i}] is 0; at least 1 is needed")
        # The draft has no such step, but its tests expect it.
        check.that(
            size == 0 or stride <= size,
            f"strides[{i}] = {stride} is greater than sizes[{i}] = {size}; 1 … {size} is accepted",
        )
        check.that(
            start + size <= extent,
            f"starts[{i}] + sizes[{i}] = {start} + {size} exceeds the {extent} elements of "
            f"dimension {i}; input is {input}",
        )
        shape.append(-(-size // stride))  # spec: slice, step 9.8: a partial stride counts
    return Inferred.like(input, shape, starts=starts, sizes=sizes, strides=strides)


slice_.lowers_to(
    Move(lambda input, outputs, starts, sizes, strides: [input.sliced(starts, outputs[0], strides)])
)


@slice_.reference(promotes=False)
def _(out, input, starts, sizes, strides):
    window = tuple(
        slice(start, start + size, stride)
        for start, size, stride in zip(starts, sizes, strides, strict=True)
    )
    return input[window]


def _adjacent(
    whole: Access, shapes: Sequence[tuple[int, ...]], axis: int
) -> list[Access]:
    """Adjacent parts of ``whole`` with these shapes along an axis."""
    starts = accumulate((shape[axis] for shape in shapes), initial=0)
    before, after = (0,) * axis, (0,) * (len(whole.shape) - axis - 1)
    return [
        whole.sliced((*before, start, *after), shape)
        for start, shape in zip(starts, shapes, strict=False)
    ]


# -- concat ----------------------------------------------------------------------------------
@operator("§8.9.9", inputs=_FROM_1, output=Like("inputs"))
def concat(check: Check, inputs: Operands, axis: U32):
    """Inputs of one data type joined along ``axis``; their other dimensions are equal."""
    _check_tensors(check, len(inputs), "inputs")
    first = inputs[0]
    check.axis(axis, first)
    for i, other in enumerate(inputs[1:], 1):
        check.that(
            other.data_type == first.data_type,
            f"inputs[{i}] is {other}, inputs[0] is {first}; the same data type is required",
        )
        check.that(
            other.rank == first.rank
            and all(other.shape[d] == first.shape[d] for d in range(first.rank) if d != axis),
            f"inputs[{i}] is {other}, inputs[0] is {first}; only dimension {axis} may differ",
        )
    shape = list(first.shape)
    shape[axis] = sum(d.shape[axis] for d in inputs)
    check.dimensions(shape, "the output's shape")
    return MLOperandDescriptor(first.data_type, tuple(shape))


concat.lowers_to(Join(lambda output, inputs, axis: _adjacent(output, inputs, axis)))


@concat.reference(promotes=False)
def _(out, inputs, axis):
    return np.concatenate(inputs, axis)


# -- split -----------------------------------------------------------------------------------
@operator("§8.9.51", input=_FROM_1, outputs=Like("input"))
def split(check: Check, input: Operand, splits: U32OrShape, *, axis: U32 = 0):
    """The input split along ``axis`` into ``splits`` equal parts, or into parts of the given sizes,
    which add up to the dimension. Returns a list."""
    check.axis(axis, input)
    extent = input.shape[axis]
    if isinstance(splits, int):
        _check_tensors(check, splits, "splits")
        check.that(
            extent % splits == 0,
            f"dimension {axis} of input {input} is not a multiple of splits {splits}",
        )
        splits = (extent // splits,) * splits
    _check_tensors(check, len(splits), "splits")
    check.that(
        smallest_dimension() == 0 or 0 not in splits,
        f"splits {list(splits)} contains 0; at least 1 is needed",
    )
    check.that(
        sum(splits) == extent,
        f"splits {list(splits)} add up to {sum(splits)}; dimension {axis} of input {input} "
        f"has {extent} elements",
    )
    before, after = input.shape[:axis], input.shape[axis + 1 :]
    return Inferred.like(input, *((*before, size, *after) for size in splits), splits=splits)


split.lowers_to(
    Move(lambda input, outputs, splits, axis: _adjacent(input, outputs, axis))
)


@split.reference(promotes=False)
def _(out, input, splits, axis):
    return list(np.split(input, np.cumsum(splits)[:-1], axis))


# -- expand ----------------------------------------------------------------------------------
@operator("§8.9.19", input=_ANY, output=Like("input"))
def expand(check: Check, input: Operand, new_shape: Shape):
    """Dimensions of size 1 (and missing leading ones) repeated up to ``new_shape``, as NumPy
    broadcasts."""
    check.that(
        len(new_shape) <= MAX_RANK, f"new_shape {list(new_shape)} has a rank over {MAX_RANK}"
    )
    check.that(
        broadcast_shapes(input.shape, new_shape) == new_shape,
        f"input {input} is not broadcastable to new_shape {list(new_shape)}",
    )
    return MLOperandDescriptor(input.data_type, new_shape)


expand.lowers_to(Move(lambda input, outputs, new_shape: [input.broadcast(new_shape)]))


@expand.reference(promotes=False)
def _(out, input, new_shape):
    return np.broadcast_to(input, new_shape)


# -- tile ------------------------------------------------------------------------------------
@operator("§8.9.53", input=_ANY, output=Like("input"))
def tile(check: Check, input: Operand, repetitions: Shape):
    """The input repeated ``repetitions[i]`` times along each dimension."""
    _check_length(check, "repetitions", repetitions, input)
    check.that(
        smallest_dimension() == 0 or 0 not in repetitions,
        f"repetitions {list(repetitions)} contains 0; at least 1 is needed"
    )
    shape = tuple(d * n for d, n in zip(input.shape, repetitions, strict=True))
    check.dimensions(shape, f"repetitions {list(repetitions)} of input {input} give shape")
    return MLOperandDescriptor(input.data_type, shape)


tile.lowers_to(Move(lambda input, outputs, repetitions: [input.tiled(repetitions)]))


@tile.reference(promotes=False)
def _(out, input, repetitions):
    return np.tile(input, repetitions)


# -- reverse ---------------------------------------------------------------------------------
@operator("§8.9.43", input=_ANY, output=Like("input"))
def reverse(check: Check, input: Operand, *, axes: Shape = None):
    """Elements in reverse order along ``axes``: all dimensions when absent, none when empty."""
    if axes is None:
        axes = tuple(range(input.rank))
    check.axes(axes, input.rank)
    return Inferred.like(input, axes=axes)


reverse.lowers_to(Move(lambda input, outputs, axes: [input.reversed(axes)]))


@reverse.reference(promotes=False)
def _(out, input, axes):
    return np.flip(input, axes)


# -- pad -------------------------------------------------------------------------------------
_NUMPY_MODES = {"constant": "constant", "edge": "edge", "reflection": "reflect"}


@operator("§8.9.36", input=_ANY, output=Like("input"))
def pad(
    check: Check,
    input: Operand,
    beginning_padding: Shape,
    ending_padding: Shape,
    *,
    mode: Enum(*_NUMPY_MODES) = "constant",
    value: Number = 0,
):
    """The input with elements added before and after each dimension: of ``value`` (cast to the
    data type), of the nearest edge, or mirrored at the edge without repeating it."""
    _check_length(check, "beginning_padding", beginning_padding, input)
    _check_length(check, "ending_padding", ending_padding, input)
    if mode == "reflection":
        for name, padding in (
            ("beginning_padding", beginning_padding),
            ("ending_padding", ending_padding),
        ):
            for i, (count, extent) in enumerate(zip(padding, input.shape, strict=True)):
                check.that(
                    count < extent,
                    f"{name}[{i}] = {count} needs more than {extent} elements in dimension {i} to "
                    f"reflect; input is {input}, 0 … {extent - 1} is accepted",
                )
    shape = tuple(
        b + d + e
        for b, d, e in zip(beginning_padding, input.shape, ending_padding, strict=True)
    )
    check.dimensions(shape, "the output's shape")
    return Inferred.like(input, shape, value=cast_number(value, input.data_type))


pad.lowers_to(PlainKernel("pad"))


@pad.reference(promotes=False)
def _(out, input, beginning_padding, ending_padding, mode, value):
    if not out.shape:
        return input  # np.pad takes no scalars
    widths = list(zip(beginning_padding, ending_padding, strict=True))
    fill = {"constant_values": np.array(value, input.dtype)} if mode == "constant" else {}
    return np.pad(input, widths, _NUMPY_MODES[mode], **fill)


# -- triangular ------------------------------------------------------------------------------
@operator("§8.9.55", input=Limits(ALL_TYPES, (2, MAX_RANK)), output=Like("input"))
def triangular(check: Check, input: Operand, *, upper: Bool = True, diagonal: I32 = 0):
    """Each matrix of the last two dimensions with the elements below (``upper``) or above the
    ``diagonal``-th diagonal set to 0; positive diagonals lie above the main one."""
    return check.same_as(input)


triangular.lowers_to(PlainKernel("triangular"))


@triangular.reference(promotes=False)
def _(out, input, upper, diagonal):
    rows, columns = np.ogrid[: input.shape[-2], : input.shape[-1]]
    distance = columns - rows
    keep = distance >= diagonal if upper else distance <= diagonal
    return np.where(keep, input, np.zeros((), input.dtype))
