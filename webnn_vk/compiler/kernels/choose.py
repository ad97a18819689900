"""The order of the candidates for a problem: tuned schedules outrank the rules for a class of
devices, and the cost model puts the other candidates in order. Only here are candidates compared;
the rules (`heuristics/`) name reasons to prefer some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.sizes import preferring
from .cost import estimate, registers
from .dispatch import Unsupported
from .heuristics import Preference, device_class, rules_for
from .schedule import NOTHING_TUNED, Schedule, Tuned, problem_class


def fitting(
    candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> list[Schedule]:
    """The candidates whose values fit the registers of this class of devices, in their order; those
    that need fewest where none do."""
    needed = [_registers(c, problem, profile) for c in candidates]
    most = max(device_class(profile).max_registers, min(needed, default=0))
    return [c for c, count in zip(candidates, needed, strict=True) if count <= most]


def _registers(schedule: Schedule, problem: Any, profile: DeviceProfile) -> int:
    """The registers that an invocation's values take. Compilers spill what doesn't fit to memory,
    and some take a minute for it (`bench chips`); many registers leave room for few subgroups."""
    lanes = dict(schedule.numbers).get("SUBGROUP", 0)
    if schedule.kernel == "subgroups" and schedule["lanes"] <= profile.max_subgroup_size:
        lanes = schedule["lanes"]
    return device_class(profile).share(lanes, profile) * registers(problem, schedule)


def ranked(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile,
    tuned: Tuned = NOTHING_TUNED,
) -> Iterator[Schedule]:
    """All candidates, the best first: the tuned one if it is still a candidate, else the one that
    the rules for this class of devices prefer; then those that fit the registers before the others,
    each by the cost model, the cheapest first, then those that the model doesn't know. Unsupported
    without candidates. The order is the same for equal arguments."""
    if not candidates:
        raise Unsupported(f"no {family} kernel of this device computes {problem}")
    with preferring():
        first = tuned.get((family, problem_class(problem))) if tuned else None
        fit = fitting(candidates, problem, profile)
        if first not in candidates:
            only = len(candidates) == 1
            rule = () if only else getattr(rules_for(profile), family)(fit, problem)
            first = preferred(fit, rule)
    yield first

    def key(schedule: Schedule) -> tuple[bool, bool, float]:
        cost = modelled(problem, schedule, profile)
        return schedule not in fit, cost is None, cost or 0.0

    with preferring():
        others = sorted((s for s in candidates if s != first), key=key)
    yield from others


def preferred(candidates: Sequence[Schedule], preferences: Iterable[Preference]) -> Schedule:
    """The candidate with the least costs in the order of the preferences, the first of equal ones.
    """
    for preference in preferences:
        if len(candidates) == 1:
            break
        costs = [preference.cost(c) if preference.among(c) else None for c in candidates]
        least = min((cost for cost in costs if cost is not None), default=None)
        candidates = [
            c for c, cost in zip(candidates, costs, strict=True) if cost is None or cost == least
        ]
    return candidates[0]


def modelled(problem: Any, schedule: Schedule, profile: DeviceProfile) -> float | None:
    """The time of a schedule by the cost model; None for a kernel that it doesn't know."""
    return estimate(problem, schedule, device_class(profile).cost)
