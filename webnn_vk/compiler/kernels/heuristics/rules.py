"""The base of the rules for every class of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .device_classes import DeviceClass


@dataclass(frozen=True)
class Preference:
    """A reason to prefer some candidates: those with the least ``cost``. Candidates outside of
    ``among`` are not compared, and stay."""

    reason: str
    cost: Callable[[Schedule], Any]
    among: Callable[[Schedule], bool] = lambda schedule: True


def prefer(reason: str, wanted: Callable[[Schedule], bool]) -> Preference:
    """The preference for the candidates that are wanted, if there are any."""
    return Preference(reason, lambda schedule: not wanted(schedule))


#: The preferences that one rule yields, the most important reason first.
Preferences = Iterator[Preference]


class Rules:
    """Preferences of a class of devices: a method for each kernel family, which gets the legal
    candidates and the problem. It compares nothing: ``choose`` does."""

    def __init__(self, device: DeviceClass, profile: DeviceProfile) -> None:
        self.device, self.profile = device, profile

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        """How many invocations share a row."""
        raise NotImplementedError

    def copy(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield last("transposes by tiles in shared memory", candidates)

    def integer_product(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        def fills(c: Schedule) -> bool:
            rows, columns = c["LY"] * c["TM"], c["LX"] * c["TN"]
            groups = ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            return groups * c["LX"] * c["LY"] >= self.device.min_invocations

        yield last_that("the largest tiles that still make enough invocations", candidates, fills)

    def softmax(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield from self.rows(candidates, problem)

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield from self.rows(candidates, problem.rows)

    def scan(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield from self._chunked(candidates, problem)

    def reduce(self, candidates: Sequence[Schedule], problem: Any) -> Preferences:
        yield from self._chunked(candidates, problem.rows())

    def _chunked(self, candidates: Sequence[Schedule], rows: Any) -> Preferences:
        chunks = max(c["chunks"] for c in candidates)
        yield prefer("as many chunks as `DeviceClass.chunks` says", lambda c: c["chunks"] == chunks)
        part = replace(rows, rows=rows.rows * chunks, length=ceil_divide(rows.length, chunks))
        yield from self.rows([c for c in candidates if c["chunks"] == chunks], part)


def last(reason: str, candidates: Sequence[Schedule]) -> Preference:
    """The preference for the last candidate."""
    return last_that(reason, candidates, lambda schedule: True)


def last_that(
    reason: str, candidates: Sequence[Schedule], suits: Callable[[Schedule], bool]
) -> Preference:
    """The preference for the last candidate that suits; for the first if none does."""
    place = {candidate: number for number, candidate in enumerate(candidates)}
    return Preference(reason, lambda c: -place[c] if suits(c) else place[c])


def first_that(
    reason: str, candidates: Sequence[Schedule], suits: Callable[[Schedule], bool]
) -> Preference:
    """The preference for the first candidate that suits; for the last if none does."""
    place = {candidate: number for number, candidate in enumerate(candidates)}
    return Preference(reason, lambda c: (not suits(c), place[c] if suits(c) else -place[c]))


def depthwise(candidates: Sequence[Schedule], tall: Sequence[int]) -> list[Preference]:
    """The preference for depthwise kernels, by the numbers of rows in their order; [] if none of
    the candidates has one of these."""
    place = {
        c: tall.index(c["TP"]) for c in candidates
        if c.kernel == "conv_depthwise" and c["TP"] in tall
    }
    if not place:
        return []
    return [Preference("depthwise kernels, of the preferred rows",
                       lambda c: place.get(c, len(tall)))]


def texels(candidates: Sequence[Schedule]) -> Sequence[Schedule]:
    """The candidates that read texels, if any do; else all."""
    return [c for c in candidates if c.load == "texel"] or candidates
