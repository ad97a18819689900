"""Activation functions and clamp (§8.9.8, §8.9.18 … §8.9.52)."""

from __future__ import annotations

import math

import numpy as np

from ..types.data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor, cast_number, shown
from .arguments import Double, Number, Operand
from .lowering import Elementwise
from .record import Check, Inferred, Like, Limits, operator
from .special import gelu as numpy_gelu
from .unary import SIGNED_TYPES, elementwise, float_function

_FLOAT = Limits(FLOAT_TYPES)


def _scalar(array: np.ndarray, value: int | float) -> np.ndarray:
    return np.asarray(value, array.dtype)


@operator("§8.9.8", input=Limits(ALL_TYPES), output=Like("input"))
def clamp(
    check: Check, input: Operand, *, min_value: Number = None, max_value: Number = None
) -> Inferred:
    """Each element limited to ``min_value`` … ``max_value``. An absent or NaN bound has no
    effect."""
    low = _bound(min_value, input.data_type, upper=False)
    high = _bound(max_value, input.data_type, upper=True)
    # spec: clamp, step 7
    check.that(low <= high, f"min_value {shown(min_value)} is above max_value {shown(max_value)}")
    return Inferred.like(input, min_value=low, max_value=high)


def _bound(value: int | float | None, data_type: str, *, upper: bool) -> int | float:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        value = math.inf if upper else -math.inf
    return cast_number(value, data_type)


clamp.lowers_to(
    Elementwise(
        "w_min(w_max({input}, {min_value}), {max_value})",
        flops=2,
        limits=lambda arguments: (arguments["min_value"], arguments["max_value"]),
    )
)


@clamp.reference
def _(
    out: MLOperandDescriptor,
    input: np.ndarray,
    min_value: int | float,
    max_value: int | float,
) -> np.ndarray:
    return np.minimum(np.maximum(input, _scalar(input, min_value)), _scalar(input, max_value))


def _with_numbers(input: MLOperandDescriptor, **numbers: float) -> Inferred:
    """An output like the input, and the numbers cast to its data type."""
    cast = {name: cast_number(number, input.data_type) for name, number in numbers.items()}
    return Inferred.like(input, **cast)


@operator("§8.9.18", input=_FLOAT, output=Like("input"))
def elu(check: Check, input: Operand, *, alpha: Double = 1.0) -> Inferred:
    """Exponential linear unit: x for x > 0, alpha (e^x - 1) otherwise."""
    return _with_numbers(input, alpha=alpha)


elu.lowers_to(
    Elementwise("(w_gt({input}, 0.0) ? {input} : w_mul({alpha}, w_expm1({input})))", flops=10)
)


@elu.reference
def _(out: MLOperandDescriptor, input: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(input > 0, input, _scalar(input, alpha) * np.expm1(input))


gelu = float_function(
    "gelu", "Gaussian error linear unit: x/2 (1 + erf(x / sqrt 2)).", numpy_gelu, 20, "§8.9.23"
)


@operator("§8.9.27", input=_FLOAT, output=Like("input"))
def hard_sigmoid(
    check: Check, input: Operand, *, alpha: Double = 0.2, beta: Double = 0.5
) -> Inferred:
    """max(min(alpha x + beta, 1), 0)."""
    return _with_numbers(input, alpha=alpha, beta=beta)


hard_sigmoid.lowers_to(
    Elementwise("w_max(w_min(w_add(w_mul({alpha}, {input}), {beta}), 1.0), 0.0)", flops=4)
)


@hard_sigmoid.reference
def _(out: MLOperandDescriptor, input: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    line = _scalar(input, alpha) * input + _scalar(input, beta)
    return np.maximum(np.minimum(line, _scalar(input, 1)), _scalar(input, 0))


def _hard_swish(x: np.ndarray) -> np.ndarray:
    bounded = np.maximum(_scalar(x, 0), np.minimum(_scalar(x, 6), x + _scalar(x, 3)))
    return x * (bounded / _scalar(x, 6))


hard_swish = elementwise(
    "§8.9.28",
    "hard_swish",
    "x max(0, min(6, x + 3)) / 6.",
    FLOAT_TYPES,
    Elementwise(
        "w_mul({input}, w_div(w_max(w_min(w_add({input}, 3.0), 6.0), 0.0), 6.0))", flops=5
    ),
    _hard_swish,
)


@operator("§8.9.31", input=_FLOAT, output=Like("input"))
def leaky_relu(check: Check, input: Operand, *, alpha: Double = 0.01) -> Inferred:
    """x for x ≥ 0, alpha x below."""
    return _with_numbers(input, alpha=alpha)


leaky_relu.lowers_to(
    Elementwise("(w_lt({input}, 0.0) ? w_mul({alpha}, {input}) : {input})", flops=2)
)


@leaky_relu.reference
def _(out: MLOperandDescriptor, input: np.ndarray, alpha: float) -> np.ndarray:
    return np.where(input < 0, _scalar(input, alpha) * input, input)


@operator("§8.9.32", input=_FLOAT, output=Like("input"))
def linear(check: Check, input: Operand, *, alpha: Double = 1.0, beta: Double = 0.0) -> Inferred:
    """alpha x + beta."""
    return _with_numbers(input, alpha=alpha, beta=beta)


linear.lowers_to(Elementwise("w_add(w_mul({input}, {alpha}), {beta})", flops=2))


@linear.reference
def _(out: MLOperandDescriptor, input: np.ndarray, alpha: float, beta: float) -> np.ndarray:
    return input * _scalar(input, alpha) + _scalar(input, beta)


prelu = elementwise(
    "§8.9.38",
    "prelu",
    "x for x ≥ 0, slope x below; the operands broadcast to each other.",
    SIGNED_TYPES,
    Elementwise(
        "(w_lt({input}, w_literal({input}, 0)) ? w_mul({slope}, {input}) : {input})", flops=2
    ),
    lambda x, slope: np.where(x < 0, slope * x, x),
    ("input", "slope"),
)
relu = elementwise(
    "§8.9.40",
    "relu",
    "max(0, x).",
    SIGNED_TYPES,
    Elementwise("w_relu({input})", limits=lambda arguments: (0.0, math.inf)),
    lambda x: np.maximum(x, _scalar(x, 0)),
)


def numpy_sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, _scalar(x, 1), e) / (1 + e)


sigmoid = float_function("sigmoid", "1 / (e^-x + 1).", numpy_sigmoid, 10, "§8.9.46")
softplus = float_function(
    "softplus", "ln(1 + e^x).",
    lambda x: np.maximum(x, _scalar(x, 0)) + np.log1p(np.exp(-np.abs(x))), 20, "§8.9.49",
)
softsign = elementwise(
    "§8.9.50",
    "softsign",
    "x / (1 + |x|).",
    FLOAT_TYPES,
    Elementwise("w_div({input}, w_add(1.0, w_abs({input})))", flops=3),
    lambda x: x / (1 + np.abs(x)),
)
tanh = float_function("tanh", "Hyperbolic tangent.", np.tanh, 10, "§8.9.52")

