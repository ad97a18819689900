"""A Vulkan device: programs become pipelines and recorded command buffers."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.codegen.store import ShaderStore

from ..driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DeviceLost,
    Driver,
    DriverClosed,
    DriverError,
    FillCommand,
    ForkedProcess,
    OutOfDeviceMemory,
    OutOfHostMemory,
    Recording,
    sharing_of,
)
from ..errors import InvalidStateError, NotSupportedError, UnknownError
from ..kernels.dispatch import padded
from ..program import HostSegment, Program
from .device import Batch, DeviceLostError, Executable, Storage, again, poisoned
from .executable import DriverExecutable
from .host import Arrays
from .work import Allocate, Await, Read, Run, RunGraph, Submit, Work, Write

#: Transfers move in pieces of this many bytes, so that staging memory stays small.
PIECE_BYTES = 32 << 20
#: Staged bytes in one batch before it waits for the device.
STAGED_BYTES = 64 << 20


@contextmanager
def _translated() -> Iterator[None]:
    """The driver's errors become those of ``device.Device``."""
    try:
        yield
    except (OutOfDeviceMemory, OutOfHostMemory) as error:
        raise MemoryError(str(error)) from error
    except DeviceLost as error:
        raise DeviceLostError(str(error)) from error
    except (DriverClosed, ForkedProcess) as error:
        raise InvalidStateError(str(error)) from error
    except DriverError as error:
        raise UnknownError(f"{type(error).__name__}: {error}") from error


class DriverDevice:
    """See ``device.Device``. One driver, one queue."""

    def __init__(self, driver: Driver, shaders: ShaderStore) -> None:
        self.driver = driver
        self.shaders = shaders
        self.profile = driver.profile
        self.name = driver.profile.name
        self.settle: Callable[[], None] = lambda: None
        # Weak: a destroyed graph goes, whatever tensors it ran on.
        self._executables: set[weakref.ref[DriverExecutable]] = set()
        self._graveyard: deque[tuple[int, Any]] = deque()
        #: Guards every executable's recordings.
        self.lock = threading.Lock()

    @property
    def max_tensor_byte_length(self) -> int:
        return self.profile.max_tensor_byte_length

    # -- memory --------------------------------------------------------------------------------
    def create_storage(self, size: int, *, exportable: bool = False) -> Storage:
        """``exportable``: for another opened device or API (``runtime.external``)."""
        with _translated():
            return self.adopt(size, self._allocate(size, exportable))

    def adopt(self, size: int, backing: Any) -> Storage:
        """A storage over an allocation of the driver's."""
        return Storage(size, backing, self._graveyard.append)

    def promise_storage(self, size: int) -> Storage:
        return Storage(size, None, self._graveyard.append)

    def import_storage(self, data: np.ndarray) -> Storage:
        self.bury()
        try:
            backing = sharing_of(self.driver).import_host_memory(data, label="shared tensor")
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        except DriverError as error:
            raise NotSupportedError(
                f"{self.name} can't use this host memory (a private mapping, np.memmap(mode='c'), "
                f"suits more drivers than a read-only one): {error}"
            ) from error
        return Storage(data.nbytes, backing, self._graveyard.append)

    def _allocate(self, size: int, exportable: bool = False) -> Any:
        self.bury()
        return self.driver.allocate(padded(size), exportable=exportable, label="tensor")

    def add(self, executable: DriverExecutable) -> None:
        """Tell ``executable`` of tensors that are gone, for as long as it lives."""
        self._executables.add(weakref.ref(executable, self._executables.discard))

    def bury(self) -> None:
        """Give back the memory of storages that nothing refers to any more."""
        executables = None
        while self._graveyard:
            try:
                serial, backing = self._graveyard.popleft()
            except IndexError:
                return
            backing.free()
            if executables is None:
                found = [reference() for reference in self._executables.copy()]
                executables = [executable for executable in found if executable is not None]
            with self.lock:
                for executable in executables:
                    executable.forget(serial)

    def memory_in_use(self) -> int:
        self.bury()
        return self.driver.memory_in_use().allocated

    def stage(self, data: np.ndarray) -> Any:
        if data.nbytes > PIECE_BYTES:
            return None
        try:
            staged = self.driver.allocate(data.nbytes, host=True, label="staging")
        except DriverError:
            # The timeline thread will try again when earlier work has given memory back.
            return None
        np.frombuffer(staged.mapped, np.uint8)[: data.nbytes] = data
        staged.flush()
        return staged

    def load(self, program: Program) -> Executable:
        self.bury()
        with _translated():
            return DriverExecutable(self, program)

    # -- running -------------------------------------------------------------------------------
    def execute(self, works: Sequence[Work]) -> Batch:
        batch = Batch(works)
        run = _Run(self, batch)
        for work in works:
            try:
                run.add(work)
            except DeviceLost as error:
                raise DeviceLostError(str(error)) from error
            except Exception as error:
                work.fail(error)
        run.end()
        self.bury()
        return batch

    def wait(self, batch: Batch) -> None:
        if batch.value is not None:
            self.wait_value(batch.value)
        self.bury()

    def wait_value(self, value: int) -> None:
        with _translated():
            self.driver.wait(value)

    def close(self) -> None:
        self.driver.close()


class _Run:
    """One batch being put together: transfers and recordings in order, submitted at the end or
    when staging memory or a CPU segment asks for it."""

    def __init__(self, device: DriverDevice, batch: Batch) -> None:
        self.device = device
        self.driver = device.driver
        self.batch = batch
        # The work being added, and those not submitted yet with what they add to the submission.
        self._work: Work | None = None
        self._open: list[Work] = []
        self._commands: list[Command] = []
        self._recordings: list[Recording] = []
        self._transient: list[Recording] = []
        self._staged: list[Any] = []
        self._staged_bytes = 0
        # Moves results out of staged memory when the device is done.
        self._collects: list[tuple[Work, Callable[[], Any]]] = []
        # What callers learn when the whole batch is over.
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
            case Allocate(storage, exportable):
                storage.backing = self.device._allocate(storage.size, exportable)
            case Await(wait):
                wait()

    def end(self) -> None:
        """Submit what is left. When that fails, so do the works in it; those before stand."""
        self._work = None
        try:
            self._submit()
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        except Exception as error:
            failed = set(map(id, self._open))
            for work in self._open:
                work.fail(error)
            self._collects = [entry for entry in self._collects if id(entry[0]) not in failed]
            self._promised = [entry for entry in self._promised if id(entry[0]) not in failed]
        self.batch.completions.extend(self._collects)
        self.batch.completions.append((None, partial(_release, self._transient, self._staged)))
        self.batch.completions.extend(self._promised)

    # -- transfers -----------------------------------------------------------------------------
    def _write(self, work: Write) -> None:
        storage = work.storage
        if storage.backing is None:
            return  # its ``Allocate`` failed
        offset, size = work.part or (0, storage.size)
        if size == storage.size:
            storage.error = None
        if work.data is None and work.staged is None:
            self._transfer(FillCommand(storage.backing, 0, padded(storage.size)))
            return
        if work.staged is not None:
            self._keep(work.staged)
            self._transfer(CopyCommand(work.staged, 0, storage.backing, offset, size))
            return
        for start in range(0, size, PIECE_BYTES):
            piece = work.data[start : start + PIECE_BYTES]
            staged = self._stage(len(piece))
            np.frombuffer(staged.mapped, np.uint8)[: len(piece)] = piece
            staged.flush()
            self._transfer(CopyCommand(staged, 0, storage.backing, offset + start, len(piece)))
        work.data = None

    def _read(self, work: Read) -> None:
        storage = work.storage
        if storage.error is not None:
            raise again(storage.error)
        offset, total = work.part or (0, storage.size)
        result = np.empty(total, np.uint8)
        for start in range(0, total, PIECE_BYTES):
            size = min(PIECE_BYTES, total - start)
            staged = self._stage(size)
            self._transfer(CopyCommand(storage.backing, offset + start, staged, 0, size))

            def collect(staged: Any = staged, start: int = start, size: int = size) -> None:
                staged.invalidate()
                result[start : start + size] = np.frombuffer(staged.mapped, np.uint8)[:size]

            self._collects.append((work, collect))
        self._promised.append((work, partial(work.done, result)))

    def _transfer(self, command: Command) -> None:
        # Transfers of one batch may depend on each other (write, then read).
        if self._commands:
            self._commands.append(BarrierCommand())
        self._commands.append(command)

    def _stage(self, size: int) -> Any:
        if self._staged_bytes + size > STAGED_BYTES:
            self._finish()
        try:
            staged = self.driver.allocate(size, host=True, label="staging")
        except OutOfDeviceMemory:
            staged = None
        if staged is None:
            # What earlier work holds may be enough.
            self._finish()
            self.device.settle()
            staged = self.driver.allocate(size, host=True, label="staging")
        self._keep(staged)
        return staged

    def _keep(self, staged: Any) -> None:
        self._staged.append(staged)
        self._staged_bytes += staged.size

    # -- graphs --------------------------------------------------------------------------------
    def _dispatch(self, work: RunGraph) -> None:
        error = poisoned(work.inputs.values())
        if error is not None:
            work.fail(error)
            return
        executable: Any = work.executable
        arrays: Arrays = {}
        for part in executable.recordings(work.inputs, work.outputs):
            if isinstance(part, HostSegment):
                self._finish()
                executable.run_host(part, arrays)
            else:
                self._flush()
                self._recordings.append(part)
        for storage in work.outputs.values():
            storage.error = None

    def _submit_recordings(self, work: Submit) -> None:
        error = poisoned(work.reads)
        if error is not None:
            work.fail(error)
            return
        self._flush()
        if work.wait or work.signal:
            # A submission of its own: neither what came before waits, nor what comes is waited for.
            self._submit()
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
            recording = self.driver.record(self._commands)
            self._commands = []
            self._recordings.append(recording)
            self._transient.append(recording)

    def _submit(self) -> None:
        self._flush()
        if self._recordings:
            self.batch.value = self.driver.submit(self._recordings)
        self._recordings = []
        self._open = [] if self._work is None else [self._work]

    def _finish(self) -> None:
        """Submit and wait, for what the host has to see or reuse now."""
        self._submit()
        # Batches before may use the same memory, also when this one has submitted nothing yet.
        self.driver.wait(self.driver.submitted())
        collects, self._collects = self._collects, []
        for work, collect in collects:
            try:
                collect()
            except Exception as error:
                work.fail(error)
        _release(self._transient, self._staged)
        self._transient, self._staged, self._staged_bytes = [], [], 0


def _release(recordings: Sequence[Recording], staged: Sequence[Any]) -> None:
    for recording in recordings:
        recording.free()
    for allocation in staged:
        allocation.free()
