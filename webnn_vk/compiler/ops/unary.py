"""Element-wise functions of one operand, without arguments (§8.9.15)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature

import numpy as np

from ..types.data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor
from .arguments import Operand
from .lowering import Elementwise, Lowering, View
from .record import Check, Like, Limits, Operator, operator
from .special import erf as numpy_erf

SIGNED_TYPES = ("float32", "float16", "int64", "int32", "int8")


def elementwise(
    section: str,
    name: str,
    doc: str,
    types: tuple[str, ...],
    lowering: Lowering,
    reference: Callable[..., np.ndarray],
    operands: Sequence[str] = ("input",),
    output: str = "",
) -> Operator:
    """Record of a function of ``operands`` without arguments. They have one data type and broadcast
    to each other. The result has the data type ``output``, by default the operands' type."""

    def infer(check: Check, **given: MLOperandDescriptor) -> MLOperandDescriptor:
        check.same_type(**given)
        return MLOperandDescriptor(
            output or given[operands[0]].data_type, check.broadcast(**given)
        )

    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(n, kind, annotation=Operand) for n in operands]
    infer.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter("check", kind), *parameters]
    )
    infer.__name__, infer.__doc__ = name, doc
    limits: dict[str, Limits | Like] = dict.fromkeys(operands, Like(operands[0]))
    limits[operands[0]] = Limits(types)
    limits["output"] = Limits((output,)) if output else Like(operands[0])
    record = operator(section, **limits)(infer)
    record.lowers_to(lowering)
    record.reference(lambda out, **given: reference(*given.values()))
    return record


def float_function(
    name: str, doc: str, reference: Callable[[np.ndarray], np.ndarray], flops: int = 1,
    section: str = "§8.9.15",
) -> Operator:
    """Record of a function of floats that the shaders call ``w_`` and its name."""
    kind = Elementwise(f"w_{name}({{input}})", flops=flops)
    return elementwise(section, name, doc, FLOAT_TYPES, kind, reference)


def _signed(name: str, doc: str, reference: Callable[[np.ndarray], np.ndarray]) -> Operator:
    kind = Elementwise(f"w_{name}({{input}})")
    return elementwise("§8.9.15", name, doc, SIGNED_TYPES, kind, reference)


abs_ = _signed("abs", "Absolute value; of the smallest integer it is that integer.", np.abs)
ceil = float_function("ceil", "Smallest integer not below each element.", np.ceil)
cos = float_function("cos", "Cosine of each element in radians.", np.cos, flops=20)
erf = float_function("erf", "Gauss error function.", numpy_erf, flops=20)
exp = float_function("exp", "e to the power of each element.", np.exp, flops=10)
floor = float_function("floor", "Largest integer not above each element.", np.floor)
log = float_function("log", "Natural logarithm; NaN below 0.", np.log, flops=10)
neg = _signed("neg", "Negated value; of the smallest integer it is that integer.", np.negative)
reciprocal = float_function(
    "reciprocal", "1 / x.", lambda x: np.divide(np.ones((), x.dtype), x)
)
round_even = float_function(
    "round_even", "Nearest integer; halves are rounded to the even one.", np.rint
)
sin = float_function("sin", "Sine of each element in radians.", np.sin, flops=20)
sign = _signed("sign", "-1, 0 or 1 by the sign; NaN stays NaN.", np.sign)
sqrt = float_function("sqrt", "Square root; NaN below 0.", np.sqrt)
tan = float_function("tan", "Tangent of each element in radians.", np.tan, flops=20)


@operator("§8.9.15", input=Limits(ALL_TYPES), output=Like("input"))
def identity(check: Check, input: Operand) -> MLOperandDescriptor:
    """The input's elements, unchanged."""
    return check.same_as(input)


identity.lowers_to(View())


@identity.reference(promotes=False)
def _(out: MLOperandDescriptor, input: np.ndarray) -> np.ndarray:
    return input
