"""The measurements at each size, and the jumps of the time: pure functions over plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: A size is a cliff where a multiply-add takes this many times as long as at the next smaller size.
CLIFF = 1.5


@dataclass(frozen=True)
class Point:
    """One size of a sweep. ``clock`` and ``processor`` are seconds of a run (medians), by the clock
    and of the process on all its threads; ``build`` seconds of the build by the clock; ``peak`` the
    most megabytes that the process had; ``on_host`` the steps that ran on the CPU instead of the
    device. ``failure``: why there are no figures."""

    size: int
    multiply_adds: int
    clock: float = 0.0
    processor: float = 0.0
    build: float = 0.0
    peak: float = 0.0
    on_host: int = 0
    failure: str = ""

    def time(self, by: str) -> float:
        """Seconds of a run, ``by`` clock or processor."""
        return self.clock if by == "clock" else self.processor

    def each(self, by: str) -> float:
        """Seconds per multiply-add."""
        return self.time(by) / self.multiply_adds


@dataclass(frozen=True)
class Cliff:
    """A multiply-add takes ``factor`` times as long at ``point`` as at ``before``."""

    before: Point
    point: Point
    factor: float


def cliffs(points: Sequence[Point], by: str, limit: float = CLIFF) -> list[Cliff]:
    """The sizes at which a multiply-add takes more than ``limit`` times as long as at the next
    smaller size with figures. A shorter time is not a cliff: the cost of starting a run is spread
    over more multiply-adds."""
    measured = sorted((p for p in points if not p.failure), key=lambda point: point.size)
    steps = [
        Cliff(before, point, point.each(by) / before.each(by))
        for before, point in zip(measured, measured[1:], strict=False)
    ]
    return [step for step in steps if step.factor > limit]


TITLES = ("", "ms by clock", "ms of processor", "ps/multiply-add", "against smaller", "build s",
          "peak MB", "on host", "")


def cells(points: Sequence[Point], by: str) -> list[list[str]]:
    """Rows of `TITLES`, by size."""
    found: list[list[str]] = []
    before: Point | None = None
    steep = {cliff.point for cliff in cliffs(points, by)}
    for point in sorted(points, key=lambda point: point.size):
        if point.failure:
            found.append([str(point.size), *["-"] * (len(TITLES) - 2), "failed"])
            continue
        factor = point.each(by) / before.each(by) if before else None
        found.append([
            str(point.size), f"{1e3 * point.clock:.1f}", f"{1e3 * point.processor:.1f}",
            f"{1e12 * point.each(by):.1f}", "" if factor is None else f"{factor:.2f}",
            f"{point.build:.2f}", f"{point.peak:.0f}", str(point.on_host),
            "cliff" if point in steep else "",
        ])
        before = point
    return found


def remarks(points: Sequence[Point], by: str, unit: str) -> list[str]:
    """A line for each cliff and each size without figures."""
    lines = [
        f"cliff at {cliff.point.size} {unit}: a multiply-add takes {cliff.factor:.2f} times as "
        f"long as at {cliff.before.size}"
        for cliff in cliffs(points, by)
    ]
    return lines + [
        f"{point.size} {unit}: {point.failure.strip().splitlines()[-1]}"
        for point in points if point.failure
    ]
