"""What the rules for every class of devices have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .device_classes import DeviceClass


class Rules:
    """Preferences of a class of devices: a method for each kernel family, which gets the legal
    candidates and the problem and returns one candidate."""

    def __init__(self, device: DeviceClass, profile: DeviceProfile) -> None:
        self.device, self.profile = device, profile

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """How many invocations share a row."""
        raise NotImplementedError

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Many invocations of one vector each."""
        return candidates[0]

    def copy(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Transposes by tiles in shared memory."""
        return candidates[-1]

    def integer_product(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """The largest tiles that still make enough invocations."""
        for schedule in reversed(candidates):
            rows, columns = schedule["LY"] * schedule["TM"], schedule["LX"] * schedule["TN"]
            groups = ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            if groups * schedule["LX"] * schedule["LY"] >= self.device.min_invocations:
                return schedule
        return candidates[0]

    def softmax(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        return self.rows(candidates, problem)

    def norm(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        return self.rows(candidates, problem.rows)

    def scan(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        return self._chunked(candidates, problem)

    def reduce(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        return self._chunked(candidates, problem.rows())

    def _chunked(self, candidates: Sequence[Schedule], rows: Any) -> Schedule:
        """As many chunks as `chunks` says, then as any rows."""
        chunks = max(c["chunks"] for c in candidates)
        part = replace(rows, rows=rows.rows * chunks, length=ceil_divide(rows.length, chunks))
        return self.rows([c for c in candidates if c["chunks"] == chunks], part)
