"""Integer functions and conversions compared with Python's integers, by the interpreter and on the
device, with native 64-bit integers and with two words."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.conformance.numerics import samples
from tests.conformance.numerics.conftest import Evaluate
from tests.conformance.numerics.glsl import Value

TYPES = {"int32": (32, True), "uint32": (32, False), "int64": (64, True), "uint64": (64, False)}
GLSL = {"int32": "int", "uint32": "uint", "float32": "float"}
_WORDS = ("I64", "U64")

Run = Callable[..., np.ndarray]


def wrap(value: int, name: str) -> int:
    """value modulo 2^n as a number of the type."""
    bits, signed = TYPES[name]
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def divide(a: int, b: int) -> int:
    """Towards zero; 0 for a divisor 0."""
    return 0 if b == 0 else int(Fraction(a, b))


def power(a: int, b: int, name: str) -> int:
    if b >= 0:
        return pow(a, b, 1 << TYPES[name][0])
    return {1: 1, -1: 1 - 2 * (b & 1)}.get(a, 0)


BINARY: dict[str, Callable[[int, int, str], int]] = {
    "add": lambda a, b, t: a + b, "sub": lambda a, b, t: a - b, "mul": lambda a, b, t: a * b,
    "div": lambda a, b, t: divide(a, b), "pow": power, "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
}
UNARY: dict[str, Callable[[int], int]] = {
    "neg": lambda x: -x, "abs": abs, "sign": lambda x: (x > 0) - (x < 0),
}


def integers(name: str) -> list[int]:
    """Corner values and random ones of every length."""
    bits, _ = TYPES[name]
    random = np.random.default_rng(bits)
    edges = {s * ((1 << k) + d) for k in range(bits + 1) for d in (-1, 0, 1) for s in (1, -1)}
    lengths = random.integers(1, bits + 1, 120)
    free = {int.from_bytes(random.bytes(8), "little") >> (64 - int(n)) for n in lengths}
    return sorted({wrap(v, name) for v in edges | free | set(range(-40, 41))})


def pairs(name: str) -> tuple[list[int], list[int]]:
    values = integers(name)
    random = np.random.default_rng(7)
    corners = [wrap(v, name) for v in (0, 1, -1, 2, -2, 7, 1 << 31, 1 << 32, -(1 << 31), 1 << 63)]
    chosen = list(itertools.product(corners, corners))
    chosen += [(a, b) for a in values for b in corners[:6]]
    picks = random.integers(0, len(values), (1500, 2))
    chosen += [(values[i], values[j]) for i, j in picks]
    # As exponents and shifts: small numbers.
    chosen += [(values[i], wrap(int(j) % 70 - 5, name)) for i, j in picks[:300]]
    return [a for a, _ in chosen], [b for _, b in chosen]


def _words(name: str, array: np.ndarray) -> Value:
    kind = "I64" if name == "int64" else "U64"
    unsigned = array.view(np.uint64)
    lo, hi = unsigned.astype(np.uint32), (unsigned >> np.uint64(32)).astype(np.uint32)
    return kind, [("uint", lo), ("uint", hi)]


def _joined(value: Value) -> np.ndarray:
    kind, data = value
    if kind not in _WORDS:
        return np.asarray(data)
    joined = data[0][1].astype(np.uint64) | data[1][1].astype(np.uint64) << np.uint64(32)
    return joined.view(np.int64) if kind == "I64" else joined


def _emulated(native: bool) -> Run:
    library = samples.library(int64_native=native)

    def run(expression: str, result: type, **arrays: np.ndarray) -> np.ndarray:
        name, arguments = re.fullmatch(r"(\w+)\((.*)\)", expression).groups()
        values = []
        for argument in arguments.split(", "):
            array = arrays[argument]
            kind = str(array.dtype)
            if kind.endswith("64"):
                values.append((f"{kind}_t", array) if native else _words(kind, array))
            else:
                values.append((GLSL[kind], array))
        got = _joined(library.call(name, *values))
        count = len(next(iter(arrays.values())))
        return np.broadcast_to(got, (count,)).astype(result)

    return run


@pytest.fixture(params=[
    "emulation native",
    "emulation words",
    pytest.param("device native", marks=pytest.mark.device),
    pytest.param("device words", marks=pytest.mark.device),
])
def compute(request: pytest.FixtureRequest) -> Run:
    """Runs `w_name(a, b)` over arrays."""
    where, how = request.param.split()
    native = how == "native"
    if where == "emulation":
        return _emulated(native)
    evaluate: Evaluate = request.getfixturevalue("evaluate")

    def run(expression: str, result: type, **arrays: np.ndarray) -> np.ndarray:
        if result is np.bool_:
            return evaluate(f"w_bool({expression})", np.uint8, int64=native, **arrays)
        return evaluate(expression, result, int64=native, **arrays)

    return run


@pytest.mark.parametrize("name", TYPES)
def test_arithmetic(compute: Run, name: str) -> None:
    a, b = pairs(name)
    arrays = {"a": np.array(a, name), "b": np.array(b, name)}
    for function, expected in BINARY.items():
        got = compute(f"w_{function}(a, b)", np.dtype(name).type, **arrays)
        want = [wrap(expected(x, y, name), name) for x, y in zip(a, b, strict=True)]
        both = zip(a, b, got.tolist(), want, strict=True)
        wrong = [(x, y, g, w) for x, y, g, w in both if g != w]
        assert not wrong, (function, wrong[:5])
    for function, expected in UNARY.items():
        got = compute(f"w_{function}(a)", np.dtype(name).type, a=arrays["a"])
        assert got.tolist() == [wrap(expected(x), name) for x in a], function


@pytest.mark.parametrize("name", TYPES)
def test_comparison(compute: Run, name: str) -> None:
    a, b = pairs(name)
    a, b = a + a[:50], b + a[:50]
    arrays = {"a": np.array(a, name), "b": np.array(b, name)}
    for function, expected in samples.COMPARISONS.items():
        got = compute(f"w_{function}(a, b)", np.bool_, **arrays)
        np.testing.assert_array_equal(got, expected(arrays["a"], arrays["b"]), err_msg=function)


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("name", TYPES)
def test_between_integers(compute: Run, name: str, to: str) -> None:
    """The low bits, sign-extended or zero-extended."""
    x = integers(name)
    function = {"int32": "int", "uint32": "uint", "int64": "i64", "uint64": "u64"}[to]
    got = compute(f"w_to_{function}(x)", np.dtype(to).type, x=np.array(x, name))
    assert got.tolist() == [wrap(v, to) for v in x]


@pytest.mark.parametrize("to", TYPES)
def test_from_float(compute: Run, to: str) -> None:
    """Towards zero and modulo 2^n; NaN and infinities give 0."""
    x = samples.floats(3000)
    function = {"int32": "int", "uint32": "uint", "int64": "i64", "uint64": "u64"}[to]
    got = compute(f"w_to_{function}(x)", np.dtype(to).type, x=x)
    assert got.tolist() == [wrap(int(v), to) if math.isfinite(v) else 0 for v in x.tolist()]


def _nearest(value: int, digits: int) -> Fraction:
    """value with this many significant binary digits, ties to even."""
    cut = max(abs(value).bit_length() - digits, 0)
    return round(Fraction(value, 1 << cut)) * Fraction(1 << cut)


@pytest.mark.parametrize("name", TYPES)
def test_to_float32(compute: Run, name: str) -> None:
    """The nearest float32, ties to even."""
    bits, _ = TYPES[name]
    ties = [(1 << k) + (1 << (k - 24)) + d for k in range(25, bits) for d in (-1, 0, 1)]
    ties += [(3 << k) + (1 << (k - 23)) + d for k in range(24, bits - 1) for d in (-1, 0, 1)]
    x = sorted({wrap(v, name) for v in integers(name) + ties + [-v for v in ties]})
    got = compute("w_to_float(x)", np.float32, x=np.array(x, name))
    assert [Fraction(v) for v in got.tolist()] == [_nearest(v, 24) for v in x]


@pytest.mark.parametrize("name", TYPES)
def test_to_float16(evaluate: Evaluate, name: str) -> None:
    """Rounded once, though it passes through float32; infinite from 65520 on."""
    x = sorted({wrap(v, name) for v in [*integers(name), *range(2040, 2060), *range(60000, 66000),
                                        *range(-65530, -65500), 2**24 + 2**12, 2**53 + 1]})
    for native in (True, False) if name.endswith("64") else (True,):
        got = evaluate("w_to_half_float(x)", np.float16, int64=native, x=np.array(x, name))
        want = [float(_nearest(v, 11)) for v in x]
        want = [math.copysign(math.inf, v) if abs(v) >= 65520 else v for v in want]
        assert got.tolist() == want


def test_eight_bits(evaluate: Evaluate) -> None:
    """Wraps; arithmetic on int8 and uint8 is complete, including division by zero."""
    every = np.arange(256, dtype=np.uint8)
    a, b = np.repeat(every, 256), np.tile(every, 256)
    for kind in (np.uint8, np.int8):
        x, y = a.view(kind), b.view(kind)
        for function in ("add", "sub", "mul", "div", "min", "max"):
            got = evaluate(f"w_{function}(x, y)", kind, x=x, y=y)
            want = [BINARY[function](p, q, "int32") & 255
                    for p, q in zip(x.tolist(), y.tolist(), strict=True)]
            assert got.view(np.uint8).tolist() == want, function
    wide = np.array([*range(-300, 300), 2**31 - 1, -(2**31)], np.int32)
    assert evaluate("w_wrap_int8(x)", np.int32, x=wide).tolist() == wide.astype(np.int8).tolist()
    assert evaluate("w_wrap_uint8(x)", np.uint32, x=wide).tolist() == wide.astype(np.uint8).tolist()


def test_logic(evaluate: Evaluate) -> None:
    """Any number except 0 is true."""
    a = np.repeat(np.array([0, 1, 2, 255], np.uint8), 4)
    b = np.tile(np.array([0, 1, 2, 255], np.uint8), 4)
    cases: dict[str, Any] = {
        "w_and(a, b)": np.logical_and(a, b), "w_or(a, b)": np.logical_or(a, b),
        "w_xor(a, b)": np.logical_xor(a, b), "w_not(a)": np.logical_not(a),
    }
    for expression, want in cases.items():
        np.testing.assert_array_equal(evaluate(expression, np.uint8, a=a, b=b), want)


@pytest.mark.parametrize("native", [True, False])
def test_shifts(evaluate: Evaluate, native: bool) -> None:
    n = np.tile(np.arange(64, dtype=np.int32), 4)
    for name in ("int64", "uint64"):
        values = [wrap(v, name) for v in (1, -1, 0x8123456789ABCDEF, 0x7123456789ABCDEF)]
        x = np.repeat(np.array(values, name), 64)
        for function, expected in (("shl", int.__lshift__), ("shr", int.__rshift__)):
            if (name, function) == ("int64", "shl"):
                continue
            got = evaluate(f"w_{function}(x, n)", np.dtype(name).type, int64=native, x=x, n=n)
            want = [wrap(expected(v, k), name) for v, k in zip(x.tolist(), n.tolist(), strict=True)]
            assert got.tolist() == want, (name, function)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ["float32", *TYPES])
def test_numbers_of_a_type(evaluate: Evaluate, name: str, native: bool) -> None:
    """`w_literal` and `w_from_bits` give numbers of their first argument's type."""
    x = np.zeros(3, name)
    kind = x.dtype.type
    for value in (0, 7, -1):
        want = np.array([value]).astype(kind).tolist() * 3
        assert evaluate(f"w_literal(x, {value})", kind, int64=native, x=x).tolist() == want
    bits = (0x89ABCDEF, 0x01234567)
    words = np.full(3, bits[0] | bits[1] << 32, np.uint64)
    want = words.view(kind) if name.endswith("64") else words.astype(np.uint32).view(kind)
    expression = f"w_from_bits(x, {bits[0]}u, {bits[1]}u)"
    assert evaluate(expression, kind, int64=native, x=x).tolist() == want.tolist()
