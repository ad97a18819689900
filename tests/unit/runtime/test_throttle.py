"""Submits are bounded in time: by measurements, and before that by the kind of device."""

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver.device_profile import DEVICE_TYPES
from webnn_vk.runtime.throttle import RATES, UNKNOWN_SECONDS, Cost, Duration, Span, throttle_of


def test_every_type_of_device_has_a_rate():
    assert set(RATES) == set(DEVICE_TYPES)
    # Software below integrated below discrete.
    assert RATES["cpu"] < RATES["integrated"] < RATES["discrete"]


@pytest.mark.parametrize(("name", "rate"), [
    ("llvmpipe", 20e9),
    ("intel_dg2", 2e12),
    ("adreno_minimum", 200e9),
    ("nvidia_ampere", 2e12),
    (None, 20e9),
])
def test_before_anything_was_measured(name, rate):
    throttle = throttle_of(name and stored_profile(name))
    assert throttle.seconds(Cost(rate)) == pytest.approx(1 + UNKNOWN_SECONDS)
    # A job without operations takes time nevertheless.
    assert throttle.seconds(Cost(0)) == UNKNOWN_SECONDS


def test_what_was_measured_counts():
    throttle, cost = throttle_of(None), Cost(4e9)
    throttle.learn({cost: 4}, Duration(10))
    assert throttle.seconds(cost) == pytest.approx(2.5)
    assert throttle.total({cost: 3}) == pytest.approx(7.5)
    # Half of the difference each time: another process may have used the device.
    throttle.learn({cost: 1}, Duration(0.5))
    assert throttle.seconds(cost) == pytest.approx(1.5)
    for _ in range(10):
        throttle.learn({cost: 2}, Duration(1))
    assert throttle.seconds(cost) == pytest.approx(0.5, rel=0.01)


def test_a_mixed_batch_shares_its_time_by_what_was_known():
    throttle, one, two = throttle_of(None), Cost(), Cost()
    throttle.learn({one: 1}, Duration(1))
    throttle.learn({two: 1}, Duration(3))
    throttle.learn({one: 1, two: 1}, Duration(8))
    assert (throttle.seconds(one), throttle.seconds(two)) == pytest.approx((1.5, 4.5))


def test_a_time_that_is_a_bound_only_lowers():
    throttle, cost = throttle_of(None), Cost()
    throttle.learn({cost: 1}, Duration(1))
    throttle.learn({cost: 1}, Duration(5, at_most=True))
    assert throttle.seconds(cost) == pytest.approx(1)
    throttle.learn({cost: 1}, Duration(0.5, at_most=True))
    assert throttle.seconds(cost) == pytest.approx(0.75)


def test_graphs_that_never_ran_are_estimated_by_those_that_did():
    throttle = throttle_of(None)
    for _ in range(50):
        throttle.learn({Cost(1e9): 1}, Duration(1))  # a twentieth of the rate of its kind
    assert throttle.seconds(Cost(1e9)) == pytest.approx(1 + UNKNOWN_SECONDS, rel=0.05)


def test_nothing_divides_by_zero():
    throttle, cost = throttle_of(None), Cost()
    for seconds in (0, 0, 1, 0):
        throttle.learn({cost: 1}, Duration(seconds))
        throttle.learn({Cost(): 1}, Duration(seconds))
    for _ in range(1000):
        throttle.learn({cost: 1}, Duration(1))
    assert 0 < throttle.seconds(cost) < 2 and throttle.seconds(Cost(1)) < 1e6


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances when the test says so."""
    now = [100.0]
    monkeypatch.setattr("webnn_vk.runtime.throttle.time.monotonic", lambda: now[0])

    def go_on(seconds):
        now[0] += seconds

    return go_on


def test_batches_behind_each_other_are_timed_one_by_one(clock):
    first, second = Span(), Span()
    clock(2)
    first.wait(lambda: clock(3), None)
    second.wait(lambda: clock(4), first)
    assert (first.duration, second.duration) == ((5, False), (4, False))


def test_one_that_was_over_before_anyone_looked(clock):
    span = Span()
    clock(7)
    span.wait(lambda: None, None)
    assert span.duration == (7, True)


def test_one_that_is_over_when_it_was_started(clock):
    span = Span()
    clock(1)
    span.end()
    clock(5)
    span.wait(lambda: clock(1), None)
    assert span.duration == (1, False)
