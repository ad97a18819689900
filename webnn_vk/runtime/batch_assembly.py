"""The transfers and recordings of one batch, in order: submitted at its end, or before when staging
memory or a CPU segment requires it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.program import HostSegment
from webnn_vk.driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DeviceLost,
    FillCommand,
    OutOfDeviceMemory,
    OutOfHostMemory,
    Recording,
)
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.host_copy import copy_bytes
from webnn_vk.support.integers import padded
from webnn_vk.support.mmap_array import drop_pages

from .device import Batch
from .driver_memory import DriverMemory, from_twins, to_twins
from .host import Arrays
from .storage import DeviceLostError, Storage, again, poisoned, unfound
from .transfers import KEPT_BYTES, Key, Transfer
from .work import (
    LENT,
    Allocate,
    Await,
    Read,
    Refuse,
    Run,
    RunGraph,
    SetUp,
    Submit,
    Work,
    Write,
)

#: Transfers are divided into pieces of this many bytes: the device copies one while the host copies
#: the next.
PIECE_BYTES = 32 << 20
#: From this size on, the timeline's thread reads the memory of an idle device in place, and writes
#: to it while the caller waits.
IN_PLACE_BYTES = 1 << 20
#: Staging memory of one batch; a batch that transfers more uses it again and again.
STAGED_BYTES = 64 << 20


@dataclass(slots=True)
class _Part:
    """A submitted part of a batch, with the memory to free and what to do when it is over."""

    value: int
    recordings: list[Recording]
    staged: list[Any]
    collects: list[tuple[Work, Callable[[], Any]]]

    def release(self) -> None:
        for recording in self.recordings:
            recording.free()
        for allocation in self.staged:
            allocation.free()


class _Result:
    """The bytes of a read, from its pieces."""

    def __init__(self, work: Read, size: int) -> None:
        self._work = work
        self._size = size
        #: Whether a piece, or all, was there.
        self.begun = False
        self._target: np.ndarray | None = None

    def fill(self, start: int, data: np.ndarray) -> None:
        """The piece from ``start`` on is there."""
        target = self._begin()
        if target is not None:
            part = target[start : start + len(data)]
            copy_bytes(part, data[: len(part)])

    def done(self) -> None:
        """All pieces are there."""
        target = self._begin()
        if target is not None:
            self._work.done(target)

    def _begin(self) -> np.ndarray | None:
        if not self.begun:
            self.begun = True
            self._target = self._work.target(self._size)
        return self._target


class BatchAssembly:
    """A batch being assembled: works are added in order, then it ends."""

    def __init__(self, device: DriverMemory, batch: Batch) -> None:
        self.device = device
        self.driver = device.driver
        self.batch = batch
        self.observer = batch.observer
        # The last submission before this batch, which may use the same memory.
        self._before = self.driver.submitted()
        # The work being added, and unsubmitted works with their parts of the submission.
        self._work: Work | None = None
        self._open: list[Work] = []
        self._commands: list[Command] = []
        self._recordings: list[Recording] = []
        self._transient: list[Recording] = []
        self._staged: list[Any] = []
        # Moves results out of staging memory when the device is done.
        self._collects: list[tuple[Work, Callable[[], Any]]] = []
        # Staged bytes that are not submitted, and all.
        self._open_bytes = self._staged_bytes = 0
        # What was submitted, oldest first.
        self._parts: deque[_Part] = deque()
        # For later batches.
        self._transfers: list[tuple[Key, Transfer | None]] = []
        # Completions of the whole batch.
        self._promised: list[tuple[Work, Callable[[], Any]]] = []

    def add(self, work: Work) -> None:
        self._work = work
        self._open.append(work)
        match work:
            case Write():
                self._write(work)
            case Read():
                self._read(work)
            case RunGraph():
                self._dispatch(work)
            case Run(function):
                self._promised.append((work, function))
            case Submit():
                self._submit_recordings(work)
            case SetUp():
                self._set_up(work)
            case Allocate(storage, exportable):
                storage.backing = self.device.allocate(storage.size, exportable)
            case Await(wait):
                wait()
            case Refuse():
                raise InvalidStateError(LENT)

    def end(self) -> None:
        """Submit the rest. If that fails, its works fail; earlier ones succeed."""
        self._work = None
        try:
            self._submit()
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        except Exception as error:
            self.batch.failed = True
            failed = set(map(id, self._open))
            for work in self._open:
                work.fail(error)
            self._close_part()
            for part in self._parts:
                part.collects = [entry for entry in part.collects if id(entry[0]) not in failed]
            self._promised = [entry for entry in self._promised if id(entry[0]) not in failed]
        for part in self._parts:
            self.batch.completions.extend(part.collects)
            self.batch.completions.append((None, part.release))
        for entry in self._transfers:
            self.batch.completions.append((None, partial(self.device.transfers.keep, *entry)))
        self.batch.completions.extend(self._promised)

    # -- transfers -----------------------------------------------------------------------------
    def _write(self, work: Write) -> None:
        storage = work.storage
        if storage.backing is None:
            return  # its ``Allocate`` failed
        offset, size = work.part or (0, storage.size)
        if size == storage.size:
            storage.error = None
        if work.data is None and not work.staged:
            self._transfer("clear", FillCommand(storage.backing, 0, padded(storage.size)))
            return
        if work.staged:
            for start, staged in zip(range(0, size, PIECE_BYTES), work.staged, strict=True):
                self._keep(staged)
                copied = min(PIECE_BYTES, size - start)
                command = CopyCommand(staged, 0, storage.backing, offset + start, copied)
                self._transfer("upload", command)
            return
        in_place = work.fresh or (work.waited and self._is_idle())
        if in_place and storage.backing.mapped is not None:
            storage.backing.write(work.data, offset)
            drop_pages(work.data)
            work.data = None
            return
        kept = self._kept_transfer(storage, "upload") if work.part is None else None
        if kept is not None:
            kept.staged.write(work.data)
            work.data = None
            return
        for start in range(0, size, PIECE_BYTES):
            piece = work.data[start : start + PIECE_BYTES]
            staged = self._stage(len(piece))
            staged.write(piece)
            to = offset + start
            self._transfer("upload", CopyCommand(staged, 0, storage.backing, to, len(piece)))
        drop_pages(work.data)
        work.data = None

    def _read(self, work: Read) -> None:
        storage = work.storage
        if storage.error is not None:
            raise again(storage.error)
        offset, total = work.part or (0, storage.size)
        result = _Result(work, total)
        backing = storage.backing
        place = backing if storage.twin is None else storage.twin
        # Reading memory that the host doesn't cache takes longer than copying it on the device.
        if place.mapped is not None and place.cached:

            def collect_in_place() -> None:
                result.fill(0, place.read()[offset : offset + total])

            if work.last:
                self._collects.append((work, collect_in_place))
            elif total >= IN_PLACE_BYTES and self._is_idle():
                collect_in_place()
            if work.last or result.begun:
                self._promised.append((work, result.done))
                return

        def collect(staged: Any, start: int, size: int) -> None:
            result.fill(start, staged.read()[:size])

        kept = self._kept_transfer(storage, "download") if work.part is None else None
        if kept is not None:
            self._collects.append((work, partial(collect, kept.staged, 0, total)))
        else:
            for start in range(0, total, PIECE_BYTES):
                size = min(PIECE_BYTES, total - start)
                staged = self._stage(size)
                command = CopyCommand(storage.backing, offset + start, staged, 0, size)
                self._transfer("download", command)
                self._collects.append((work, partial(collect, staged, start, size)))
        self._promised.append((work, result.done))

    def _is_idle(self) -> bool:
        """Whether the device has nothing to do, in this batch either."""
        if self._commands or self._recordings or self.observer is not None:
            return False
        return self.driver.completed() >= self._last_value()

    def _kept_transfer(self, storage: Storage, kind: str) -> Transfer | None:
        """A transfer of the whole storage, added to the batch and kept for the next time; None if
        the caller has to add one."""
        if not 0 < storage.size <= KEPT_BYTES or self.observer is not None:
            return None

        def make() -> Transfer:
            staged = self.device.find(storage.size, host=True, label="staging")
            ends = (staged, 0, storage.backing, 0) if kind == "upload" else (
                storage.backing, 0, staged, 0
            )
            return Transfer(staged, self.driver.record([CopyCommand(*ends, storage.size)]))

        key = storage.serial, kind
        try:
            transfer = self.device.transfers.take(key, self.driver.completed, make)
        except (OutOfDeviceMemory, OutOfHostMemory):
            return None
        self._transfers.append((key, transfer))
        if transfer is not None:
            self._flush()
            self._recordings.append(transfer.recording)
        return transfer

    def _transfer(self, kind: str, command: CopyCommand | FillCommand) -> None:
        if self.observer is not None:
            self.observer.transfer(kind, command.size)
        # Transfers of one batch may depend on each other (write, then read).
        if self._commands:
            self._commands.append(BarrierCommand())
        self._commands.append(command)

    def _stage(self, size: int) -> Any:
        if self._open_bytes and self._open_bytes + size > PIECE_BYTES:
            self._submit()
        while self._parts and self._staged_bytes + size > STAGED_BYTES:
            self._finish_oldest()
        try:
            staged = self.device.find(size, host=True, label="staging")
        except (OutOfDeviceMemory, OutOfHostMemory):
            staged = None
        if staged is None:
            # Memory of earlier work may be enough.
            self._finish()
            self.device.wait_idle()
            staged = self.device.find(size, host=True, label="staging")
        self._keep(staged)
        return staged

    def _keep(self, staged: Any) -> None:
        self._staged.append(staged)
        self._open_bytes += staged.size
        self._staged_bytes += staged.size

    # -- graphs --------------------------------------------------------------------------------
    def _dispatch(self, work: RunGraph) -> None:
        executable: Any = work.executable
        needed = (*work.inputs.values(), *executable.parameters)
        if self.batch.refuses(work, poisoned(needed) or unfound(work.outputs.values())):
            return
        # Programs read a donated input from the memory of its output.
        for past, present in executable.program.donated.items():
            source, target = work.inputs[past], work.outputs[present]
            if source is not target:
                copied = padded(source.size)
                command = CopyCommand(source.backing, 0, target.backing, 0, copied)
                self._transfer("copy", command)
        arrays: Arrays = {}
        find = partial(executable.recordings, copying=True)
        if self.observer is not None:
            find = partial(self.observer.recordings, executable)
            for command in from_twins(work.inputs):
                self._transfer("upload", command)
        cut = False
        for part in find(work.inputs, work.outputs):
            if cut and not isinstance(part, HostSegment):
                self._submit()
            # Two recordings follow each other where a segment is cut.
            cut = not isinstance(part, HostSegment)
            if isinstance(part, HostSegment):
                self._finish()
                start = time.perf_counter()
                executable.run_host(part, arrays)
                if self.observer is not None:
                    self.observer.host(executable, part, start, time.perf_counter())
            else:
                self._flush()
                self._recordings.append(part)
        if self.observer is not None:
            for command in to_twins(work.outputs):
                self._transfer("download", command)
        for storage in work.outputs.values():
            storage.error = None

    def _set_up(self, work: SetUp) -> None:
        if self.batch.refuses(work, poisoned([*work.reads, *work.writes])):
            return
        recording = work.record()
        self._flush()
        self._recordings.append(recording)
        self._transient.append(recording)

    def _submit_recordings(self, work: Submit) -> None:
        if self.batch.refuses(work, poisoned(work.reads)):
            return
        self._flush()
        if work.wait or work.signal:
            # A separate submission: it neither waits for earlier work, nor is waited for.
            self._submit()
            if self.observer is not None:
                self.observer.submits()
            self.batch.value = self.driver.submit(
                work.recordings, wait=work.wait, signal=work.signal
            )
            self._open = []
        else:
            self._recordings.extend(work.recordings)
        for storage in work.writes:
            storage.error = None

    # -- submission ----------------------------------------------------------------------------
    def _flush(self) -> None:
        if self._commands:
            commands: Sequence[Command] = self._commands
            if self.observer is not None:
                commands = self.observer.timed(commands)
            recording = self.driver.record(commands)
            if self.observer is not None:
                self.observer.recorded(recording)
            self._commands = []
            self._recordings.append(recording)
            self._transient.append(recording)

    def _submit(self) -> None:
        self._flush()
        if self._recordings:
            if self.observer is not None:
                self.observer.submits()
            self.batch.value = self.driver.submit(self._recordings)
        self._close_part()
        self._recordings = []
        self._open = [] if self._work is None else [self._work]

    def _finish(self) -> None:
        """Submit and wait, because the host has to see or reuse memory now."""
        self._submit()
        self.driver.wait(self._last_value())
        if self.observer is not None:
            self.observer.read()
        while self._parts:
            self._take_back(self._parts.popleft())

    def _last_value(self) -> int:
        """The last submission that the batch's work needs, not those that other streams made
        meanwhile."""
        return self._before if self.batch.value is None else self.batch.value

    def _finish_oldest(self) -> None:
        """Wait for the oldest part, because its staging memory is needed again."""
        if self.observer is not None:
            self._finish()  # it reads all timestamps at once
            return
        part = self._parts.popleft()
        if self.driver.completed() < part.value:
            self.driver.wait(part.value)
        self._take_back(part)

    def _close_part(self) -> None:
        if self._transient or self._staged or self._collects:
            value = self._last_value()
            self._parts.append(_Part(value, self._transient, self._staged, self._collects))
            self._transient, self._staged, self._collects, self._open_bytes = [], [], [], 0

    def _take_back(self, part: _Part) -> None:
        for work, collect in part.collects:
            try:
                collect()
            except Exception as error:
                work.fail(error)
        self._staged_bytes -= sum(staged.size for staged in part.staged)
        part.release()
