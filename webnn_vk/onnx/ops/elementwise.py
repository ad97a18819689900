"""Element-wise arithmetic, comparison, logic, activations and conversion."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.compiler.ir import onnx_pairs

from ..context import NodeContext
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..types import NATIVE, STORAGE_ONLY, numpy_type, type_name
from ..values import Tensor
from . import integers
from .float_mod import float_mod

_UNARY = {**onnx_pairs.UNARY, "IsNaN": "is_nan", "Neg": "neg", "Not": "logical_not"}
_BINARY = {
    **onnx_pairs.ARITHMETIC, "Div": "div", **onnx_pairs.COMPARISONS, **onnx_pairs.LOGIC,
}
# Comparisons need no rounding: wider types hold int16 and the like exactly.
_EXACT = tuple(onnx_pairs.COMPARISONS)
_UNSIGNED = ("uint8", "uint32", "uint64")


@onnx_operator(*_UNARY)
def unary(c: NodeContext, x: Tensor, *, consumed_inputs: Any = None) -> MLOperand:
    return getattr(c.b, _UNARY[c.operator])(x)


@onnx_operator(*_BINARY, last=6)
def binary_along_axis(
    c: NodeContext, a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0,
    consumed_inputs: Any = None,
) -> MLOperand:
    # Before opset 7 the second operand is placed at an axis rather than at the last ones.
    if broadcast and axis is not None:
        at = c.axis(axis, a.rank)
        view = [1] * at + list(b.shape) + [1] * (a.rank - at - b.rank)
        return binary(c, a, c.reshape(b, view))
    return binary(c, a, b)


@onnx_operator(*(n for n in _BINARY if n not in _EXACT), first=7)
@onnx_operator(*_EXACT, first=7, storage=True)
def binary(c: NodeContext, a: Tensor, b: Tensor | MLOperand) -> MLOperand:
    return getattr(c.b, _BINARY[c.operator])(a, b)


@onnx_operator("Identity", storage=True, raw=True)
def identity(c: NodeContext, x: Any) -> Any:
    return x


@onnx_operator("Abs", "Sign", "Relu")
def signed_unary(c: NodeContext, x: Tensor) -> MLOperand:
    operand = x.operand
    if operand.data_type in _UNSIGNED:
        return c.b.min(operand, 1) if c.operator == "Sign" else operand
    return getattr(c.b, c.operator.lower())(operand)


@onnx_operator("IsInf")
def is_inf(
    c: NodeContext, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1
) -> MLOperand:
    infinite = c.b.is_infinite(x)
    if not detect_positive:
        infinite = c.b.logical_and(infinite, c.b.lesser(x, 0))
    if not detect_negative:
        infinite = c.b.logical_and(infinite, c.b.greater(x, 0))
    return infinite


@onnx_operator("Sum", "Mean")
@onnx_operator("Max", "Min", storage=True)
def variadic(c: NodeContext, *inputs: Tensor) -> MLOperand:
    if c.operator in ("Max", "Min"):
        return reduce(getattr(c.b, c.operator.lower()), [x.operand for x in inputs])
    first, *others = inputs
    mean = c.operator == "Mean"

    def of(v: MLOperand) -> MLOperand:
        total = reduce(c.b.add, [c.cast(x, v.data_type) for x in others], v)
        return c.b.div(total, len(inputs)) if mean else total

    return c.widened(first, of) if mean or len(others) > 1 else of(first.operand)


@onnx_operator("Pow")
def power(c: NodeContext, a: Tensor, b: Tensor) -> MLOperand:
    base, exponent = a.operand, b.operand
    if exponent.data_type.startswith("float") and not base.data_type.startswith("float"):
        return integers.power(c, base, exponent)
    return c.b.pow(base, c.cast(exponent, base.data_type))


@onnx_operator("Mod")
def mod(c: NodeContext, a: Tensor, b: Tensor, *, fmod: int = 0) -> MLOperand:
    x, y = a.operand, b.operand
    if x.data_type.startswith("float"):
        return c.cast(
            float_mod(c, c.cast(x, "float32"), c.cast(y, "float32"), bool(fmod)), x.data_type
        )
    small = x.data_type in ("int8", "uint8")
    if small:  # a quotient of −128 by −1 needs more bits
        x, y = c.cast(x, "int32"), c.cast(y, "int32")
    rest = c.b.sub(x, c.b.mul(c.b.div(x, y), y))
    if not fmod and x.data_type not in _UNSIGNED:
        wrong = c.b.logical_and(
            c.b.not_equal(rest, 0),
            c.b.not_equal(c.b.lesser(rest, 0), c.b.lesser(y, 0)),
        )
        rest = c.b.where(wrong, c.b.add(rest, y), rest)
    return c.cast(rest, a.operand.data_type) if small else rest


@onnx_operator("Clip", last=10)
def clip_attributes(
    c: NodeContext, x: Tensor, *, min: float | None = None, max: float | None = None
) -> MLOperand:
    return c.b.clamp(x, min_value=min, max_value=max)


@onnx_operator("Clip", first=11)
def clip(
    c: NodeContext, x: Tensor, low: Tensor | None = None, high: Tensor | None = None
) -> MLOperand:
    limits: dict[str, Any] = {}
    operand = x.operand
    for name, limit in (("min_value", low), ("max_value", high)):
        if limit is not None and limit.array is not None:
            limits[name] = limit.array.reshape(-1)[0].item()
    both = len(limits) == 2 and limits["min_value"] > limits["max_value"]
    if limits and not both:
        operand = c.b.clamp(operand, **limits)
    if low is not None and (both or not low.known):
        operand = c.b.max(operand, low)
    if high is not None and (both or not high.known):
        operand = c.b.min(operand, high)
    return operand if operand is not x.operand else c.b.identity(operand)


@onnx_operator("Where", storage=True)
def where(c: NodeContext, condition: Tensor, a: Tensor, b: Tensor) -> MLOperand:
    return c.b.where(condition, a, b)


# -- activations ---------------------------------------------------------------------------------
@onnx_operator("Elu")
def elu(c: NodeContext, x: Tensor, *, alpha: float = 1.0) -> MLOperand:
    return c.widened(x, lambda v: c.b.elu(v, alpha=alpha), alpha)


@onnx_operator("LeakyRelu")
def leaky_relu(c: NodeContext, x: Tensor, *, alpha: float = 0.01) -> MLOperand:
    return c.widened(x, lambda v: c.b.leaky_relu(v, alpha=alpha), alpha)


@onnx_operator("HardSigmoid")
def hard_sigmoid(
    c: NodeContext, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5
) -> MLOperand:
    return c.widened(x, lambda v: c.b.hard_sigmoid(v, alpha=alpha, beta=beta), alpha, beta)


@onnx_operator("PRelu", last=6)
def prelu_channels(c: NodeContext, x: Tensor, slope: Tensor, *, consumed_inputs: Any = None) -> (
    MLOperand
):
    # One slope per channel, the second dimension.
    view = slope.shape if x.rank < 2 else [1, slope.size, *[1] * (x.rank - 2)]
    return c.b.prelu(x, c.reshape(slope, [] if slope.size == 1 else view))


@onnx_operator("PRelu", first=7)
def prelu(c: NodeContext, x: Tensor, slope: Tensor) -> MLOperand:
    operand = x.operand
    if operand.data_type in _UNSIGNED:
        return operand
    return c.b.prelu(operand, slope)


@onnx_operator("Gelu")
@onnx_operator("Gelu", domain=MICROSOFT)
def gelu(c: NodeContext, x: Tensor, *, approximate: str = "none") -> MLOperand:
    return c.b.gelu(x) if approximate == "none" else tanh_gelu(c, x.operand)


def tanh_gelu(c: NodeContext, x: MLOperand) -> MLOperand:
    """The approximation of gelu by tanh: x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))), as x times a
    sigmoid, which loses no digits where tanh is close to −1."""

    def of(v: MLOperand) -> MLOperand:
        cube = c.b.mul(c.b.mul(v, v), v)
        inner = c.b.mul(c.b.add(v, c.b.mul(cube, 0.044715)), 2 * float(np.sqrt(2 / np.pi)))
        return c.b.mul(v, c.b.sigmoid(inner))

    return c.widened(x, of)


@onnx_operator("Selu")
def selu(
    c: NodeContext, x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float =
    1.0507009873554805
) -> MLOperand:
    return c.widened(x, lambda v: c.b.mul(c.b.elu(v, alpha=alpha), gamma))


@onnx_operator("Celu")
def celu(c: NodeContext, x: Tensor, *, alpha: float = 1.0) -> MLOperand:
    def of(v: MLOperand) -> MLOperand:
        below = c.b.mul(c.b.elu(c.b.div(v, alpha)), alpha)
        return c.b.where(c.b.greater(v, 0.0), v, below)

    return c.widened(x, of)


@onnx_operator("ThresholdedRelu")
def thresholded_relu(c: NodeContext, x: Tensor, *, alpha: float = 1.0) -> MLOperand:
    return c.widened(x, lambda v: c.b.where(c.b.greater(v, alpha), v, 0.0), alpha)


@onnx_operator("Swish")
def swish(c: NodeContext, x: Tensor, *, alpha: float = 1.0) -> MLOperand:
    def of(v: MLOperand) -> MLOperand:
        return c.b.mul(v, c.b.sigmoid(v if alpha == 1.0 else c.b.mul(v, alpha)))

    return c.widened(x, of)


@onnx_operator("Mish")
def mish(c: NodeContext, x: Tensor) -> MLOperand:
    return c.widened(x, lambda v: c.b.mul(v, c.b.tanh(c.b.softplus(v))))


@onnx_operator("Shrink")
def shrink(c: NodeContext, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> MLOperand:
    operand = x.operand
    if not operand.data_type.startswith("float"):
        return integers.shrink(c, operand, bias, lambd)

    def of(v: MLOperand) -> MLOperand:
        high = c.b.where(c.b.greater(v, lambd), c.b.sub(v, bias), 0.0)
        return c.b.where(c.b.lesser(v, -lambd), c.b.add(v, bias), high)

    return c.widened(operand, of, bias, lambd)


# -- conversion ----------------------------------------------------------------------------------
@onnx_operator("Cast", storage=True)
def cast(
    c: NodeContext, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    return convert(c, x, type_name(to), bool(saturate))


@onnx_operator("CastLike", storage=True)
def cast_like(
    c: NodeContext, x: Tensor, target: Tensor, *, saturate: int = 1, round_mode: str = "up"
) -> Tensor:
    return convert(c, x, target.type, bool(saturate))


def convert(c: NodeContext, x: Tensor, target: str, saturate: bool = True) -> Tensor:
    """``x`` as another ONNX type."""
    if target == x.type:
        return x
    if c.conversion.low_precision and x.array is None and (
        target == "bfloat16" or target in NATIVE or x.type in NATIVE
    ):
        return c.typed(_low_precision(c, x.operand, x.type, target, saturate), target)
    if x.array is not None and not target.startswith("float8"):
        with np.errstate(all="ignore"):
            return c.conversion.tensor(x.array.astype(numpy_type(target)))
    refuse_if(target in STORAGE_ONLY, f"a cast to {target} would need its overflow")
    carried = c.carrier(target)
    operand = x.operand
    if target == "bool":
        return c.typed(c.b.not_equal(operand, 0), "bool")
    return c.typed(c.cast(operand, carried), target)


#: 8-bit floats without saturation: from which size on numbers are too large, and what they become.
_OVERFLOWS = {"float8_e4m3fn": (np.nextafter(np.float32(464), 1000), np.nan),
              "float8_e5m2": (np.float32(61440), np.inf)}


def _low_precision(
    c: NodeContext, x: MLOperand, source: str, target: str, saturate: bool
) -> MLOperand:
    """A cast from or to a type of "low-precision" (experimental)."""
    if target == "bfloat16":  # rounded, and computed with in float32
        return c.b.cast(c.b.cast(x, "bfloat16"), "float32")
    if source in NATIVE and (target in NATIVE or target == "bool"):
        x = c.b.cast(x, "float32")
    if target == "bool":
        return c.b.not_equal(x, 0)
    carried = c.carrier(target)
    made = c.b.cast(x, carried)
    if saturate or target not in _OVERFLOWS:
        return made
    limit, beyond = _OVERFLOWS[target]
    x = c.cast(x, "float32")
    for too_large, number in ((c.b.greater_or_equal(x, limit), beyond),
                              (c.b.lesser_or_equal(x, -limit), -beyond)):
        filled = np.full(made.shape, number, np.float32).astype(numpy_type(target))
        made = c.b.where(too_large, c.constant(filled, target), made)
    return made


@onnx_operator("BitCast", storage=True)
def bit_cast(c: NodeContext, x: Tensor, *, to: int) -> Tensor:
    target, source = type_name(to), x.operand.data_type
    pair = {source, c.carrier(target)}
    # Only integers of one width and both signs have the same bits after a cast.
    if pair in ({"int32", "uint32"}, {"int64", "uint64"}, {"int8", "uint8"}) or len(pair) == 1:
        if not {x.type, target} & STORAGE_ONLY and x.type != "bfloat16":
            return c.typed(c.cast(x, c.carrier(target)), target)
    raise Unsupported(f"WebNN can't reinterpret the bits of {x.type} as {target}")
