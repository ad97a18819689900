"""The choice of a schedule among a family's candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile

from . import heuristics
from .dispatch import Unsupported
from .schedule import NOTHING_TUNED, Schedule, Tuned, problem_class


def choose(
    family: str,
    candidates: Sequence[Schedule],
    problem: Any,
    profile: DeviceProfile,
    tuned: Tuned = NOTHING_TUNED,
) -> Schedule:
    """The schedule for a problem: what was tuned, if it is still a candidate, else what the
    heuristics for this kind of device say. Unsupported without candidates."""
    if not candidates:
        raise Unsupported(f"no {family} kernel of this device computes {problem}")
    measured = tuned.get((family, problem_class(problem))) if tuned else None
    if measured in candidates:
        return measured
    if len(candidates) == 1:
        return candidates[0]
    return heuristics.rank(family, candidates, problem, profile)


def ranked(
    family: str, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
) -> list[Schedule]:
    """All candidates in the order in which a tuner should try them: what the heuristics choose,
    then by the cost model, the cheapest first, then those that the model doesn't know. Unsupported
    without candidates. The order is the same for equal arguments."""
    first = choose(family, candidates, problem, profile)

    def key(entry: tuple[int, Schedule]) -> tuple[bool, bool, float, int]:
        place, schedule = entry
        cost = modelled(problem, schedule, profile)
        return schedule != first, cost is None, cost or 0.0, place

    return [schedule for _, schedule in sorted(enumerate(candidates), key=key)]


def modelled(problem: Any, schedule: Schedule, profile: DeviceProfile) -> float | None:
    """The time of a schedule by the cost model; None for a kernel that it doesn't know."""
    return heuristics.modelled(problem, schedule, profile)
