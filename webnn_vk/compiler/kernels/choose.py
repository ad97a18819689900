"""The choice of a schedule among candidates: tuned schedules outrank the rules for a class of
devices, and the cost model puts the other candidates in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from .cost import estimate
from .dispatch import Unsupported
from .heuristics import DEVICE_CLASSES, Gpu, GpuClass, Rules, Software, device_class
from .schedule import NOTHING_TUNED, Schedule, Tuned, problem_class

_RULES: dict[str, Rules] = {
    name: Gpu(device) if isinstance(device, GpuClass) else Software(device)
    for name, device in DEVICE_CLASSES.items()
}


def choose(
    family: str,
    candidates: Sequence[Schedule],
    problem: Any,
    profile: DeviceProfile,
    tuned: Tuned = NOTHING_TUNED,
) -> Schedule:
    """The schedule for a problem: the tuned one if it is still a candidate, else the one that the
    rules for this class of devices prefer. Unsupported without candidates."""
    if not candidates:
        raise Unsupported(f"no {family} kernel of this device computes {problem}")
    measured = tuned.get((family, problem_class(problem))) if tuned else None
    if measured in candidates:
        return measured
    if len(candidates) == 1:
        return candidates[0]
    rules = _RULES[device_class(profile).name]
    chosen: Schedule = getattr(rules, family)(candidates, problem, profile)
    return chosen


def ranked(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> list[Schedule]:
    """All candidates in the order in which a tuner should try them: first the choice of the rules,
    then by the cost model, the cheapest first, then those that the model doesn't know. Unsupported
    without candidates. The order is the same for equal arguments."""
    first = choose(family, candidates, problem, profile)

    def key(entry: tuple[int, Schedule]) -> tuple[bool, bool, float, int]:
        place, schedule = entry
        cost = modelled(problem, schedule, profile)
        return schedule != first, cost is None, cost or 0.0, place

    return [schedule for _, schedule in sorted(enumerate(candidates), key=key)]


def preferred(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile, tuned: Tuned
) -> Iterator[Schedule]:
    """All candidates, the best first: the choice, then the others as ``ranked`` orders them."""
    chosen = choose(family, candidates, problem, profile, tuned)
    yield chosen
    yield from (s for s in ranked(family, candidates, problem, profile) if s != chosen)


def modelled(problem: Any, schedule: Schedule, profile: DeviceProfile) -> float | None:
    """The time of a schedule by the cost model; None for a kernel that it doesn't know."""
    return estimate(problem, schedule, device_class(profile).cost)
