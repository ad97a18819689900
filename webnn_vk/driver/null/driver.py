"""`NullDriver`: the driver interface without a device, for tests and for looking at submissions.

Memory is host memory, initially zero; a discrete device's is mapped only where the host needs it.
Copies and fills are executed. Dispatches are not: the memory that they would write keeps its
contents.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from webnn_vk.driver.checks import check_command, check_pipeline, check_submitted
from webnn_vk.driver.commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    used_by,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.direct import Turn, Turns
from webnn_vk.driver.errors import DriverClosed, FeatureMissing, OutOfDeviceMemory
from webnn_vk.driver.null.profile import NULL_PROFILE
from webnn_vk.driver.resources import Allocation, HostAccess, MemoryUse, Pipeline, PipelineRequest
from webnn_vk.support.dataclass import dataclass

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

    __slots__ = ("__weakref__", "view")

    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))


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
                 say: Callable[[str], Any] | None = None) -> None:
        self.profile = profile
        self._say = say or (lambda line: None)
        self._turns = Turns()
        # A direct submit consists of functions of C, which say nothing.
        self.direct = NullDirect(self) if say is None else None
        self._lock = threading.Lock()
        self._live: weakref.WeakSet[_Bytes] = weakref.WeakSet()
        self._numbers = count(1)
        self._pipelines: weakref.WeakValueDictionary[PipelineRequest, NullPipeline] = (
            weakref.WeakValueDictionary())
        self._submitted = 0
        self._closed = False

    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 host_access: HostAccess = "", label: str = "") -> Allocation:
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
            memory = _Bytes(rounded)
            self._live.add(memory)
        label = f"{label or 'memory'}#{next(self._numbers)}"
        seen = host or host_access or profile.device_type != "discrete"
        return Allocation(memory, rounded, memory.view if seen else None, label)

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
        return NullRecording(tuple(commands), used_by(commands))

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
            direct = self._close_turns()
            self._submitted += 1
            if direct:
                self._turns.open(self._submitted)
            self._say(f"submit {self._submitted}")
            for recording in recordings:
                for line in recording.lines:
                    self._say(f"  {line}")
                for move in recording.moves:
                    move()
            return self._submitted

    def _close_turns(self) -> bool:
        """No more direct submits, with the lock held; whether they were allowed."""
        last = self._turns.close()
        if last is not None:
            self._submitted = last
        return last is not None

    def wait(self, value: int, timeout: float | None = None) -> bool:
        check_submitted(value, self._submitted)
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


class NullDirect:
    """See `driver.facets.DirectSubmits` for the methods."""

    def __init__(self, driver: NullDriver) -> None:
        self._driver, self._turns = driver, driver._turns
        self.turn = driver._turns.next

    def prepare(self, recordings: Sequence[NullRecording]) -> tuple[Callable[[], Any], ...]:
        moves = [move for recording in recordings for move in recording.moves]
        return (*moves, int)  # zero, for success

    def open(self) -> tuple[int, int]:
        with self._driver._lock:
            self._driver._close_turns()
            self._turns.open(self._driver._submitted)
            return self._driver._submitted, self._turns.taken

    def close(self) -> tuple[int, int]:
        with self._driver._lock:
            self._driver._close_turns()
            return self._driver._submitted, self._turns.taken

    def submit(self, turn: Turn, prepared: tuple[Callable[[], Any], ...]) -> bool:
        return turn.take(prepared) is not None

    def completed(self) -> int:
        turn = self._turns.next()
        return self._driver._submitted if turn is None else turn.value - 1

    def wait(self, value: int, timeout: float | None = None) -> bool:
        return True


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
    name = allocation.label
    return name if (offset, size) == (0, allocation.size) else f"{name}[{offset}+{size}]"


def _moves(commands: Sequence[Command]) -> Iterator[Callable[[], None]]:
    """The functions that execute copies and fills."""
    for command in commands:
        match command:
            case CopyCommand(source, start, target, to, size):
                yield _copy(source.held.view[start : start + size],
                            target.held.view[to : to + size])
            case FillCommand(target, offset, size, value):
                words = struct.pack("<I", value) * (size // 4)
                yield _copy(memoryview(words), target.held.view[offset : offset + size])


def _copy(source: memoryview, target: memoryview) -> Callable[[], None]:
    return partial(target.__setitem__, slice(None), source)  # a function of C
