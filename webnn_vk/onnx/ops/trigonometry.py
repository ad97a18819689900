"""Inverse and hyperbolic functions, which WebNN composes from others."""

from __future__ import annotations

import math

from ...builder import MLOperand
from ..context import NodeContext
from ..records import onnx_operator
from ..values import Tensor

# Coefficients of odd polynomials around 0, in rising order.
_ATAN = (1.0, -3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
_ASINH = (1.0, -1 / 6, 3 / 40, -15 / 336, 105 / 3456)
_ATANH = (1.0, 1 / 3, 1 / 5, 1 / 7, 1 / 9)


def _odd(c: NodeContext, x: MLOperand, coefficients: tuple[float, ...]) -> MLOperand:
    """x · p(x²)."""
    square = c.b.mul(x, x)
    total = c.b.linear(square, alpha=coefficients[-1], beta=coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        total = c.b.add(c.b.mul(total, square), coefficient)
    return c.b.mul(total, x)


def arc_tangent(c: NodeContext, x: MLOperand) -> MLOperand:
    """atan by reduction to |x| ≤ tan(π/8) and a polynomial."""
    size = c.b.abs(x)
    large, middle = c.b.greater(size, 2.414213562373095), c.b.greater(size, 0.4142135623730951)
    far = c.b.neg(c.b.reciprocal(size))
    near = c.b.div(c.b.sub(size, 1.0), c.b.add(size, 1.0))
    reduced = c.b.where(large, far, c.b.where(middle, near, size))
    offset = c.b.where(
        large, c.constant(math.pi / 2, x.data_type), c.b.where(
            middle, c.constant(math.pi / 4, x.data_type), c.constant(0, x.data_type)
        ),
    )
    return c.b.mul(c.b.sign(x), c.b.add(offset, _odd(c, reduced, _ATAN)))


@onnx_operator("Atan")
def atan(c: NodeContext, x: Tensor) -> MLOperand:
    return arc_tangent(c, x.operand)


@onnx_operator("Asin")
def asin(c: NodeContext, x: Tensor) -> MLOperand:
    # 2 · atan(x / (1 + √((1 − x)(1 + x)))), without cancellation near ±1
    root = c.b.sqrt(c.b.mul(c.b.linear(x, alpha=-1.0, beta=1.0), c.b.add(x, 1.0)))
    return c.b.mul(arc_tangent(c, c.b.div(x, c.b.add(root, 1.0))), 2.0)


@onnx_operator("Acos")
def acos(c: NodeContext, x: Tensor) -> MLOperand:
    ratio = c.b.div(c.b.linear(x, alpha=-1.0, beta=1.0), c.b.add(x, 1.0))
    return c.b.mul(arc_tangent(c, c.b.sqrt(ratio)), 2.0)


@onnx_operator("Cosh")
def cosh(c: NodeContext, x: Tensor) -> MLOperand:
    return c.b.mul(c.b.add(c.b.exp(x), c.b.exp(c.b.neg(x))), 0.5)


@onnx_operator("Sinh")
def sinh(c: NodeContext, x: Tensor) -> MLOperand:
    # tanh · cosh near 0, where the difference of exponentials cancels
    up, down = c.b.exp(x), c.b.exp(c.b.neg(x))
    near = c.b.mul(c.b.tanh(x), c.b.mul(c.b.add(up, down), 0.5))
    small = c.b.lesser(c.b.abs(x), 1.0)
    return c.b.where(small, near, c.b.mul(c.b.sub(up, down), 0.5))


@onnx_operator("Asinh")
def asinh(c: NodeContext, x: Tensor) -> MLOperand:
    size = c.b.abs(x)
    root = c.b.sqrt(c.b.add(c.b.mul(size, size), 1.0))
    far = c.b.mul(c.b.sign(x), c.b.log(c.b.add(size, root)))
    return c.b.where(c.b.lesser(size, 0.25), _odd(c, x.operand, _ASINH), far)


@onnx_operator("Acosh")
def acosh(c: NodeContext, x: Tensor) -> MLOperand:
    root = c.b.mul(c.b.sqrt(c.b.sub(x, 1.0)), c.b.sqrt(c.b.add(x, 1.0)))
    return c.b.log(c.b.add(x, root))


@onnx_operator("Atanh")
def atanh(c: NodeContext, x: Tensor) -> MLOperand:
    ratio = c.b.div(c.b.add(x, 1.0), c.b.linear(x, alpha=-1.0, beta=1.0))
    far = c.b.mul(c.b.log(ratio), 0.5)
    return c.b.where(c.b.lesser(c.b.abs(x), 0.25), _odd(c, x.operand, _ATANH), far)
