"""The function library on the worst devices that Vulkan allows, emulated by NumPy."""

from __future__ import annotations

import functools
import itertools
import json

import numpy as np
import pytest

from tests.conformance.numerics import samples
from tests.conformance.numerics.glsl import Device, Library
from tests.conformance.wpt import suite
from tests.support.paths import SHARED

DEVICES = {
    "ieee": {},
    "flushing": {"flush": True},
    "up": {"rounding": "up", "division": 2.0, "flush": True},
    "down": {"rounding": "down", "division": -2.0, "flush": True},
    "cut": {"rounding": "zero", "division": "random", "flush": True, "contract": True},
    "random": {"rounding": "random", "division": "random", "contract": True},
    "random flushing": {"rounding": "random", "division": "random", "flush": True, "seed": 5},
    "contracting": {"division": "random", "contract": True},
}
ON_DEVICES = pytest.mark.parametrize("device", DEVICES)
TOLERANCES = SHARED / "wpt" / "tolerances.json"


@functools.cache
def floats() -> np.ndarray:
    return samples.floats()


@functools.cache
def exact(name: str) -> np.ndarray:
    arguments = (floats(),) if name in samples.UNARY else samples.float_pairs()
    return samples.reference(name, *arguments)


@pytest.fixture(scope="module")
def library() -> Library:
    return samples.library()


@ON_DEVICES
@pytest.mark.parametrize("name", samples.BOUNDS)
def test_bound(library: Library, name: str, device: str) -> None:
    """Within the bound for every sample, including special values and denormals, however the device
    rounds, flushes and contracts, and whatever it does with NaN and infinities."""
    library.device = Device(**DEVICES[device])
    arguments = (floats(),) if name in samples.UNARY else samples.float_pairs()
    got = library.call(f"w_{name}", *(("float", x) for x in arguments))[1]
    distance, where = samples.worst(got, exact(name), *arguments)
    assert distance <= samples.BOUNDS[name], where


@ON_DEVICES
@pytest.mark.parametrize("name", [*samples.NOT_NEAREST, "div"])
def test_short_forms(library: Library, name: str, device: str) -> None:
    """Results that become float16 are the nearest but for a few, which are the next; quotients all
    are."""
    library.device = Device(**DEVICES[device])
    arguments = samples.half_pairs() if name == "div" else (samples.halves(),)
    given = (("float", x.astype(np.float32)) for x in arguments)
    with np.errstate(over="ignore"):
        got = library.call(f"w_half_{name}", *given)[1].astype(np.float16)
    distance = samples.ulps(got, samples.reference(name, *arguments))
    most = 0 if name == "div" else samples.MOST_NOT_NEAREST
    assert distance.max() <= 1 and np.count_nonzero(distance) <= most
    if device == "ieee" and name != "div":
        assert np.count_nonzero(distance) == samples.NOT_NEAREST[name]


@ON_DEVICES
def test_erf(library: Library, device: str) -> None:
    library.device = Device(**DEVICES[device])
    got = library.call("w_erf", ("float", floats()))[1]
    want = exact("erf")
    assert np.array_equal(np.isnan(got), np.isnan(want))
    assert np.nanmax(np.abs(got - want)) <= 1e-6
    assert np.nanmax(np.abs(got)) <= 1


@ON_DEVICES
@pytest.mark.parametrize("name", samples.COMPARISONS)
def test_comparison(library: Library, name: str, device: str) -> None:
    """Exact for denormals too, on devices that flush them."""
    library.device = Device(**DEVICES[device])
    a, b = samples.float_pairs()
    got = library.call(f"w_{name}", ("float", a), ("float", b))[1]
    np.testing.assert_array_equal(got, samples.COMPARISONS[name](a, b))


@ON_DEVICES
def test_classification(library: Library, device: str) -> None:
    library.device = Device(**DEVICES[device])
    x = floats()
    np.testing.assert_array_equal(library.call("w_is_nan", ("float", x))[1], np.isnan(x))
    np.testing.assert_array_equal(library.call("w_is_inf", ("float", x))[1], np.isinf(x))


@ON_DEVICES
def test_relu(library: Library, device: str) -> None:
    """Results are equal to the bit, denormals and NaN of both signs included."""
    library.device = Device(**DEVICES[device])
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0xFFFFFFFF], np.uint32)
    x = np.concatenate([floats(), nans.view(np.float32)])
    want = np.where(np.isnan(x) | (x > 0), x, np.float32(0))
    got = library.call("w_relu", ("float", x))[1]
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@ON_DEVICES
def test_clamp(library: Library, device: str) -> None:
    """`w_clamp` gives the same bits as `w_min` of `w_max`."""
    library.device = Device(**DEVICES[device])
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0xFFFFFFFF], np.uint32)
    x = np.concatenate([floats(), nans.view(np.float32)])
    limits = (-np.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 6.0, np.inf)
    for low, high in itertools.combinations_with_replacement(limits, 2):
        low, high = (np.full_like(x, limit) for limit in (low, high))
        larger = library.call("w_max", ("float", x), ("float", low))[1]
        want = library.call("w_min", ("float", larger), ("float", high))[1]
        got = library.call("w_clamp", ("float", x), ("float", low), ("float", high))[1]
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def test_signed_zeros(library: Library) -> None:
    """The sign of zero results, which the distance in ULP ignores."""
    zeros = np.array([0.0, -0.0, -0.25, 0.25], np.float32)
    for name in ("floor", "ceil", "round_even", "neg", "abs", "sign", "sqrt", "sin", "tan", "tanh"):
        got = library.call(f"w_{name}", ("float", zeros))[1]
        with np.errstate(invalid="ignore"):
            want = samples.UNARY[name](zeros)
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known], err_msg=name)
    a, b = np.array([0.0, -0.0, 0.0], np.float32), np.array([-0.0, 0.0, 0.0], np.float32)
    smaller = library.call("w_min", ("float", a), ("float", b))[1]
    larger = library.call("w_max", ("float", a), ("float", b))[1]
    assert np.signbit(smaller).tolist() == [True, True, False]
    assert np.signbit(larger).tolist() == [False, False, False]


def test_bounds_within_web_platform_tests() -> None:
    """Our bounds are below the tolerances of the suite."""
    if not TOLERANCES.is_file():
        pytest.skip(suite.ABSENT)
    table = json.loads(TOLERANCES.read_text())
    allowed = {**table["fixedULP"], **table["perFileULP"]}
    compared = 0
    for name, bound in samples.BOUNDS.items():
        name = {"round_even": "roundEven", "expm1": "elu"}.get(name, name)
        if name in table["zeroULP"]:
            assert bound == 0
            compared += 1
        elif name in allowed:
            assert bound <= allowed[name]["float32"]
            compared += 1
    # sin, cos and tan have absolute tolerances, and an inverse root is not an operator.
    assert compared == len(samples.BOUNDS) - 4
