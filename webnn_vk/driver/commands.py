"""Commands that a driver records, as plain data. Sizes and offsets in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.resources import Allocation, Pipeline, Queries
from webnn_vk.support.dataclass import dataclass


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
    """Transfers ownership of memory shared through the `Sharing` facet to its other device, or back
    from there (`acquire`). Semaphores or host waits have to order it."""

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


def used_by(commands: Sequence[Command]) -> tuple[Any, ...]:
    """The resources that a recording keeps alive: memory, pipelines and queries."""
    used: dict[int, Any] = {}
    for command in commands:
        match command:
            case DispatchCommand(pipeline, bindings):
                items = [pipeline, *[allocation.held for allocation, _, _ in bindings]]
            case CopyCommand():
                items = [command.source.held, command.destination.held]
            case FillCommand():
                items = [command.destination.held]
            case OwnershipCommand():
                items = [command.allocation.held]
            case TimestampCommand(_, queries):
                items = [] if queries is None else [queries]
            case ResolveCommand():
                items = [command.queries, command.destination.held]
            case _:
                items = []
        used.update((id(item), item) for item in items)
    return tuple(used.values())
