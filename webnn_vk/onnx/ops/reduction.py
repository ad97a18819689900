"""Reductions."""

from __future__ import annotations

from webnn_vk.api.builder import MLOperand
from webnn_vk.compiler.ir import onnx_pairs

from ..context import NodeContext
from ..records import onnx_operator
from ..values import Tensor
from .integers import REDUCTIONS

_NAMES = onnx_pairs.REDUCTIONS


def reduce(
    c: NodeContext, x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> MLOperand | Tensor:
    given = c.optional_ints(axes, "axes")
    if not given:
        if noop_with_empty_axes and x.operand.data_type.startswith("float"):
            return _of_single_elements(c, x)
        given = [] if noop_with_empty_axes else list(range(x.rank))
    options = {"axes": c.axes(given, x.rank), "keep_dimensions": bool(keepdims)}
    method = getattr(c.b, _NAMES[c.operator])
    operand = x.operand
    if c.operator in REDUCTIONS and not operand.data_type.startswith("float"):
        return REDUCTIONS[c.operator](c, operand, options)
    if operand.data_type in ("int8", "uint8") and c.operator not in ("ReduceMax", "ReduceMin"):
        return c.b.cast(method(c.b.cast(operand, "int32"), **options), operand.data_type)
    return method(operand, **options)


def _of_single_elements(c: NodeContext, x: Tensor) -> MLOperand | Tensor:
    """No axis at all: each element is reduced by itself."""
    match c.operator:
        case "ReduceL1" | "ReduceL2":
            return c.b.abs(x)
        case "ReduceSumSquare":
            return c.b.mul(x, x)
        case "ReduceLogSum":
            return c.b.log(x)
    return x


for _name in _NAMES:
    _since = 13 if _name == "ReduceSum" else 18
    onnx_operator(_name, moved=("axes",), since=_since)(reduce)


@onnx_operator("CumSum")
def cumulative_sum(
    c: NodeContext, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0
) -> MLOperand:
    at = c.axis(c.int(axis, "the axis"), x.rank)
    return c.b.cumulative_sum(x, at, exclusive=bool(exclusive), reversed=bool(reverse))


@onnx_operator("CumProd")
def cumulative_product(
    c: NodeContext, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0
) -> MLOperand:
    at = c.axis(c.int(axis, "the axis"), x.rank)
    length = x.shape[at]

    def shifted(value: MLOperand, by: int) -> MLOperand:
        """Moved by some places along the axis, ones filled in."""
        kept = c.slice(value, at, by if reverse else 0, length - by)
        padding = [(0, 0)] * x.rank
        padding[at] = (0, by) if reverse else (by, 0)
        return c.pad(kept, padding, 1)

    def of(total: MLOperand) -> MLOperand:
        if exclusive:
            if length == 1:
                return c.b.add(c.b.mul(total, 0), 1)
            total = shifted(total, 1)
        step = 1
        while step < length:  # twice as many factors each time
            total = c.b.mul(total, shifted(total, step))
            step *= 2
        return total

    return c.widened(x, of) if x.operand.data_type == "float16" else of(x.operand)
