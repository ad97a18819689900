"""Submits are bounded in time, by the rate of the kind of device."""

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.device_profile import DEVICE_TYPES
from webnn_vk.runtime.pace import BATCH_SECONDS, RATES, batch_flops


def test_every_type_of_device_has_a_rate():
    assert set(RATES) == set(DEVICE_TYPES)
    # Software below integrated below discrete.
    assert RATES["cpu"] < RATES["integrated"] < RATES["discrete"]


@pytest.mark.parametrize(("name", "flops"), [
    ("llvmpipe", 4_000_000_000),
    ("intel_arc", 400_000_000_000),
    ("adreno_minimum", 40_000_000_000),
    ("nvidia_h200", 400_000_000_000),
])
def test_bounds(name, flops):
    profile = stored_profile(name)
    assert batch_flops(profile) == flops == int(RATES[profile.device_type] * BATCH_SECONDS)


def test_the_cpu_device():
    assert batch_flops(None) == 4_000_000_000
