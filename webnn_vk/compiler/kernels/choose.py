"""The order of the candidates for a problem. Tuned schedules outrank the others; the constraints of
a class of devices (`heuristics/`) leave candidates out; the cost model compares those that are
left. Candidates are compared nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from ..types.sizes import preferring
from .cost import compiling, estimate, registers
from .dispatch import Unsupported
from .heuristics import Constraint, device_class, rules_for
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
    """All candidates, the best first: the tuned one if it is still a candidate, else the cheapest
    by the cost model of those within the constraints, the price of compiling included; then those
    that fit the registers before the others, the fastest first, then those that the model doesn't
    know. Of equal ones, the first candidate is better. Unsupported without candidates. The order is
    the same for equal arguments."""
    if not candidates:
        raise Unsupported(f"no {family} kernel of this device computes {problem}")

    def key(schedule: Schedule) -> tuple[bool, bool, float]:
        cost = modelled(problem, schedule, profile)
        return schedule not in fit, cost is None, cost or 0.0

    def price(schedule: Schedule) -> tuple[bool, bool, float]:
        spills, unknown, cost = key(schedule)
        return spills, unknown, cost + compiling(problem, schedule, device_class(profile).cost)

    with preferring():
        first = tuned.get((family, problem_class(problem))) if tuned else None
        fit = fitting(candidates, problem, profile)
        if first not in candidates:
            first = min(narrowed(family, fit, problem, profile), key=price)
    yield first
    with preferring():
        others = sorted((s for s in candidates if s != first), key=key)
    yield from others


def narrowed(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> Sequence[Schedule]:
    """The candidates within the constraints of this class of devices."""
    rules = rules_for(profile)
    candidates = _within(candidates, rules.loads)
    if len(candidates) > 1:
        for constraint in getattr(rules, family)(candidates, problem):
            candidates = _within(candidates, constraint)
            if len(candidates) == 1:
                break
    return candidates


def _within(candidates: Sequence[Schedule], constraint: Constraint) -> Sequence[Schedule]:
    ranks = [*map(constraint.rank, candidates)]
    least = min(ranks)
    return [c for c, rank in zip(candidates, ranks, strict=True) if rank == least]


def modelled(problem: Any, schedule: Schedule, profile: DeviceProfile) -> float | None:
    """The time of a schedule by the cost model; None for a kernel that it doesn't know."""
    return estimate(problem, schedule, device_class(profile).cost)
