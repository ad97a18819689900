"""Normalisation by the root mean square: a compiler operator, introduced by `passes/norms.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import Double, Operand, Shape
from .lowering import Normalize
from .record import Check, Like, Limits, compiler_operator


@compiler_operator(input=Limits(FLOAT_TYPES), output=Like("input"))
def rms_normalization(
    check: Check, input: Operand, axes: Shape, *, epsilon: Double = 1e-5
) -> MLOperandDescriptor:
    """x / √(mean of x² over ``axes`` + ``epsilon``)."""
    check.axes(axes, input.rank)
    return check.same_as(input)


@rms_normalization.reference
def _(
    out: MLOperandDescriptor, input: np.ndarray, axes: tuple[int, ...], epsilon: float
) -> np.ndarray:
    wide = input.astype(np.float64)
    # Rounded to float32, so that it overflows where the operators that it replaces would.
    mean = np.mean(wide * wide, axis=axes, keepdims=True).astype(np.float32)
    return wide / np.sqrt(mean + epsilon)


def _decompose(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    """The same by operators of the specification, in float32 as the kernel."""
    x = operands["input"]
    wide = x if x.data_type == "float32" else emit.cast(x, "float32")
    mean = emit.reduce_mean(
        emit.mul(wide, wide), axes=arguments["axes"], keep_dimensions=True
    )
    variance = emit.add(mean, emit.constant(arguments["epsilon"], "float32"))
    normal = emit.div(wide, emit.sqrt(variance))
    return normal if wide is x else emit.cast(normal, x.data_type)


rms_normalization.lowers_to(Normalize(
    axes=lambda shape, arguments: arguments["axes"], centred=False, decompose=_decompose
))
