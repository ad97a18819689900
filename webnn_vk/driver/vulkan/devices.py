"""The machine's devices, and which one to use: a pure function of their profiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from webnn_vk.driver.device_profile import DeviceProfile, devices_named
from webnn_vk.driver.vulkan.errors import DeviceNotFound, DriversBroken

if TYPE_CHECKING:
    from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

_RANKS = {
    "default": ("discrete", "integrated", "virtual", "other"),
    "high-performance": ("discrete", "integrated", "virtual", "other"),
    "low-power": ("integrated", "discrete", "virtual", "other"),
}


def list_devices(meanwhile: Iterable[Callable[[], object]] = ()) -> list[PhysicalDevice]:
    """The Vulkan devices of this machine, unusable ones with the reason. A driver that can't be
    queried has one entry for its devices. ``meanwhile`` as for `instance.instance`.

    Raises VulkanUnavailable when there is no loader, no driver, or no binding.
    """
    from webnn_vk.driver.vulkan.instance import instance
    from webnn_vk.driver.vulkan.snapshot import broken_drivers, enumerate_devices

    try:
        return enumerate_devices(instance(meanwhile=meanwhile))
    except DriversBroken as error:
        if not error.broken:
            raise
        return broken_drivers(error.broken)


def choose_device(
    profiles: Sequence[DeviceProfile], *, power_preference: str = "default",
    accelerated: bool = True, override: str | None = None, asked: str = "",
    unusable: Sequence[str | None] = (),
) -> int | None:
    """The index of the device to use, or None for the NumPy CPU device.

    override (``Settings.device``) decides when given: an index, part of a name (case ignored),
    ``uuid:…``, ``pci:…``, ``vulkan`` for the best Vulkan device with software ones included, or
    ``cpu``. Otherwise the best GPU: a discrete before an integrated before a virtual one
    (``low-power``: an integrated one first), the larger memory first. A software device is only
    chosen by name, because the CPU device is faster. A power preference outranks `accelerated`;
    without one, accelerated=False gives None.

    asked: how the override was given, for messages ("WEBNN_VK_DEVICE='9'").
    unusable: per device why it can't be used, or None. Raises DeviceNotFound when the override
    names no usable device.
    """
    reasons = [*unusable, *[None] * (len(profiles) - len(unusable))]
    usable = [index for index, reason in enumerate(reasons) if reason is None]
    rank = _RANKS[power_preference]

    def order(index: int) -> tuple[int, int, int]:
        profile = profiles[index]
        place = rank.index(profile.device_type) if profile.device_type in rank else len(rank)
        return (place, -profile.local_heap_size, index)

    wanted = (override or "").strip()
    if wanted:
        asked = asked or f"device {wanted!r}"
        return _overridden(wanted, asked, profiles, reasons, sorted(usable, key=order))
    if not accelerated and power_preference == "default":
        return None
    gpus = [index for index in usable if not profiles[index].is_software]
    return min(gpus, key=order, default=None)


def _overridden(wanted: str, asked: str, profiles: Sequence[DeviceProfile],
                reasons: Sequence[str | None], ranked: Sequence[int]) -> int | None:
    if wanted.lower() == "cpu":
        return None
    # A device that is asked for by its UUID or address is to be found in the list.
    exact = next((kind for kind in ("uuid", "pci") if wanted.lower().startswith(f"{kind}:")), "")
    listing = ", ".join(
        f"{index}: {profile.name}" + (f" ({exact} {getattr(profile, exact)})" if exact else "")
        for index, profile in enumerate(profiles))
    if wanted.lower() == "vulkan":
        if ranked:
            return ranked[0]
        reason = "; ".join(reason for reason in reasons if reason)
        raise DeviceNotFound(f"{asked}: no usable Vulkan device"
                                + (f" ({listing}: {reason})" if reason else ""))
    try:
        matches = devices_named(wanted, profiles)
    except ValueError as error:
        raise DeviceNotFound(f"{asked}: {error}") from None
    if not matches:
        raise DeviceNotFound(f"{asked} matches no device; found: "
                                f"{listing or 'none'}; 'vulkan' and 'cpu' are accepted too")
    for index in matches:
        if reasons[index] is None:
            return index
    raise DeviceNotFound(f"{asked}: {profiles[matches[0]].name} can't be "
                            f"used: {reasons[matches[0]]}")
