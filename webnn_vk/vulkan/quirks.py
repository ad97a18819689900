"""Known driver bugs and peculiarities: named entries with the drivers they hold for, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from webnn_vk.profile import DeviceProfile

COMPILES_AT_FIRST_SUBMIT = "compiles_at_first_submit"
OVERCOMMITS_MEMORY = "overcommits_memory"


@dataclass(frozen=True)
class Quirk:
    """One entry. It holds for drivers of `driver` (VkPhysicalDeviceDriverProperties::driverName)
    from version `first` up to, excluding, `fixed`; an empty version is no bound."""

    name: str
    driver: str
    reason: str
    first: str = ""
    fixed: str = ""

    def holds(self, profile: DeviceProfile) -> bool:
        """Whether a device's driver has it."""
        version = _parts(profile.driver_version)
        return (profile.driver_name == self.driver and version >= _parts(self.first)
                and (not self.fixed or version < _parts(self.fixed)))


QUIRKS = (
    Quirk(COMPILES_AT_FIRST_SUBMIT, "llvmpipe",
          "compute shaders are compiled when the queue first runs them, not at pipeline creation "
          "(measured with Mesa 22.3: 30 element-wise pipelines take 12 ms to create and 290 ms in "
          "the first submit; empty dispatches suffice)"),
    Quirk(OVERCOMMITS_MEMORY, "llvmpipe",
          "40 allocations of 512 MiB succeed on a heap that reports 2 GiB (measured with Mesa "
          "22.3); memory.py counts and refuses"),
)


def quirks_of(profile: DeviceProfile) -> frozenset[str]:
    """The names of the quirks of a device."""
    return frozenset(quirk.name for quirk in QUIRKS if quirk.holds(profile))


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
