"""The base of the rules for every class of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .device_classes import DeviceClass


@dataclass(frozen=True)
class Constraint:
    """Which candidates of a kernel family may be chosen, for a reason that the cost model can't
    weigh: the ones of the least ``rank``."""

    reason: str
    rank: Callable[[Schedule], Any]


def only(reason: str, wanted: Callable[[Schedule], bool]) -> Constraint:
    """The constraint to the candidates that are wanted, if there are any."""
    return Constraint(reason, lambda schedule: not wanted(schedule))


#: The constraints of one kernel family, the most important first.
Constraints = Iterator[Constraint]


class Rules:
    """Constraints of a class of devices: a method for each kernel family, which gets the legal
    candidates and the problem. It compares nothing: ``choose`` does.

    loads: how kernels read their operands, whatever their family.
    """

    loads: ClassVar[Constraint]

    def __init__(self, device: DeviceClass, profile: DeviceProfile) -> None:
        self.device, self.profile = device, profile

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        """How many invocations share a row."""
        raise NotImplementedError

    def copy(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield last("transposes by tiles in shared memory", candidates)

    def integer_product(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        def fills(c: Schedule) -> bool:
            return c.tiles(problem.m, problem.n) * c["LX"] * c["LY"] >= self.device.min_invocations

        yield last_that("the largest tiles that still make enough invocations", candidates, fills)

    def softmax(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield from self.rows(candidates, problem)

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield from self.rows(candidates, problem.rows)

    def scan(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield from self._chunked(candidates, problem)

    def reduce(self, candidates: Sequence[Schedule], problem: Any) -> Constraints:
        yield from self._chunked(candidates, problem.rows())

    def _chunked(self, candidates: Sequence[Schedule], rows: Any) -> Constraints:
        chunks = max(c["chunks"] for c in candidates)
        yield only("as many chunks as `DeviceClass.chunks` says", lambda c: c["chunks"] == chunks)
        part = replace(rows, rows=rows.rows * chunks, length=ceil_divide(rows.length, chunks))
        yield from self.rows([c for c in candidates if c["chunks"] == chunks], part)


def last(reason: str, candidates: Sequence[Schedule]) -> Constraint:
    """The constraint to the last candidate."""
    return last_that(reason, candidates, lambda schedule: True)


def last_that(
    reason: str, candidates: Sequence[Schedule], suits: Callable[[Schedule], bool]
) -> Constraint:
    """The constraint to the last candidate that suits; to the first if none does."""
    place = {candidate: number for number, candidate in enumerate(candidates)}
    return Constraint(reason, lambda c: -place[c] if suits(c) else place[c])


def first_that(
    reason: str, candidates: Sequence[Schedule], suits: Callable[[Schedule], bool]
) -> Constraint:
    """The constraint to the first candidate that suits; to the last if none does."""
    place = {candidate: number for number, candidate in enumerate(candidates)}
    return Constraint(reason, lambda c: (not suits(c), place[c] if suits(c) else -place[c]))
