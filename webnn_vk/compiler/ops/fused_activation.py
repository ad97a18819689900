"""Activations that exporters write in several operators: compiler operators, introduced by
`passes/activations.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor, cast_number
from .activation import numpy_sigmoid
from .arguments import Double, Operand
from .lowering import Elementwise
from .record import Check, Inferred, Like, Limits, compiler_operator


@compiler_operator(input=Limits(FLOAT_TYPES), output=Like("input"))
def swish(check: Check, input: Operand, *, alpha: Double = 1.0) -> Inferred:
    """x · sigmoid(alpha · x)."""
    return Inferred.like(input, alpha=cast_number(alpha, input.data_type))


def _swish(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    x, alpha = operands["input"], arguments["alpha"]
    scaled = x if alpha == 1 else emit.mul(x, emit.constant(alpha, x.data_type))
    return emit.mul(x, emit.sigmoid(scaled))


swish.lowers_to(Elementwise(
    "w_mul({input}, w_sigmoid(w_mul({alpha}, {input})))", flops=12, decompose=_swish
))


@swish.reference
def _(out: MLOperandDescriptor, input: np.ndarray, alpha: float) -> np.ndarray:
    return input * numpy_sigmoid(np.asarray(alpha, input.dtype) * input)


@compiler_operator(input=Limits(FLOAT_TYPES), output=Like("input"))
def gelu_tanh(check: Check, input: Operand) -> MLOperandDescriptor:
    """The approximation of gelu by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))."""
    return check.same_as(input)


def _gelu_tanh(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    x = operands["input"]
    one, cubic, double = (
        emit.constant(n, x.data_type) for n in (1, 0.044715, 2 * math.sqrt(2 / math.pi))
    )
    factor = emit.add(one, emit.mul(cubic, emit.mul(x, x)))
    return emit.mul(x, emit.sigmoid(emit.mul(emit.mul(double, x), factor)))


# As x · sigmoid(2 u), which loses no digits where tanh is close to −1.
gelu_tanh.lowers_to(
    Elementwise(
        "w_mul({input}, w_sigmoid(w_mul(1.5957691216, "
        "w_add({input}, w_mul(0.044715, w_mul(w_mul({input}, {input}), {input}))))))",
        flops=18,
        decompose=_gelu_tanh,
    )
)


@gelu_tanh.reference
def _(out: MLOperandDescriptor, input: np.ndarray) -> np.ndarray:
    x = input.astype(np.float64)
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
