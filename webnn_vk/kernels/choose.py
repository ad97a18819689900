"""The choice of a schedule among a family's candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..device_profile import DeviceProfile
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
