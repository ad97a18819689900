"""Placement of barriers, by the accesses to each location since the last barrier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .program import BarrierStep, CopyStep, DeviceStep, DispatchStep, Range, RepeatStep, Slot
from .symbolic import lower_bound, upper_bound

# With more accesses than this, a barrier costs less than the search for overlaps.
_MAX_TRACKED = 256


class Location(NamedTuple):
    """A range of bytes in memory. Slots that share memory have the same ``space`` and ``key``."""

    space: str
    key: str | int
    offset: int
    size: int


class HazardTracker:
    """Takes the accesses of each step in order; tells which steps need a barrier before them."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, str | int], list[tuple[int, int, bool]]] = {}
        self._count = 0

    def step(self, accesses: Sequence[tuple[Location, bool]]) -> bool:
        """Whether the step conflicts with one since the last barrier. If so, the tracker assumes a
        barrier before it. ``accesses``: locations, and whether each is written."""
        conflict = self._count > _MAX_TRACKED or any(
            start < place.offset + place.size and place.offset < end and (write or wrote)
            for place, write in accesses
            for start, end, wrote in self._spans.get((place.space, place.key), ())
        )
        if conflict:
            self._spans.clear()
            self._count = 0
        for place, write in accesses:
            self._spans.setdefault((place.space, place.key), []).append(
                (place.offset, place.offset + place.size, write)
            )
            self._count += 1
        return conflict


def location(slots: Sequence[Slot], place: Range) -> Location:
    """The location of a range of a slot."""
    slot = slots[place.slot]
    key = slot.name if slot.kind in ("input", "output") else slot.index
    # A range that depends on sizes counts with all bytes that it may have.
    offset = slot.offset + lower_bound(place.offset)
    end = slot.offset + upper_bound(place.offset + place.size)
    return Location(slot.kind, key, offset, end - offset)


def read_location(
    slots: Sequence[Slot], place: Range, viewed: Callable[[int], int]
) -> Location:
    """The location that a step reads. ``viewed`` maps a slot's size to the bytes that a texel view
    of it covers. If the range ends its slot, the view may reach into the memory of later values."""
    found = location(slots, place)
    slot = slots[place.slot]
    size = upper_bound(slot.size)
    if found.offset + found.size < slot.offset + size:
        return found
    space, key, offset, _ = found
    return Location(space, key, offset, slot.offset + viewed(size) - offset)


def with_barriers(
    slots: Sequence[Slot],
    steps: Iterable[DispatchStep | CopyStep | RepeatStep],
    viewed: Callable[[int], int] = int,
) -> tuple[DeviceStep, ...]:
    """The steps of one command buffer with the barriers they need between them. Repeated steps end
    with one, before they begin again. ``viewed`` as in ``read_location``."""
    tracker = HazardTracker()
    ordered: list[DeviceStep] = []
    for step in steps:
        accesses = [
            (location(slots, place) if write else read_location(slots, place, viewed), write)
            for place, _, write in step.accesses()
        ]
        if tracker.step(accesses):
            ordered.append(BarrierStep())
        if isinstance(step, RepeatStep):
            inner = with_barriers(slots, step.steps, viewed)  # type: ignore[arg-type]
            repeated = (*inner, BarrierStep())
            step = replace(step, steps=repeated)  # type: ignore[arg-type]
        ordered.append(step)
    return tuple(ordered)
