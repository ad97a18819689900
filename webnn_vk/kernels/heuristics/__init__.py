"""Which schedule to prefer on which kind of device: pure functions over profile and problem.

A class per kind of device, in a file of its own. Its methods are named after the kernel families;
each gets the legal candidates and returns one. Every threshold there says where it comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...device_profile import DeviceProfile
from ..schedule import Schedule
from .adreno import Adreno
from .amd import Amd
from .gpu import Gpu
from .intel import Intel
from .nvidia import Nvidia
from .rules import Rules
from .software import Software

_VENDORS = {0x10DE: Nvidia(), 0x1002: Amd(), 0x8086: Intel(), 0x5143: Adreno()}
_SOFTWARE = Software()
_ANY_GPU = Gpu()


def rules(profile: DeviceProfile) -> Rules:
    """The rules for a device."""
    if profile.device_type == "cpu":
        return _SOFTWARE
    return _VENDORS.get(profile.vendor_id, _ANY_GPU)


def rank(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> Schedule:
    """The candidate that the rules for the device prefer."""
    return getattr(rules(profile), family)(candidates, problem, profile)
