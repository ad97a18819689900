"""Reductions, arg_min and arg_max, cumulative_sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .. import onnx_pairs
from .writer import Tensor, Writer, rule

_KINDS = {name: kind for kind, name in onnx_pairs.REDUCTIONS.items()}


@rule(*_KINDS)
def reduction(w: Writer, input: Tensor, axes: Sequence[int], keep_dimensions: bool) -> Tensor:
    assert w.node is not None
    name = w.node.operator.name
    if not axes:  # the function of each element
        match name:
            case "reduce_l1" | "reduce_l2":
                return w.op("Abs", input)
            case "reduce_log_sum":
                return w.op("Log", input)
            case "reduce_sum_square":
                return w.op("Mul", input, input)
        return input
    if not input.is_float and name in ("reduce_l1", "reduce_sum_square"):
        unsigned = input.data_type.startswith("uint")
        if name == "reduce_sum_square":
            input = w.op("Mul", input, input)
        elif not unsigned:
            input = w.op("Abs", input)
        name = "reduce_sum"
    if name == "reduce_mean" and input.rank == 4 and sorted(axes) == [2, 3]:
        # Most models mean this operator, and runtimes support it in their layouts.
        y = w.op("GlobalAveragePool", input, shape=(*input.shape[:2], 1, 1))
        return w.reshape(y, w.result.shape)
    of_order = name in ("reduce_max", "reduce_min")
    x = w.ordered(input) if of_order else w.signed(input)
    careful = _CAREFUL.get(name) if w.careful else None
    y = careful(w, x, axes) if careful else _reduced(w, _KINDS[name], x, axes)
    return w.unordered(y, input.data_type) if of_order else w.cast(y, input.data_type)


def _extreme(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """ReduceMax or ReduceMin. ONNX Runtime's ignore NaN, and before 1.32 they compare only the
    lower halves of some int64."""
    assert w.node is not None
    name = w.node.operator.name
    if x.data_type == "int64":
        rows = _rows(w, x, axes)
        described = ("int64", (rows.shape[0], 1))
        best, _ = w.ops(
            "TopK", rows, w.integers([1]), results=[described, described],
            largest=int(name == "reduce_max"), sorted=0,
        )
        return w.reshape(best, w.result.shape)
    y = _reduced(w, _KINDS[name], x, axes)
    if x.is_float:
        nan = w.cast(w.op("IsNaN", x, data_type="bool"), "uint8")
        any_nan = w.cast(_reduced(w, "ReduceMax", nan, axes), "bool")
        y = w.select(any_nan, w.scalar(np.nan, y), y)
    return y


def _sum(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """ReduceSum. ONNX Runtime adds integers as doubles; in products with ones they wrap around."""
    if x.is_float:
        return _reduced(w, "ReduceSum", x, axes)
    rows = _rows(w, x, axes)
    ones = w.constant(np.ones((rows.shape[1], 1)), x.data_type)
    return w.reshape(w.op("MatMul", rows, ones, shape=(rows.shape[0], 1)), w.result.shape)


def _product(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """ReduceProd. ONNX Runtime multiplies integers as doubles: halves are multiplied instead, until
    one element is left."""
    if x.is_float:
        return _reduced(w, "ReduceProd", x, axes)
    rows = _rows(w, x, axes)
    while (length := rows.shape[1]) > 1:
        half = length // 2
        first, second, *last = w.split(rows, [half, half, *[1] * (length % 2)], axis=1)
        rows = w.concat([w.op("Mul", first, second), *last], axis=1)
    return w.reshape(rows, w.result.shape)


_CAREFUL = {
    "reduce_max": _extreme, "reduce_min": _extreme, "reduce_sum": _sum, "reduce_product": _product,
}


def _reduced(w: Writer, kind: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    shape = w.result.shape
    return w.op(kind, x, w.integers(axes), shape=shape, keepdims=int(len(shape) == x.rank))


def _rows(w: Writer, x: Tensor, axes: Sequence[int]) -> Tensor:
    """[results, elements of a result]."""
    kept = [axis for axis in range(x.rank) if axis not in axes]
    elements = math.prod(x.shape[axis] for axis in axes)
    return w.reshape(
        w.transpose(x, [*kept, *axes]), (math.prod(x.shape[axis] for axis in kept), elements)
    )


@rule("arg_min", "arg_max")
def arg(w: Writer, input: Tensor, axis: int, keep_dimensions: bool) -> Tensor:
    assert w.node is not None
    kind = "ArgMin" if w.node.operator.name == "arg_min" else "ArgMax"
    index = w.op(
        kind, w.ordered(input), shape=w.result.shape, data_type="int64", axis=axis,
        keepdims=int(keep_dimensions),
    )
    return w.cast(index, w.result.data_type)


@rule("cumulative_sum")
def cumulative_sum(
    w: Writer, input: Tensor, axis: int, exclusive: bool, reversed: bool
) -> Tensor:
    y = w.op(
        "CumSum", w.signed(input), w.constant(axis, "int64"), exclusive=int(exclusive),
        reverse=int(reversed), shape=input.shape,
    )
    return w.cast(y, input.data_type)
