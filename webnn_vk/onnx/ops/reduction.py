"""Reductions."""

from __future__ import annotations

from webnn_vk.api.builder import MLOperand
from webnn_vk.compiler.ir import onnx_pairs

from ..context import NodeContext
from ..errors import Unsupported
from ..records import onnx_operator
from ..values import Tensor
from .integers import REDUCTIONS

_NAMES = onnx_pairs.REDUCTIONS
# From this opset on the axes are an input.
_AXES_INPUT = {name: 13 if name == "ReduceSum" else 18 for name in _NAMES}


def _reduce(
    c: NodeContext, x: Tensor, axes: list[int] | None, keepdims: int, noop: int
) -> MLOperand | Tensor:
    if not axes:
        if noop and x.operand.data_type.startswith("float"):
            return _of_single_elements(c, x)
        axes = [] if noop else list(range(x.rank))
    options = {"axes": c.axes(axes, x.rank), "keep_dimensions": bool(keepdims)}
    method = getattr(c.b, _NAMES[c.operator])
    operand = x.operand
    if c.operator in REDUCTIONS and not operand.data_type.startswith("float"):
        return REDUCTIONS[c.operator](c, operand, options)
    if operand.data_type in ("int8", "uint8") and c.operator not in ("ReduceMax", "ReduceMin"):
        return c.b.cast(method(c.b.cast(operand, "int32"), **options), operand.data_type)
    return method(operand, **options)


def _of_single_elements(c: NodeContext, x: Tensor) -> MLOperand | Tensor:
    """No axis at all: each element is reduced alone."""
    match c.operator:
        case "ReduceL1" | "ReduceL2":
            return c.b.abs(x)
        case "ReduceSumSquare":
            return c.b.mul(x, x)
        case "ReduceLogSum":
            return c.b.log(x)
    return x


for _name, _first in _AXES_INPUT.items():

    @onnx_operator(_name, last=_first - 1)
    def reduce_attribute(
        c: NodeContext, x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1
    ) -> MLOperand | Tensor:
        return _reduce(c, x, axes, keepdims, 0)

    @onnx_operator(_name, first=_first)
    def reduce_input(
        c: NodeContext,
        x: Tensor,
        axes: Tensor | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> MLOperand | Tensor:
        given = None if axes is None else c.ints(axes, "axes")
        return _reduce(c, x, given, keepdims, noop_with_empty_axes)


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
        if by >= length:
            raise Unsupported("an axis of one element")
        kept = c.slice(value, at, by if reverse else 0, length - by)
        padding = [(0, 0)] * x.rank
        padding[at] = (0, by) if reverse else (by, 0)
        return c.pad(kept, padding, 1)

    total = x.operand
    if exclusive:
        if length == 1:
            return c.b.add(c.b.mul(total, 0), 1)
        total = shifted(total, 1)
    step = 1
    while step < length:  # twice as many factors each time
        total = c.b.mul(total, shifted(total, step))
        step *= 2
    return total
