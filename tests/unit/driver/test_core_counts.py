"""Cores of GPUs whose drivers don't say how many they have."""

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver.core_counts import known_cores


@pytest.mark.parametrize(("profile", "cores"), [
    ("intel_dg2", 32), ("qualcomm_adreno750", 6), ("apple_m1", 8),
    ("adreno_minimum", 0), ("amd_navi31", 0), ("arm_mali_g610", 0), ("llvmpipe", 0),
])
def test_cores_of_stored_devices(profile: str, cores: int) -> None:
    device = stored_profile(profile)
    assert known_cores(device.vendor_id, device.device_id, device.name) == cores


@pytest.mark.parametrize(("name", "cores"), [
    ("Apple M2 Max", 38), ("Apple M2", 10), ("Apple M9", 0), ("Adreno (TM) 630", 2),
    ("Adreno (TM) X1-85", 6), ("Apple M1 Max (G13C C0)", 32), ("Some GPU", 0),
])
def test_cores_by_name(name: str, cores: int) -> None:
    assert known_cores(0, 0, name) == cores


def test_intel_s_numbers_are_of_intel_alone() -> None:
    assert known_cores(0x8086, 0xE20B, "") == 20
    assert known_cores(0x10DE, 0xE20B, "") == known_cores(0x8086, 1, "") == 0
