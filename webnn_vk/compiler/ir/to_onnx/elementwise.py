"""Element-wise operators: arithmetic, comparisons, logic, activations, casts, where."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .. import onnx_pairs
from .writer import Inexpressible, Tensor, Writer, rule

#: Operators with a rule below, since ONNX Runtime's operators are less accurate.
_OWN = ("hard_swish", "max", "min", "sigmoid", "sign")


def _same(kind: str) -> Callable[..., Tensor]:
    return lambda w, **operands: w.op(kind, *operands.values())


def _comparison(kind: str) -> Callable[[Writer, Tensor, Tensor], Tensor]:
    return lambda w, a, b: w.uint8_of(w.compare(kind, a, b))


_SAME = onnx_pairs.UNARY | onnx_pairs.ARITHMETIC | {
    "Abs": "abs", "Gelu": "gelu", "Max": "max", "Min": "min", "Neg": "neg", "Sign": "sign",
}
for _kind, _name in _SAME.items():
    if _name not in _OWN:
        rule(_name)(_same(_kind))
for _kind, _name in onnx_pairs.COMPARISONS.items():
    rule(_name)(_comparison(_kind))


@rule("max", "min")
def extreme(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    assert w.node is not None
    name = w.node.operator.name
    if not _compares_halves(w, a):
        return w.op(name.capitalize(), a, b)
    return w.select(w.compare("Greater" if name == "max" else "Less", a, b), a, b)


def _compares_halves(w: Writer, x: Tensor) -> bool:
    """Whether the form has to do without Max, Min, Clip and Sign, which compare only the lower
    halves of some int64 in ONNX Runtime before 1.32. Greater and Less don't."""
    return w.careful and x.data_type == "int64"


@rule("sign")
def sign(w: Writer, input: Tensor) -> Tensor:
    if _compares_halves(w, input):
        return w.between(input, -1, 1)
    if w.careful and input.data_type == "float16":
        # ONNX Runtime's is not NaN for NaN.
        return w.cast(w.op("Sign", w.cast(input, "float32")), "float16")
    return w.op("Sign", input)


@rule("relu")
def relu(w: Writer, input: Tensor) -> Tensor:
    if input.is_float:
        return w.op("Relu", input)
    if _compares_halves(w, input):
        return w.between(input, 0, None)
    return w.op("Max", input, w.scalar(0, input))


@rule("sigmoid")
def sigmoid(w: Writer, input: Tensor) -> Tensor:
    if not w.careful:
        return w.op("Sigmoid", input)
    # ONNX Runtime's is flat below -18; this one is a rounding or two from exact everywhere.
    x = w.cast(input, "float32")
    over = w.op("Add", w.op("Exp", w.op("Neg", x)), w.scalar(1, x))
    return w.cast(w.op("Reciprocal", over), input.data_type)


@rule("identity")
def identity(w: Writer, input: Tensor) -> Tensor:
    return input


@rule("not_equal")
def not_equal(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    return w.uint8_of(w.op("Not", w.compare("Equal", a, b)))


def _logical(kind: str) -> Callable[[Writer, Tensor, Tensor], Tensor]:
    return lambda w, a, b: w.uint8_of(w.op(kind, w.bool_of(a), w.bool_of(b)))


for _kind, _name in onnx_pairs.LOGIC.items():
    rule(_name)(_logical(_kind))


@rule("logical_not")
def logical_not(w: Writer, a: Tensor) -> Tensor:
    return w.uint8_of(w.op("Not", w.bool_of(a)))


@rule("is_nan", "is_infinite")
def classes(w: Writer, a: Tensor) -> Tensor:
    assert w.node is not None
    kind = "IsNaN" if w.node.operator.name == "is_nan" else "IsInf"
    return w.uint8_of(w.op(kind, a, data_type="bool"))


@rule("where")
def where(w: Writer, condition: Tensor, true_value: Tensor, false_value: Tensor) -> Tensor:
    return w.select(w.bool_of(condition), true_value, false_value)


@rule("div")
def div(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    if a.is_float or (b.array is not None and not np.isin(b.array, (0, -1)).any()):
        return w.op("Div", a, b)
    # Integers divided by 0 give 0. ONNX defines neither this nor the lowest number divided by -1.
    zero, one = w.scalar(0, a), w.scalar(1, a)
    by_zero = w.compare("Equal", b, zero)
    safe = w.select(by_zero, one, b)
    if a.data_type.startswith("uint"):
        return w.select(by_zero, zero, w.op("Div", a, safe))
    negating = w.compare("Equal", b, w.scalar(-1, a))
    quotient = w.op("Div", a, w.select(negating, one, safe))
    # The negated lowest number is not representable: 0 - x is x.
    return w.select(by_zero, zero, w.select(negating, w.op("Sub", zero, a), quotient))


@rule("pow")
def power(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    if a.is_float:
        return w.op("Pow", a, b)
    if b.array is None or np.unique(b.array).size != 1:
        raise Inexpressible("ONNX does not define that integers wrap around in Pow")
    exponent = int(b.array.reshape(-1)[0])
    one = w.scalar(1, a)
    if exponent < 0:
        raise Inexpressible("ONNX does not define Pow of integers with negative exponents")
    made, square = None, a
    # Products wrap around; Pow need not.
    while exponent:
        if exponent & 1:
            made = square if made is None else w.op("Mul", made, square)
        exponent >>= 1
        if exponent:
            square = w.op("Mul", square, square)
    return w.expand(one if made is None else made, w.result.shape)


@rule("clamp")
def clamp(w: Writer, input: Tensor, min_value: float, max_value: float) -> Tensor:
    least, most = _bounds(input.data_type)
    if min_value <= least and max_value >= most:
        return input
    if input.is_float:
        # ONNX's default bounds are the largest finite numbers, which would change infinity.
        return w.op("Clip", input, w.scalar(min_value, input), w.scalar(max_value, input))
    if _compares_halves(w, input):
        return w.between(
            input, min_value if min_value > least else None, max_value if max_value < most else None
        )
    low = w.scalar(min_value, input) if min_value > least else None
    high = w.scalar(max_value, input) if max_value < most else None
    return w.op("Clip", input, low, high)


def _bounds(data_type: str) -> tuple[float, float]:
    if data_type.startswith("float"):
        return -math.inf, math.inf
    limits = np.iinfo(data_type)
    return int(limits.min), int(limits.max)


@rule("elu")
def elu(w: Writer, input: Tensor, alpha: float) -> Tensor:
    if not w.careful:
        return w.op("Elu", input, alpha=float(alpha))
    # e^x - 1 = 2 tanh(x/2) / (1 - tanh(x/2)): nothing is lost where e^x is close to 1.
    x = w.cast(input, "float32")
    half = w.op("Tanh", w.op("Mul", x, w.scalar(0.5, x)))
    top = w.op("Mul", half, w.scalar(2 * alpha, x))
    below = w.op("Div", top, w.op("Sub", w.scalar(1, x), half))
    return w.cast(w.select(w.compare("Greater", x, w.scalar(0, x)), x, below), input.data_type)


@rule("hard_swish")
def hard_swish(w: Writer, input: Tensor) -> Tensor:
    if not w.careful:
        return w.op("HardSwish", input)
    # x/6 + 1/2 loses bits where x + 3 does not.
    x = w.cast(input, "float32")
    bounded = w.op("Clip", w.op("Add", x, w.scalar(3, x)), w.scalar(0, x), w.scalar(6, x))
    return w.cast(w.op("Mul", x, w.op("Div", bounded, w.scalar(6, x))), input.data_type)


@rule("leaky_relu")
def leaky_relu(w: Writer, input: Tensor, alpha: float) -> Tensor:
    return w.op("LeakyRelu", input, alpha=float(alpha))


@rule("hard_sigmoid")
def hard_sigmoid(w: Writer, input: Tensor, alpha: float, beta: float) -> Tensor:
    return w.op("HardSigmoid", input, alpha=float(alpha), beta=float(beta))


@rule("linear")
def linear(w: Writer, input: Tensor, alpha: float, beta: float) -> Tensor:
    scaled = w.op("Mul", input, w.scalar(alpha, input))
    return w.op("Add", scaled, w.scalar(beta, input))


@rule("prelu")
def prelu(w: Writer, input: Tensor, slope: Tensor) -> Tensor:
    if input.is_float and w.result.shape == input.shape:
        return w.op("PRelu", input, slope)
    below = w.compare("Less", input, w.scalar(0, input))
    return w.select(below, w.op("Mul", slope, input), input)


@rule("cast")
def cast(w: Writer, input: Tensor, data_type: str) -> Tensor:
    if not input.is_float or data_type.startswith("float"):
        return w.cast(input, data_type)
    if not w.careful:
        return w.cast(input, data_type)
    # ONNX does not define numbers out of the range of integers: they are brought into it before,
    # finite ones modulo a power of two.
    signed, bits = data_type.startswith("int"), np.dtype(data_type).itemsize * 8
    x = w.cast(input, "float64")
    odd = w.op("Or", w.op("IsNaN", x, data_type="bool"), w.op("IsInf", x, data_type="bool"))
    zero, whole = w.scalar(0, x), w.scalar(2.0**bits, x)
    x = w.select(odd, zero, x)
    # Rounded towards zero, so that the additions below are exact.
    x = w.select(w.compare("Less", x, zero), w.op("Ceil", x), w.op("Floor", x))
    x = w.op("Mod", x, whole, fmod=1)
    if signed or bits == 64:
        half = w.scalar(2.0 ** (bits - 1), x)
        x = w.select(w.compare("GreaterOrEqual", x, half), w.op("Sub", x, whole), x)
        lowest = w.scalar(-(2.0 ** (bits - 1)), x)
        x = w.select(w.compare("Less", x, lowest), w.op("Add", x, whole), x)
        if not signed:
            raise Inexpressible("negative numbers to uint64: ONNX Runtime makes one of two casts")
    else:
        x = w.select(w.compare("Less", x, zero), w.op("Add", x, whole), x)
    return w.cast(x, data_type)
