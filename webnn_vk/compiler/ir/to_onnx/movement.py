"""Operators that move elements: reshape, transpose, slice, concat, split, expand, tile, reverse,
pad, triangular."""

from __future__ import annotations

from collections.abc import Sequence

from ...types.sizes import same
from .writer import Tensor, Writer, rule

#: The end of a slice that goes backward to the first element.
_BEFORE_FIRST = -(2**63) + 1


for _method in (Writer.reshape, Writer.transpose, Writer.concat, Writer.split, Writer.expand):
    rule(_method.__name__)(_method)


@rule("slice")
def slice_(
    w: Writer, input: Tensor, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> Tensor:
    axes = [
        i for i, (d, n, s) in enumerate(zip(input.shape, sizes, strides, strict=True))
        if not same(n, d) or s != 1
    ]
    return w.slice(
        input, [starts[i] for i in axes], [starts[i] + sizes[i] for i in axes],
        [strides[i] for i in axes], axes,
    )


@rule("tile")
def tile(w: Writer, input: Tensor, repetitions: Sequence[int]) -> Tensor:
    if all(n == 1 for n in repetitions):
        return input
    return w.op("Tile", input, w.integers(repetitions), shape=w.result.shape)


@rule("reverse")
def reverse(w: Writer, input: Tensor, axes: Sequence[int]) -> Tensor:
    count = len(axes)
    return w.slice(input, [-1] * count, [_BEFORE_FIRST] * count, [-1] * count, axes)


@rule("pad")
def pad(
    w: Writer, input: Tensor, beginning_padding: Sequence[int], ending_padding: Sequence[int],
    mode: str, value: float,
) -> Tensor:
    kind = {"constant": "constant", "edge": "edge", "reflection": "reflect"}[mode]
    return w.pad(input, beginning_padding, ending_padding, value, kind)


#: Data types for which ONNX Runtime 1.32 has no Trilu, and larger ones for which it has.
_TRILU = {"int8": "int32", "uint8": "int32", "uint32": "int64", "uint64": "int64"}


@rule("triangular")
def triangular(w: Writer, input: Tensor, upper: bool, diagonal: int) -> Tensor:
    kind = _TRILU.get(input.data_type, input.data_type) if w.careful else input.data_type
    made = w.op(
        "Trilu", w.cast(input, kind), w.constant(diagonal, "int64"), upper=int(upper)
    )
    return w.cast(made, input.data_type)
