"""How a problem is computed: the kernel and its tile sizes, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Schedule:
    """A way to compute a problem: ``kernel`` names the template or variant, ``numbers`` its tile
    sizes and the like. Plain data, so that a table can hold it."""

    kernel: str
    numbers: tuple[tuple[str, int], ...] = ()

    def __getitem__(self, name: str) -> int:
        for key, value in self.numbers:
            if key == name:
                return value
        raise KeyError(f"schedule {self} has no {name}")

    def constants(self, *names: str) -> dict[str, int]:
        """The numbers of these names: specialisation constants."""
        return {name: self[name] for name in names}

    def __str__(self) -> str:
        return " ".join([self.kernel, *(f"{key}={value}" for key, value in self.numbers)])


@dataclass(frozen=True)
class Tuned:
    """Schedules that measurements chose: (family, problem class) → schedule, for one device."""

    schedules: Mapping[tuple[str, str], Schedule] = field(default_factory=dict)

    def get(self, family: str, problem: Any) -> Schedule | None:
        return self.schedules.get((family, problem_class(problem)))


NOTHING_TUNED = Tuned()


def problem_class(problem: Any) -> str:
    """The text under which a tuned schedule is kept: problems of one class behave alike."""
    return repr(problem)
