"""Where barriers are needed: accesses since the last one, by location."""

from __future__ import annotations

from collections.abc import Iterable

from .program import Location

# Past so many accesses a barrier costs less than the search for overlaps.
_MAX_TRACKED = 256


class HazardTracker:
    """Feed it each step's reads and writes in order; it says when a barrier must come before."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str | int], list[tuple[int, int, bool]]] = {}
        self._count = 0

    def step(self, reads: Iterable[Location], writes: Iterable[Location]) -> bool:
        """Whether the step conflicts with one since the last barrier (which then is assumed)."""
        accesses = [(place, False) for place in reads] + [(place, True) for place in writes]
        conflict = self._count > _MAX_TRACKED or any(
            start < place.offset + place.size and place.offset < end and (write or wrote)
            for place, write in accesses
            for start, end, wrote in self._spans.get((place.space, place.key), ())
        )
        if conflict:
            self.reset()
        for place, write in accesses:
            self._spans.setdefault((place.space, place.key), []).append(
                (place.offset, place.offset + place.size, write)
            )
            self._count += 1
        return conflict

    def reset(self) -> None:
        self._spans.clear()
        self._count = 0
