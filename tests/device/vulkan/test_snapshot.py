from pathlib import Path

import pytest

from webnn_vk.device_profile import DeviceProfile
from webnn_vk.vulkan.snapshot import (
    PhysicalDevice,
    choose_queue_family,
    enumerate_devices,
    why_unusable,
)

PROFILES = Path(__file__).parents[1] / "profiles"
GRAPHICS, COMPUTE, TRANSFER = 1, 2, 4


def test_snapshot_is_plain_and_sane(physical: PhysicalDevice) -> None:
    profile = physical.profile
    assert type(profile).from_json(profile.to_json()) == profile
    assert "timeline_semaphore" in profile.features
    assert physical.unusable is None
    # The floors that Vulkan guarantees
    assert profile.api_version >= (1, 2)
    assert profile.max_storage_buffer_range >= 2**27
    assert profile.max_push_constants_size >= 128
    assert profile.max_workgroup_invocations >= 128
    assert profile.max_shared_memory >= 16384
    assert profile.max_memory_allocation_size >= 2**30
    assert 0 < profile.min_storage_buffer_offset_alignment <= 256
    assert any(local for _, local in profile.memory_heaps)
    assert any("host_visible" in names for _, names in profile.memory_types)
    assert all(heap < len(profile.memory_heaps) for heap, _ in profile.memory_types)


def test_snapshots_agree(physical: PhysicalDevice) -> None:
    again = enumerate_devices()[physical.index]
    assert again.profile == physical.profile


def test_queue_family() -> None:
    assert choose_queue_family([(TRANSFER, 2), (COMPUTE, 8), (GRAPHICS | COMPUTE, 16)]) == 2
    assert choose_queue_family([(GRAPHICS, 1), (COMPUTE, 8)]) == 1
    assert choose_queue_family([(COMPUTE, 0), (TRANSFER, 1)]) == -1
    assert choose_queue_family([]) == -1


@pytest.mark.parametrize(("changes", "family", "reason"), [
    ({}, 0, None),
    ({}, -1, "the device has no compute queue"),
    ({"api_version": (1, 1, 9)}, 0, "driver too old: Vulkan 1.1, 1.2 is needed"),
    ({"features": frozenset()}, 0, "the driver has no timeline semaphores"),
    ({"memory_heaps": (), "memory_types": ()}, 0, "the device reports no memory heaps"),
    ({"memory_heaps": ((0, True),), "memory_types": ((0, ("host_visible",)),)}, 0,
     "the device reports no memory heaps"),
    ({"memory_heaps": ((2**30, True),), "memory_types": ()}, 0,
     "the device has no memory that the host can write to"),
    ({"memory_heaps": ((2**30, True), (0, False)),
      "memory_types": ((0, ("device_local",)), (1, ("host_visible", "host_coherent")))}, 0,
     "the device has no memory that the host can write to"),
])
def test_why_unusable(changes: dict, family: int, reason: str | None) -> None:
    profile = DeviceProfile.from_json((PROFILES / "amd_rdna3.json").read_text())
    assert why_unusable(profile.replace(**changes), family) == reason
