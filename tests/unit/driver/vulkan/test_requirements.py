import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver.vulkan.requirements import why_unusable


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
    assert why_unusable(stored_profile("amd_navi31").replace(**changes), family) == reason
