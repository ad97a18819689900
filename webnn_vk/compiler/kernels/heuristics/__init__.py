"""Which schedule to prefer on which kind of device: pure functions over profile and problem.

A class of rules for GPUs and one for software devices. Its methods are named after the kernel
families; each gets the legal candidates and returns one. What they know about a kind of device is a
record in ``seeds``. The cost model puts the other candidates in order, for the tuner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from ..cost import estimate
from ..schedule import Schedule
from .gpu import Gpu
from .rules import Rules
from .seeds import SEEDS, GpuSeed, seed_name
from .software import Software

_RULES: dict[str, Rules] = {
    name: Gpu(seed) if isinstance(seed, GpuSeed) else Software(seed)
    for name, seed in SEEDS.items()
}


def rules(profile: DeviceProfile) -> Rules:
    """The rules for a device."""
    return _RULES[seed_name(profile)]


def rank(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> Schedule:
    """The candidate that the rules for the device prefer."""
    return getattr(rules(profile), family)(candidates, problem, profile)


def modelled(problem: Any, schedule: Schedule, profile: DeviceProfile) -> float | None:
    """The cost model's time for a schedule on a device, None for a kernel that it doesn't know."""
    return estimate(problem, schedule, rules(profile).seed.figures)
