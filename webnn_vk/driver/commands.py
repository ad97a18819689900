"""What a driver records, as plain data. Sizes and offsets in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from webnn_vk.driver.resources import Allocation, Pipeline, Queries


@dataclass(frozen=True, slots=True)
class DispatchCommand:
    """Runs a pipeline over `groups` workgroups. bindings: (allocation, offset, size)."""

    pipeline: Pipeline
    bindings: tuple[tuple[Allocation, int, int], ...]
    push: bytes = b""
    groups: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class CopyCommand:
    """Copies `size` bytes between allocations (not overlapping)."""

    source: Allocation
    source_offset: int
    destination: Allocation
    destination_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class FillCommand:
    """Fills `size` bytes (offset and size multiples of 4) with a 32-bit value."""

    destination: Allocation
    offset: int
    size: int
    value: int = 0


@dataclass(frozen=True, slots=True)
class BarrierCommand:
    """All writes before are visible to all reads and writes after (compute and transfer)."""


@dataclass(frozen=True, slots=True)
class OwnershipCommand:
    """Hands memory shared through the `Sharing` facet over to its other device, or takes it over
    from there (`acquire`). Orders nothing by itself: semaphores or host waits do."""

    allocation: Allocation
    acquire: bool


@dataclass(frozen=True, slots=True)
class TimestampCommand:
    """Writes the device's time, when all commands before are done, into slot `index` of `queries`,
    or of the recording's own slots. For drivers with the `Timestamps` facet."""

    index: int
    queries: Queries | None = None


@dataclass(frozen=True, slots=True)
class ResolveCommand:
    """Copies the times in `count` slots of `queries` from `first` on, as 64-bit integers to
    `offset`, a multiple of 8; 0 for slots that nothing has written. They are in ticks: the
    profile's `timestamp_period` says how many nanoseconds each is, its `timestamp_valid_bits` how
    many of the low bits mean anything. For drivers with the `Timestamps` facet."""

    queries: Queries
    first: int
    count: int
    destination: Allocation
    offset: int


Command = (DispatchCommand | CopyCommand | FillCommand | BarrierCommand | OwnershipCommand
           | TimestampCommand | ResolveCommand)
