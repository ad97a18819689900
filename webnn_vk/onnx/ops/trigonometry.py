"""Inverse and hyperbolic functions, which WebNN composes from others."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..records import onnx_operator

Function = Callable[[NodeContext, MLOperand], MLOperand]

# Coefficients of odd polynomials around 0, in rising order.
_ATAN = (1.0, -3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
_ATANH = (1.0, 1 / 3, 1 / 5, 1 / 7, 1 / 9)
#: Up to here an odd function that is x near 0 is x, −0 and denormal numbers with it.
_TINY = 2.0**-13


def _in_float32(name: str) -> Callable[[Function], Function]:
    """Decorator that makes a function of an operand the record of an operator, in float32."""

    def register(function: Function) -> Function:
        onnx_operator(name)(lambda c, x: c.widened(x, partial(function, c)))
        return function

    return register


def _odd(c: NodeContext, x: MLOperand, coefficients: tuple[float, ...]) -> MLOperand:
    """x · p(x²)."""
    square = c.b.mul(x, x)
    total = c.b.linear(square, alpha=coefficients[-1], beta=coefficients[-2])
    for coefficient in reversed(coefficients[:-2]):
        total = c.b.add(c.b.mul(total, square), coefficient)
    return c.b.mul(total, x)


def _signed(c: NodeContext, x: MLOperand, size: MLOperand, value: MLOperand) -> MLOperand:
    """An odd function of x, from its value at |x|."""
    turned = c.b.where(c.b.lesser(x, 0.0), c.b.neg(value), value)
    return c.b.where(c.b.lesser(size, _TINY), x, turned)


def _log_one_more(c: NodeContext, y: MLOperand) -> MLOperand:
    """log(1 + y) of a finite y ≥ 0: what rounding 1 + y loses or adds goes by as a factor."""
    total = c.b.add(y, 1.0)
    kept = c.b.sub(total, 1.0)
    return c.b.where(
        c.b.equal(kept, 0.0), y, c.b.mul(c.b.log(total), c.b.div(y, kept))
    )


@_in_float32("Atan")
def arc_tangent(c: NodeContext, x: MLOperand) -> MLOperand:
    """atan of any number."""
    size = c.b.abs(x)
    return _signed(c, x, size, _atan_of(c, size))


def _atan_of(c: NodeContext, size: MLOperand) -> MLOperand:
    """atan of a number that is not negative, by reduction to at most tan(π/8) and a polynomial."""
    large, middle = c.b.greater(size, 2.414213562373095), c.b.greater(size, 0.4142135623730951)
    far = c.b.neg(c.b.reciprocal(size))
    near = c.b.div(c.b.sub(size, 1.0), c.b.add(size, 1.0))
    reduced = c.b.where(large, far, c.b.where(middle, near, size))
    offset = c.b.where(
        large, c.constant(math.pi / 2, size.data_type), c.b.where(
            middle, c.constant(math.pi / 4, size.data_type), c.constant(0, size.data_type)
        ),
    )
    return c.b.add(offset, _odd(c, reduced, _ATAN))


@_in_float32("Asin")
def asin(c: NodeContext, x: MLOperand) -> MLOperand:
    # 2 · atan(x / (1 + √((1 − x)(1 + x)))), without cancellation near ±1
    size = c.b.abs(x)
    root = c.b.sqrt(c.b.mul(c.b.linear(size, alpha=-1.0, beta=1.0), c.b.add(size, 1.0)))
    half = _atan_of(c, c.b.div(size, c.b.add(root, 1.0)))
    return _signed(c, x, size, c.b.mul(half, 2.0))


@_in_float32("Acos")
def acos(c: NodeContext, x: MLOperand) -> MLOperand:
    ratio = c.b.div(c.b.linear(x, alpha=-1.0, beta=1.0), c.b.add(x, 1.0))
    return c.b.mul(_atan_of(c, c.b.sqrt(ratio)), 2.0)


def _exponentials(c: NodeContext, size: MLOperand, method: str) -> MLOperand:
    """(e^size ± e^−size) / 2, finite where e^size is not."""
    up, root = c.b.exp(size), c.b.exp(c.b.mul(size, 0.5))
    both = getattr(c.b, method)(up, c.b.exp(c.b.neg(size)))
    large = c.b.greater(size, 88.0)
    return c.b.where(large, c.b.mul(c.b.mul(root, 0.5), root), c.b.mul(both, 0.5))


@_in_float32("Cosh")
def cosh(c: NodeContext, x: MLOperand) -> MLOperand:
    return _exponentials(c, c.b.abs(x), "add")


@_in_float32("Sinh")
def sinh(c: NodeContext, x: MLOperand) -> MLOperand:
    # tanh · cosh near 0, where the difference of exponentials cancels
    size = c.b.abs(x)
    near = c.b.mul(c.b.tanh(size), _exponentials(c, size, "add"))
    value = c.b.where(c.b.lesser(size, 1.0), near, _exponentials(c, size, "sub"))
    return _signed(c, x, size, value)


def _asinh_of(c: NodeContext, size: MLOperand) -> MLOperand:
    """asinh of a number that is not negative."""
    large = c.b.greater(size, 2.0**14)
    near = c.b.where(large, c.constant(1, size.data_type), size)
    square = c.b.mul(near, near)
    more = c.b.div(square, c.b.add(c.b.sqrt(c.b.add(square, 1.0)), 1.0))
    far = c.b.add(c.b.log(size), math.log(2))
    return c.b.where(large, far, _log_one_more(c, c.b.add(near, more)))


@_in_float32("Asinh")
def asinh(c: NodeContext, x: MLOperand) -> MLOperand:
    size = c.b.abs(x)
    return _signed(c, x, size, _asinh_of(c, size))


@_in_float32("Acosh")
def acosh(c: NodeContext, x: MLOperand) -> MLOperand:
    # 2 · asinh(√((x − 1) / 2)), without cancellation near 1
    return c.b.mul(_asinh_of(c, c.b.sqrt(c.b.mul(c.b.sub(x, 1.0), 0.5))), 2.0)


@_in_float32("Atanh")
def atanh(c: NodeContext, x: MLOperand) -> MLOperand:
    size = c.b.abs(x)
    ratio = c.b.div(c.b.add(size, 1.0), c.b.linear(size, alpha=-1.0, beta=1.0))
    far = c.b.mul(c.b.log(ratio), 0.5)
    near = _odd(c, size, _ATANH)
    return _signed(c, x, size, c.b.where(c.b.lesser(size, 0.25), near, far))
