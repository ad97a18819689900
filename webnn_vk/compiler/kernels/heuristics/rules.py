"""What the rules for every kind of device have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..schedule import Schedule
from .seeds import Seed


class Rules:
    """Preferences of a kind of device: a method per kernel family, which gets the legal candidates
    and the problem and returns one of them."""

    #: Whether one kernel for several chains behind a product (``epilogue.merged``), a little slower
    #: than each, is better than compiling each.
    merges_epilogues = False
    #: Whether kernels store results on the way to what is fused into them, element by element.
    stores_on_the_way = True
    #: Whether a product with few outputs leaves much of the device idle, so that cutting its inner
    #: dimension into parts may be worth it (``split_k``).
    cuts_products = False
    #: From how many elements on kernels compute an operand where they load it, by a kernel compiled
    #: for that, and don't have it stored by another one.
    computes_from = 0

    def __init__(self, seed: Seed) -> None:
        self.seed = seed

    @property
    def fill(self) -> int:
        """Invocations that keep the device busy."""
        return self.seed.fill

    def workgroup(self, count: int) -> int:
        """Invocations per workgroup where ``count`` of them work each for itself."""
        raise NotImplementedError

    def chunks(self, rows: int, length: int) -> int:
        """Into how many pieces each of few and very long rows is cut."""
        raise NotImplementedError

    def rows(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """How many invocations share a row."""
        raise NotImplementedError

    def elementwise(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """Many invocations of one vector each."""
        return candidates[0]

    def copy(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """Transposes by tiles in shared memory."""
        return candidates[-1]

    def integer_product(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """The largest tiles that still make enough invocations."""
        for schedule in reversed(candidates):
            rows, columns = schedule["LY"] * schedule["TM"], schedule["LX"] * schedule["TN"]
            groups = ceil_divide(problem.m, rows) * ceil_divide(problem.n, columns)
            if groups * schedule["LX"] * schedule["LY"] >= self.fill:
                return schedule
        return candidates[0]

    def softmax(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        return self.rows(candidates, problem, profile)

    def norm(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        return self.rows(candidates, problem.rows, profile)

    def scan(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        return self._chunked(candidates, problem, profile)

    def reduce(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        return self._chunked(candidates, problem.rows(), profile)

    def _chunked(
        self, candidates: Sequence[Schedule], rows: Any, profile: DeviceProfile
    ) -> Schedule:
        """As many chunks as `chunks` says, then as any rows."""
        chunks = max(c["chunks"] for c in candidates)
        part = replace(rows, rows=rows.rows * chunks, length=ceil_divide(rows.length, chunks))
        return self.rows([c for c in candidates if c["chunks"] == chunks], part, profile)
