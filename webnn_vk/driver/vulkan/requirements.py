"""The requirements on a Vulkan device: a pure function of its profile."""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile

NEEDED_API = (1, 2)


def why_unusable(profile: DeviceProfile, queue_family: int) -> str | None:
    """Why a device can't be used, or None; ``queue_family`` is the family to use, -1: none."""
    if profile.api_version[:2] < NEEDED_API:
        return (f"driver too old: Vulkan {profile.api_version[0]}.{profile.api_version[1]}, "
                f"{NEEDED_API[0]}.{NEEDED_API[1]} is needed")
    if "timeline_semaphore" not in profile.features:
        return "the driver has no timeline semaphores"
    if queue_family < 0:
        return "the device has no compute queue"
    # Null devices (RADV_FORCE_FAMILY) and drivers without their hardware report no memory.
    if not any(size for size, _ in profile.memory_heaps):
        return "the device reports no memory heaps"
    usable = [names for heap, names in profile.memory_types if profile.memory_heaps[heap][0]]
    if not any("host_visible" in names for names in usable):
        return "the device has no memory that the host can write to"
    return None
