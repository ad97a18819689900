"""Reductions, arg_min and arg_max, cumulative_sum."""

from __future__ import annotations

from collections.abc import Sequence

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
    y = w.op(
        _KINDS[name], x, w.integers(axes), shape=w.result.shape, keepdims=int(keep_dimensions)
    )
    return w.unordered(y, input.data_type) if of_order else w.cast(y, input.data_type)


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
