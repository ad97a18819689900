"""Arguments for tests of the function library, references in float64, and the measure of errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from tests.conformance.numerics.glsl import Library
from webnn_vk.codegen.render import environment

FILES = ("float", "float_exp", "float_trig", "float_half", "half", "integer", "int64")

_SPECIAL = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754942e-38, -1.1754942e-38,
    1.1754944e-38, 3.4028235e38, -3.4028235e38, 1.0, -1.0, 0.99999994, 1.0000001, 2.0, -2.0, 3.0,
    -3.0, 0.5, -0.5, 0.49999997, 1.5, -1.5, 2.5, -2.5, 8388607.5, -8388607.5, 8388609.0, 16777215.0,
    -16777215.0, 33554432.0, 4294967296.0, 1e10, 1e-20, 0.70710677, 0.70710683, 0.7853981,
    0.78539819, 0.875, 0.625, 0.75, 3.9999998, 4.0, 9.9999, 10.0, -14.2, -14.99, 15.0, -15.0,
    -16.0, -18.0, 18.0, 88.72283, 88.72284, -87.33654, -87.33655, -103.27892, -103.97208,
    -103.97209, 105.0, -105.0, 110.0, 16367173 * 2.0**72,  # next to a multiple of pi/2
)


def library(*, int64_native: bool = False) -> Library:
    """The whole function library, ready for the interpreter."""
    templates = (environment().get_template(f"lib/{name}.glsl.j2") for name in FILES)
    return Library("\n".join(t.render(int64_native=int64_native) for t in templates))


def floats(count: int = 12000) -> np.ndarray:
    """float32 values: evenly over all exponents and both signs, near critical points, near
    multiples of pi/2 and 1, and all special values."""
    random = np.random.default_rng(20260521)
    bits = np.linspace(0, 0x7F7FFFFF, count).astype(np.uint32)
    bits ^= random.integers(0, 2, count).astype(np.uint32) << 31
    quarters = (np.arange(1, 2000) * (np.pi / 2)).astype(np.float32)
    parts = [
        bits.view(np.float32), random.uniform(-20, 20, count), random.uniform(-1.5, 1.5, count),
        random.uniform(-110, 110, count // 2), quarters, -np.nextafter(quarters, np.float32(0)),
        np.exp(random.uniform(-0.01, 0.01, count // 4)), np.arange(-40, 40) / 2, _SPECIAL,
    ]
    return np.concatenate([np.asarray(part, np.float32) for part in parts])


def halves() -> np.ndarray:
    """Every float16 value."""
    return np.arange(65536, dtype=np.uint16).view(np.float16)


def half_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Pairs of float16: all significands of both, all special values and ends with each other, any
    bits, and quotients that are denormal, of which many are ties."""
    random = np.random.default_rng(20261129)
    digits = np.arange(0x3C00, 0x4000)
    ends = np.array([0, 1, 2, 3, 0x3FF, 0x400, 0x401, 0x3C00, 0x7BFE, 0x7BFF, 0x7C00, 0x7E00])
    ends = np.concatenate([ends, ends + 0x8000])
    pairs = [
        np.meshgrid(digits, digits), np.meshgrid(ends, ends),
        random.integers(0, 65536, (2, 400000)),
        (random.integers(0, 0x1800, 200000), random.integers(0x3C00, 0x7C00, 200000)),
    ]
    return tuple(
        np.concatenate([np.ravel(p[k]) for p in pairs]).astype(np.uint16).view(np.float16)
        for k in (0, 1)
    )


def float_pairs(count: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of float32 for operators of two operands, including hard cases of powers."""
    random = np.random.default_rng(20260522)

    def anything() -> np.ndarray:
        return random.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)

    near = np.concatenate(
        [np.exp(random.uniform(-88, 88, count)), 1 + random.uniform(-1e-4, 1e-4, count)]
    ).astype(np.float32)
    log = np.log(near.astype(np.float64))
    special = np.array(list(itertools.product(_SPECIAL, _SPECIAL)), np.float32).T
    pairs = [
        (special[0], special[1]), (anything(), anything()),
        (random.uniform(0, 10, count), random.uniform(-30, 30, count)),
        (random.uniform(-10, 10, count), random.integers(-40, 40, count)),
        (random.uniform(0.5, 2, count), random.uniform(-200, 200, count)),
        (near, random.uniform(-104, 90, near.size) / np.where(log == 0, 1, log)),
    ]
    return tuple(
        np.concatenate([np.asarray(pair[k], np.float32) for pair in pairs]) for k in (0, 1)
    )


def _gelu(x: np.ndarray) -> np.ndarray:
    tail = np.vectorize(math.erfc, otypes=[float])(-x / math.sqrt(2))
    return np.where(np.isneginf(x), -0.0, x * (0.5 * tail))


#: Name -> reference in float64.
UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "round_even": np.rint, "sqrt": np.sqrt, "reciprocal": lambda x: 1 / x,
    "inverse_sqrt": lambda x: 1 / np.sqrt(x), "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "erf": np.vectorize(math.erf, otypes=[float]), "tanh": np.tanh,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), "gelu": _gelu,
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "min": np.minimum, "max": np.maximum, "div": np.divide, "pow": np.power,
}
COMPARISONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}

#: Largest error in ULP of float32 on any device that Vulkan allows; 0 means correctly rounded. erf
#: is bounded by 1e-6 (absolute) instead, where denormals may be flushed. inverse_sqrt is the
#: device's own, 2 ULP off: 4 floats below a power of 2, where floats are denser.
BOUNDS = {
    "abs": 0, "neg": 0, "sign": 0, "floor": 0, "ceil": 0, "round_even": 0, "sqrt": 0,
    "reciprocal": 0, "inverse_sqrt": 4, "exp": 2, "expm1": 6, "log": 3, "sin": 3, "cos": 3,
    "tan": 6, "tanh": 4, "sigmoid": 10, "softplus": 8, "gelu": 14, "min": 0, "max": 0, "div": 0,
    "pow": 16,
}

#: Of the 65,536 float16, how many results of a short form (`w_half_…`) are not the nearest float16
#: but the next, by IEEE arithmetic. Of the forms for float32 they are 0, 0, 2, 6, 0, 2 and 3.
NOT_NEAREST = {
    "reciprocal": 0, "sqrt": 0, "exp": 2, "sigmoid": 7, "tanh": 0, "erf": 10, "gelu": 11,
}
#: And on any device that Vulkan allows.
MOST_NOT_NEAREST = 24


def reference(name: str, *arguments: np.ndarray) -> np.ndarray:
    """The exact result, in float64."""
    with np.errstate(all="ignore"):
        function = UNARY.get(name) or BINARY[name]
        return function(*(x.astype(np.float64) for x in arguments))


def _line(x: np.ndarray) -> np.ndarray:
    """Floats as positions on the line of all floats, where -0 = +0."""
    bits = np.ascontiguousarray(x).view(np.int32 if x.dtype == np.float32 else np.int16)
    bits = bits.astype(np.int64)
    return np.where(bits < 0, -(bits & (2**31 - 1 if x.dtype == np.float32 else 2**15 - 1)), bits)


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in floats of got's type from the rounded exact result, as the web-platform-tests
    count it. NaN is at distance 0 from NaN and far from everything else."""
    with np.errstate(over="ignore"):
        want = exact.astype(got.dtype)
    distance = np.abs(_line(got) - _line(want))
    nan = np.isnan(want)
    return np.where(nan == np.isnan(got), np.where(nan, 0, distance), 2**32)


def worst(got: np.ndarray, exact: np.ndarray, *arguments: np.ndarray) -> tuple[int, str]:
    """The largest distance and the place where it occurs."""
    distance = ulps(got, exact)
    i = int(distance.argmax())
    place = ", ".join(repr(x[i]) for x in arguments)
    return int(distance[i]), f"{distance[i]} ULP at ({place}): {got[i]!r}, not {exact[i]!r}"
