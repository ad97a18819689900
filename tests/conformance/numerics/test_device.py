"""The function library on this machine's Vulkan device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.numerics import samples
from tests.conformance.numerics.conftest import Evaluate


@pytest.mark.parametrize("name", samples.UNARY)
def test_float32(evaluate: Evaluate, name: str) -> None:
    x = samples.floats(40000)
    got = evaluate(f"w_{name}(x)", np.float32, x=x)
    exact = samples.reference(name, x)
    distance, where = samples.worst(got, exact, x)
    if name == "erf":
        assert np.nanmax(np.abs(got - exact)) <= 1e-6
        assert np.array_equal(np.isnan(got), np.isnan(exact))
        return
    assert distance <= samples.BOUNDS[name], where


@pytest.mark.parametrize("name", samples.UNARY)
def test_every_float16(evaluate: Evaluate, name: str) -> None:
    """At most one float away from the rounded result, for all 65,536 values."""
    x = samples.halves()
    got = evaluate(f"w_{name}(x)", np.float16, x=x)
    distance, where = samples.worst(got, samples.reference(name, x), x)
    assert distance <= min(1, samples.BOUNDS.get(name, 1)), where


@pytest.mark.parametrize("name", samples.NOT_NEAREST)
def test_short_forms_of_every_float16(evaluate: Evaluate, name: str) -> None:
    """For results that are float16: zeros have the signs that the forms for float32 give."""
    x = samples.halves()
    got = evaluate(f"w_half_{name}(x)", np.float16, x=x)
    distance = samples.ulps(got, samples.reference(name, x))
    assert distance.max() <= 1 and np.count_nonzero(distance) <= samples.MOST_NOT_NEAREST
    long = evaluate(f"w_{name}(x)", np.float16, x=x)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(long)[got == 0])


def test_products_with_a_short_sigmoid(evaluate: Evaluate) -> None:
    """A sigmoid that isn't rounded by itself vanishes in the product with the largest float16, and
    is 0 for that with an infinity."""
    x = samples.halves()
    got = evaluate("w_mul(x, w_half_sigmoid(x))", np.float16, x=x)
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64) * samples.reference("sigmoid", x)
    distance, where = samples.worst(got, exact, x)
    assert distance <= 1, where


def test_every_quotient_of_float16_is_the_nearest(evaluate: Evaluate) -> None:
    a, b = samples.half_pairs()
    got = evaluate("w_half_div(a, b)", np.float16, a=a, b=b)
    exact = samples.reference("div", a, b)
    distance, where = samples.worst(got, exact, a, b)
    assert distance == 0, where
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(exact)[got == 0])


@pytest.mark.parametrize("name", samples.BINARY)
def test_float32_pairs(evaluate: Evaluate, name: str) -> None:
    a, b = samples.float_pairs(20000)
    got = evaluate(f"w_{name}(a, b)", np.float32, a=a, b=b)
    distance, where = samples.worst(got, samples.reference(name, a, b), a, b)
    assert distance <= samples.BOUNDS[name], where


@pytest.mark.parametrize("name", samples.COMPARISONS)
def test_comparison(evaluate: Evaluate, name: str) -> None:
    a, b = samples.float_pairs()
    got = evaluate(f"w_bool(w_{name}(a, b))", np.uint8, a=a, b=b)
    np.testing.assert_array_equal(got, samples.COMPARISONS[name](a, b))


def test_classification(evaluate: Evaluate) -> None:
    for x in (samples.floats(), samples.halves()):
        np.testing.assert_array_equal(evaluate("w_bool(w_is_nan(x))", np.uint8, x=x), np.isnan(x))
        np.testing.assert_array_equal(evaluate("w_bool(w_is_inf(x))", np.uint8, x=x), np.isinf(x))


def test_same_as_emulation(evaluate: Evaluate) -> None:
    """The interpreter computes the same as a device: equal bits where the specification leaves no
    choice."""
    library = samples.library()
    x = samples.floats()
    for name in ("sqrt", "reciprocal", "floor", "ceil", "round_even", "abs", "neg", "sign"):
        want = library.call(f"w_{name}", ("float", x))[1]
        got = evaluate(f"w_{name}(x)", np.float32, x=x)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(got.view(np.uint32)[number], want.view(np.uint32)[number])
