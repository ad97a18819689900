"""Functions of one number over their whole range: every float16, and float32 of all magnitudes
including the places where formulas change, compared with 80-bit arithmetic (where available).

Each has a tolerance in units in the last place of the result. Where a formula rounds its argument
first (scaled, or cubed), the tolerance includes how far the result moves when the argument moves by
half a unit.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.onnx_nodes import Draws, Node

pytest.importorskip("onnxruntime")
Wide = np.longdouble


def wide(number):
    """A float32 attribute, unchanged."""
    return Wide(np.float32(number))


def error_function(x):
    return np.array([math.erfc(float(v)) for v in x.reshape(-1)], Wide).reshape(x.shape)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def below(x, alpha=1):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@dataclass(frozen=True)
class Function:
    """``ulps`` of a float32 result, and how many times half a unit of the argument counts."""

    exact: Callable[[np.ndarray], np.ndarray]
    ulps: float = 4
    moved: float = 0
    operator: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    #: Whether infinities are outside the range: the definition is ∞ · 0 or ∞ / ∞ there.
    finite: bool = False


SELU = wide(1.6732632423543772), wide(1.0507009873554805)
FUNCTIONS = {
    "Acos": Function(np.arccos),
    "Acosh": Function(np.arccosh),
    "Asin": Function(np.arcsin),
    "Asinh": Function(np.arcsinh),
    "Atan": Function(np.arctan),
    "Atanh": Function(np.arctanh),
    "Celu": Function(below),
    "Celu, alpha": Function(
        lambda x: np.where(x > 0, x, below(x / wide(0.3)) * wide(0.3)), 4, 1, "Celu",
        {"alpha": 0.3},
    ),
    "Cosh": Function(np.cosh),
    "Elu": Function(below, 3),
    "Erf": Function(lambda x: np.where(
        np.abs(x) < 0.5, np.array([math.erf(float(v)) for v in x], Wide),
        np.sign(x) * (1 - error_function(np.abs(x))),
    ), 2),
    "Exp": Function(np.exp, 3),
    "Gelu": Function(lambda x: x / 2 * error_function(-x / np.sqrt(Wide(2))), finite=True),
    "Gelu, tanh": Function(
        lambda x: x / (1 + np.exp(-np.sqrt(8 / Wide(np.pi)) * (x + Wide(0.044715) * x**3))),
        4, 2, "Gelu", {"approximate": "tanh"}, finite=True,
    ),
    "HardSigmoid": Function(lambda x: np.clip(wide(0.2) * x + wide(0.5), 0, 1), 1, 1),
    "HardSwish": Function(lambda x: x * (np.clip(x + 3, 0, 6) / 6), finite=True),
    "LeakyRelu": Function(lambda x: np.where(x < 0, wide(0.01) * x, x), 1),
    "Log": Function(np.log, 3),
    "Mish": Function(lambda x: x * np.tanh(softplus(x)), finite=True),
    "QuickGelu": Function(
        lambda x: x / (1 + np.exp(-wide(1.702) * x)), 4, 1, domain="com.microsoft", finite=True
    ),
    "Reciprocal": Function(lambda x: 1 / x, 3),
    "Selu": Function(lambda x: SELU[1] * below(x, SELU[0])),
    "Sigmoid": Function(lambda x: 1 / (1 + np.exp(-x)), 3),
    "Sinh": Function(np.sinh),
    "Softplus": Function(softplus, 3),
    "Softsign": Function(lambda x: x / (1 + np.abs(x)), 3, finite=True),
    "Sqrt": Function(np.sqrt, 3),
    "Swish": Function(lambda x: x / (1 + np.exp(-x)), finite=True),
    "Swish, alpha": Function(
        lambda x: x / (1 + np.exp(-wide(0.7) * x)), 4, 1, "Swish", {"alpha": 0.7}, finite=True
    ),
    "Tanh": Function(np.tanh, 3),
    "ThresholdedRelu": Function(lambda x: np.where(x > 1, x, Wide(0)), 0),
}


def numbers(kind):
    """All float16; float32 of all exponents, close to 0 and 1, around where formulas change, and
    the last numbers with finite results."""
    if kind == "float16":
        return np.arange(65536, dtype=np.uint16).view(np.float16)
    bits = np.random.default_rng(0).integers(0, 2**32, 40000).astype(np.uint32)
    edges = [1.0, 0.25, 0.5, 2.0**-13, 2.0**14, 2.414213562373095, 0.4142135623730951, 3.0, 2.5,
             88.0, 88.7228, 89.4159, 103.97, 3.4028235e38, 1e38, 1e20, 1.8446743e19, 1.1754944e-38]
    near = np.array(edges, np.float32).view(np.int32)[:, None] + np.arange(-20, 21)
    whole = np.concatenate([
        bits.view(np.float32), near.astype(np.int32).reshape(-1).view(np.float32),
        *(np.linspace(0, top, 2000) for top in (1e-3, 0.3, 1, 3, 12, 60, 120)),
        [0.0, np.inf, np.nan, 1e-45],
    ]).astype(np.float32)
    return np.concatenate([whole, -whole])


@functools.cache
def smallest(context):
    """The smallest positive float32 that the device computes with: a denormal one unless it
    flushes them."""
    limits = np.finfo(np.float32)
    halves = [np.array([limits.tiny], np.float32), np.array([0.5], np.float32)]
    (half,) = Node("Mul", halves, domain="").here(context)
    return limits.smallest_subnormal if half[0] else limits.tiny


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(context, name, kind):
    function, x = FUNCTIONS[name], numbers(kind)
    if function.finite:
        x = x[~np.isinf(x)]
    operator = function.operator or name
    node = Node(operator, [x], function.attributes, domain=function.domain, opset=24)
    (got,) = node.here(context)
    limits = np.finfo(kind)
    with np.errstate(all="ignore"):
        value = x.astype(Wide)
        exact = function.exact(value)
        rounded = exact.astype(kind)
        unit = np.spacing(np.minimum(np.abs(rounded), limits.max)).astype(Wide)
        half = 2.0 ** -(limits.nmant + 1)
        moves = np.abs(function.exact(value * (1 + Wide(half))) - exact)
        allowed = unit * (function.ulps if kind == "float32" else 0.51)
        allowed += function.moved * np.where(np.isfinite(moves), moves, 0) * (kind == "float32")
        # A factor below the normal numbers has fewer digits, or is 0.
        allowed += np.abs(value) * smallest(context)
        wrong = ~(np.abs(got.astype(Wide) - exact) <= allowed)
    wrong &= ~((got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    # Numbers below the normal ones may be flushed.
    tiny = (np.abs(exact) < limits.tiny) | (np.abs(value) < limits.tiny)
    wrong &= ~(tiny & (np.abs(got) <= limits.tiny) & (np.abs(exact) <= 2 * limits.tiny))
    at = np.flatnonzero(wrong)[:5]
    assert not wrong.any(), list(zip(x[at], got[at], rounded[at], strict=True))
    if name in ODD:
        zeros = x == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(x[zeros]))


#: Odd functions: −0 stays −0.
ODD = ("Asin", "Asinh", "Atan", "Atanh", "Sinh", "Tanh", "Erf")


@pytest.mark.parametrize("name", ["HardSwish", "Mish", "QuickGelu", "Softsign", "Swish"])
def test_as_the_runtime_at_infinities(context, name):
    """−∞ · 0 and ∞ / ∞, as in the definitions."""
    x = np.array([np.inf, -np.inf, np.nan, -200, 200], np.float32)
    node = Node(name, [x], domain=FUNCTIONS[name].domain, opset=24)
    got, expected = node.results(context)
    assert_allclose(got[0], expected[0], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("size", [1e-30, 1e-18, 1.0, 1e18, 1e30, 3e38])
@pytest.mark.parametrize("p", [1, 2])
def test_norms(context, p, size):
    x = (Draws().normal(4, 9) / 5).clip(-1, 1) * np.float32(size)
    x[1] = 0
    (got,) = Node("LpNormalization", [x], {"p": p}, domain="").here(context)
    exact = x.astype(Wide)
    norm = (np.abs(exact) ** p).sum(-1, keepdims=True) ** (1 / Wide(p))
    assert_allclose(got, exact / np.where(norm == 0, 1, norm), rtol=1e-6)


@pytest.mark.parametrize("axes", [None, [1], [0, 2, 3]])
def test_mean_variance_normalization(context, axes):
    """A mean far larger than the deviation."""
    x = Draws().normal(2, 3, 4, 5) + 1000
    attributes = {} if axes is None else {"axes": axes}
    (got,) = Node("MeanVarianceNormalization", [x], attributes, domain="").here(context)
    exact, over = x.astype(np.float64), tuple(axes or (0, 2, 3))
    centred = exact - exact.mean(over, keepdims=True)
    expected = centred / (centred.std(over, keepdims=True) + 1e-9)
    assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_rests(context, kind, fmod):
    """Quotients of all sizes; zeros, infinities and NaN on both sides."""
    draws = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x, y = ((draws.normal(size=3000) * np.exp2(draws.uniform(-reach, reach, 3000))).astype(kind)
                for reach in ((120, 20) if kind == "float32" else (14, 6)))
    odd = np.array([0, -0.0, 1, -1, 7.5, -7.5, 2, 1e-6, np.inf, -np.inf, np.nan], kind)
    x = np.concatenate([x, x[:50], np.repeat(odd, odd.size)])
    y = np.concatenate([y, x[:50] * 3 // 1, np.tile(odd, odd.size)])
    (got,) = Node("Mod", [x, y], {"fmod": fmod}, domain="", opset=13).here(context)
    with np.errstate(all="ignore"):
        expected = (np.fmod if fmod else np.mod)(x, y)
    np.testing.assert_array_equal(got, expected)
