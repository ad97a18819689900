"""`NullDriver`: the driver interface without a device, for tests and for looking at submissions.

Memory is host memory, initially zero. Copies and fills are executed. Dispatches are not: the memory
that they would write keeps its contents.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from webnn_vk.driver.checks import check_command, check_pipeline
from webnn_vk.driver.commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.errors import DriverClosed, FeatureMissing, OutOfDeviceMemory
from webnn_vk.driver.null.profile import NULL_PROFILE
from webnn_vk.driver.resources import MemoryUse, Pipeline, PipelineRequest

_ALIGNMENT = 256

#: The reasons for missing facets, for messages.
ABSENT = {
    "sharing": "the null driver has no memory that can be shared",
    "timestamps": "the null driver executes nothing that could be timed",
}


@dataclass(frozen=True, eq=False)
class NullPipeline:
    """See `driver.resources.Pipeline`."""

    request: PipelineRequest


class _Bytes:
    """Memory that allocations and recordings share."""

    __slots__ = ("__weakref__", "name", "view")

    def __init__(self, name: str, size: int) -> None:
        self.name, self.view = name, memoryview(bytearray(size))


class NullAllocation:
    """See `driver.resources.Allocation`."""

    offset = 0

    def __init__(self, memory: _Bytes) -> None:
        self._memory: _Bytes | None = memory
        self.size = len(memory.view)
        self.mapped: memoryview | None = memory.view

    def __repr__(self) -> str:
        name = "freed" if self._memory is None else self._memory.name
        return f"<Allocation {name!r} {self.size} bytes>"

    @property
    def freed(self) -> bool:
        """Whether `free` was called."""
        return self._memory is None

    @property
    def memory(self) -> Any:
        """The memory; ValueError after `free`."""
        if self._memory is None:
            raise ValueError(f"{self!r} was freed")
        return self._memory

    def flush(self) -> None:
        """Nothing: there is no other view of the bytes."""

    def invalidate(self) -> None:
        """Nothing: there is no other view of the bytes."""

    def free(self) -> None:
        """Frees the memory. Calling it again does nothing."""
        self._memory = None
        self.mapped = None


class NullRecording:
    """See `driver.resources.Recording`. `commands`: None once freed."""

    def __init__(self, commands: tuple[Command, ...], memory: tuple[Any, ...]) -> None:
        self.commands: tuple[Command, ...] | None = commands
        self.lines = tuple(describe(commands))
        self.moves = tuple(_moves(commands))
        self._memory = memory

    def free(self) -> None:
        """Frees it. Calling it again does nothing."""
        self.commands, self.moves, self._memory = None, (), ()


class NullDriver:
    """See `driver.interface.Driver` for the methods.

    `say` gets a line for each submission and each of its commands.
    """

    sharing = None
    timestamps = None
    absent = ABSENT

    def __init__(self, profile: DeviceProfile = NULL_PROFILE, *,
                 say: Callable[[str], Any] = lambda line: None) -> None:
        self.profile = profile
        self._say = say
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[_Bytes] = weakref.WeakSet()
        self._numbers = count(1)
        self._pipelines: weakref.WeakValueDictionary[PipelineRequest, NullPipeline] = (
            weakref.WeakValueDictionary())
        self._submitted = 0
        self._closed = False

    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 label: str = "") -> NullAllocation:
        self._ready()
        if exportable:
            raise FeatureMissing(f"{self.profile.name} exports no memory: {ABSENT['sharing']}")
        rounded = -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        profile = self.profile
        with self._lock:
            used, largest = self._used(), profile.local_heap_size
            limit = min(profile.max_buffer_size, profile.max_memory_allocation_size)
            if rounded > limit or used + rounded > largest:
                raise OutOfDeviceMemory(
                    f"{label or 'memory'} of {rounded} bytes exceeds {min(limit, largest - used)}",
                    requested=rounded, in_use=used, limit=largest)
            memory = _Bytes(f"{label or 'memory'}#{next(self._numbers)}", rounded)
            self._live.add(memory)
        return NullAllocation(memory)

    def pipelines(self, requests: Sequence[PipelineRequest]) -> list[NullPipeline]:
        self._ready()
        made = []
        for request in requests:
            check_pipeline(request, self.profile)
            with self._lock:
                made.append(self._pipelines.setdefault(request, NullPipeline(request)))
        return made

    def precompile(self, pipelines: Sequence[Pipeline]) -> int:
        self._ready()
        return self._submitted

    def record(self, commands: Sequence[Command]) -> NullRecording:
        self._ready()
        for command in commands:
            check_command(command, self.profile)
        return NullRecording(tuple(commands), tuple(_memory_of(commands)))

    def submit(self, recordings: Sequence[NullRecording], *,
               wait: Sequence[tuple[Any, int]] = (),
               signal: Sequence[tuple[Any, int]] = ()) -> int:
        self._ready()
        if wait or signal:
            raise FeatureMissing(f"{self.profile.name} has no semaphores: {ABSENT['sharing']}")
        if any(recording.commands is None for recording in recordings):
            raise ValueError("a recording to submit was freed")
        with self._lock:
            self._ready()
            self._submitted += 1
            self._say(f"submit {self._submitted}")
            for recording in recordings:
                for line in recording.lines:
                    self._say(f"  {line}")
                for move in recording.moves:
                    move()
            return self._submitted

    def wait(self, value: int, timeout: float | None = None) -> bool:
        if value > self._submitted:
            raise ValueError(f"timeline value {value} was never submitted; the last is "
                             f"{self._submitted}")
        self._ready()
        return True

    def completed(self) -> int:
        self._ready()
        return self._submitted

    def submitted(self) -> int:
        return self._submitted

    def memory_in_use(self) -> MemoryUse:
        with self._lock:
            used, number = self._used(), len(self._live)
        return MemoryUse(used, used, number, number)

    def reclaim(self, *, pipelines: bool = True) -> None:
        """Unused memory is never kept."""

    def lost(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing runs, so there is nothing to wait for."""
        self._closed = True

    def _used(self) -> int:
        return sum(len(memory.view) for memory in list(self._live))

    def _ready(self) -> None:
        if self._closed:
            raise DriverClosed(f"the driver of {self.profile.name} was closed")


def describe(commands: Sequence[Command]) -> Iterator[str]:
    """A line for each command."""
    for command in commands:
        match command:
            case DispatchCommand(pipeline, bindings, push, groups):
                request = pipeline.request
                constants = " ".join(f"{number}={struct.unpack('<I', data)[0]}"
                                     for number, data in request.constants)
                bound = ", ".join(_place(*binding) for binding in bindings)
                yield (f"dispatch {request.name} {groups[0]}x{groups[1]}x{groups[2]} ({bound})"
                       + f" constants {constants}" * bool(constants)
                       + f" push {push.hex()}" * bool(push))
            case CopyCommand(source, start, target, to, size):
                yield f"copy {_place(source, start, size)} to {_place(target, to, size)}"
            case FillCommand(target, offset, size, value):
                yield f"fill {_place(target, offset, size)} with {value:#x}"
            case BarrierCommand():
                yield "barrier"


def _place(allocation: Any, offset: int, size: int) -> str:
    name = allocation.memory.name
    return name if (offset, size) == (0, allocation.size) else f"{name}[{offset}+{size}]"


def _memory_of(commands: Sequence[Command]) -> Iterator[Any]:
    for command in commands:
        match command:
            case DispatchCommand(pipeline, bindings):
                yield pipeline
                for allocation, _, _ in bindings:
                    yield allocation.memory
            case CopyCommand(source, _, target):
                yield source.memory
                yield target.memory
            case FillCommand(target):
                yield target.memory


def _moves(commands: Sequence[Command]) -> Iterator[Callable[[], None]]:
    """The functions that execute copies and fills."""
    for command in commands:
        match command:
            case CopyCommand(source, start, target, to, size):
                yield _copy(source.memory.view[start : start + size],
                            target.memory.view[to : to + size])
            case FillCommand(target, offset, size, value):
                words = struct.pack("<I", value) * (size // 4)
                yield _copy(memoryview(words), target.memory.view[offset : offset + size])


def _copy(source: memoryview, target: memoryview) -> Callable[[], None]:
    def copy() -> None:
        target[:] = source

    return copy
