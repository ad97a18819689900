"""A Vulkan device: programs become pipelines and recorded command buffers."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from webnn_vk.codegen.store import ShaderStore

from ..errors import OperationError
from ..kernels.dispatch import padded
from ..program import CopyStep, DeviceSegment, DispatchStep, HostSegment, Location, Program
from ..vulkan.driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    Driver,
    FillCommand,
    PipelineRequest,
    Recording,
)
from ..vulkan.errors import DeviceLost, OutOfDeviceMemory, OutOfHostMemory, VulkanError
from .device import Batch, DeviceLostError, Executable, Storage, poisoned
from .host import Arrays, run_host_segment
from .work import Await, Dispatch, Read, Run, Submit, Work, Write

#: Transfers move in pieces of this many bytes, so that staging memory stays small.
PIECE_BYTES = 32 << 20
#: Staged bytes in one batch before it waits for the device.
STAGED_BYTES = 64 << 20
#: Recorded command buffers that a graph keeps, one per set of tensors.
MAX_RECORDINGS = 32


class GpuExecutable:
    """A program on one device: pipelines, intermediates, constants and recordings."""

    def __init__(self, device: GpuDevice, program: Program) -> None:
        self.device = device
        self.program = program
        self.uploads: list[Work] = []
        self.build_seconds: dict[str, float] = {}
        self.flops = sum(step.flops for step in program.report.steps)
        start = time.perf_counter()
        specs = program.kernels
        modules = dict(zip(specs, device.shaders.get(specs), strict=True))
        self._stage("shaders", start)
        start = time.perf_counter()
        self._pipelines = self._make_pipelines(modules)
        device.wait_value(device.driver.precompile(list(self._pipelines.values())))
        self._stage("pipelines", start)
        start = time.perf_counter()
        self._fixed: dict[tuple[str, str | int], Any] = {}
        self._storages: list[Storage] = []
        self._allocate()
        self._stage("memory", start)
        self._recordings: OrderedDict[tuple[int, ...], list[Recording | HostSegment]] = (
            OrderedDict()
        )

    def _stage(self, name: str, start: float) -> None:
        self.build_seconds[name] = time.perf_counter() - start

    def _make_pipelines(self, modules: Mapping[Any, bytes]) -> dict[Any, Any]:
        requests: dict[Any, PipelineRequest] = {}
        for segment in self.program.segments:
            for step in segment.steps if isinstance(segment, DeviceSegment) else ():
                if isinstance(step, DispatchStep):
                    spec = step.spec
                    requests.setdefault(
                        (spec, step.constants),
                        PipelineRequest(
                            modules[spec],
                            spec.binding_count,
                            spec.param_bytes if spec.param_storage == "push" else 0,
                            step.constants,
                            spec.template,
                        ),
                    )
        made = self.device.driver.pipelines(list(requests.values()))
        return dict(zip(requests, made, strict=True))

    def _allocate(self) -> None:
        program, device = self.program, self.device
        for i, size in enumerate(program.arenas):
            self._fixed["arena", i] = device.driver.allocate(size, label="arena")
        if program.params:
            storage = device.create_storage(len(program.params))
            self.uploads.append(Write(storage, np.frombuffer(program.params, np.uint8)))
            self._keep(("params", 0), storage)
        if program.host_size:
            self._fixed["host", 0] = device.driver.allocate(program.host_size, host=True)
        for i, value in enumerate(program.constants):
            storage = value.source
            if storage is None:
                storage = device.create_storage(value.descriptor.byte_length)
                flat = np.ascontiguousarray(value.data).reshape(-1)
                self.uploads.append(Write(storage, flat.view(np.uint8)))
            self._keep(("constant", i), storage)

    def _keep(self, place: tuple[str, str | int], storage: Storage) -> None:
        self._storages.append(storage)
        self._fixed[place] = storage.backing

    # -- recordings ----------------------------------------------------------------------------
    def recordings(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> list[Recording | HostSegment]:
        """One recording per device segment for this set of tensors, from the cache or made now."""
        key = tuple(
            [inputs[name].serial for name in self.program.inputs]
            + [outputs[name].serial for name in self.program.outputs]
        )
        with self.device.lock:
            found = self._recordings.get(key)
            if found is not None:
                self._recordings.move_to_end(key)
                return found
        found = self._record(inputs, outputs)
        with self.device.lock:
            self._recordings[key] = found
            for serial in key:
                self.device.users.setdefault(serial, []).append((self, key))
            if len(self._recordings) > MAX_RECORDINGS:
                self.forget(next(iter(self._recordings)))
        return found

    def forget(self, key: tuple[int, ...]) -> None:
        """Give up the recording for a set of tensors, one of which is gone (lock held)."""
        for recording in self._recordings.pop(key, ()):
            if not isinstance(recording, HostSegment):
                recording.free()

    def _record(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> list[Recording | HostSegment]:
        places = dict(self._fixed)
        places |= {("input", name): s.backing for name, s in inputs.items()}
        places |= {("output", name): s.backing for name, s in outputs.items()}

        def bind(place: Location) -> tuple[Any, int, int]:
            return places[place.space, place.key], place.offset, place.size

        recorded: list[Recording | HostSegment] = []
        for segment in self.program.segments:
            if isinstance(segment, HostSegment):
                recorded.append(segment)
                continue
            commands: list[Command] = []
            for step in segment.steps:
                match step:
                    case DispatchStep():
                        pipeline = self._pipelines[step.spec, step.constants]
                        bindings = tuple(map(bind, step.bindings))
                        commands.append(
                            DispatchCommand(pipeline, bindings, step.push, step.groups)
                        )
                    case CopyStep(source, target):
                        a, at, size = bind(source)
                        b, to, room = bind(target)
                        commands.append(CopyCommand(a, at, b, to, min(size, room)))
                    case _:
                        commands.append(BarrierCommand())
            recorded.append(self.device.driver.record(commands))
        return recorded

    # -- CPU segments --------------------------------------------------------------------------
    def run_host(self, segment: HostSegment, arrays: Arrays) -> None:
        """Compute a CPU segment between two device segments; the device is at rest."""
        if segment.reads or segment.writes:
            block = self._fixed["host", 0]
            block.invalidate()
            memory = np.frombuffer(block.mapped, np.uint8)

        def view(value: Any, place: Location) -> np.ndarray:
            d = value.descriptor
            data = memory[place.offset : place.offset + d.byte_length]
            return data.view(d.numpy_dtype).reshape(d.shape)

        for value, place in segment.reads.items():
            arrays[value] = view(value, place)

        def made(value: Any, array: np.ndarray) -> None:
            if value in segment.writes:
                view(value, segment.writes[value])[...] = array

        run_host_segment(segment, arrays, made)
        if segment.writes:
            block.flush()


class GpuDevice:
    """See ``device.Device``. One driver, one queue; ``users`` maps a storage's serial number to
    the recordings that name it."""

    def __init__(self, driver: Driver, shaders: ShaderStore) -> None:
        self.driver = driver
        self.shaders = shaders
        self.profile = driver.profile
        self.name = driver.profile.name
        self.users: dict[int, list[tuple[GpuExecutable, tuple[int, ...]]]] = {}
        self._graveyard: deque[tuple[int, Any]] = deque()
        #: Guards ``users`` and every executable's recordings.
        self.lock = threading.Lock()

    @property
    def max_tensor_byte_length(self) -> int:
        return self.profile.max_tensor_byte_length

    # -- memory --------------------------------------------------------------------------------
    def create_storage(self, size: int) -> Storage:
        self.bury()
        try:
            backing = self.driver.allocate(padded(size), label="tensor")
        except (OutOfDeviceMemory, OutOfHostMemory) as error:
            raise MemoryError(str(error)) from error
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        return Storage(size, backing, self._graveyard.append)

    def bury(self) -> None:
        """Give back the memory of storages that nothing refers to any more."""
        while self._graveyard:
            try:
                serial, backing = self._graveyard.popleft()
            except IndexError:
                return
            backing.free()
            with self.lock:
                for executable, key in self.users.pop(serial, ()):
                    executable.forget(key)

    def memory_in_use(self) -> int:
        self.bury()
        return self.driver.memory_in_use().allocated

    def stage(self, data: np.ndarray) -> Any:
        if data.nbytes > PIECE_BYTES:
            return None
        try:
            staged = self.driver.allocate(data.nbytes, host=True, label="staging")
        except VulkanError:
            # The timeline thread will try again when earlier work has given memory back.
            return None
        np.frombuffer(staged.mapped, np.uint8)[: data.nbytes] = data
        staged.flush()
        return staged

    def load(self, program: Program) -> Executable:
        self.bury()
        try:
            return GpuExecutable(self, program)
        except (OutOfDeviceMemory, OutOfHostMemory) as error:
            raise MemoryError(str(error)) from error
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error

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
                work.fail(OperationError(f"{type(error).__name__}: {error}"))
        try:
            run.submit()
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        self.bury()
        return batch

    def wait(self, batch: Batch) -> None:
        if batch.value is not None:
            self.wait_value(batch.value)
        self.bury()

    def wait_value(self, value: int) -> None:
        try:
            self.driver.wait(value)
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error

    def close(self) -> None:
        self.driver.close()


class _Run:
    """One batch being put together: transfers and recordings in order, submitted at the end or
    when staging memory or a CPU segment asks for it."""

    def __init__(self, device: GpuDevice, batch: Batch) -> None:
        self.device = device
        self.driver = device.driver
        self.batch = batch
        self._commands: list[Command] = []
        self._recordings: list[Recording] = []
        self._transient: list[Recording] = []
        self._staged: list[Any] = []
        self._staged_bytes = 0
        # What has to happen to staged memory when the device is done with it.
        self._after: list[Callable[[], Any]] = []

    def add(self, work: Work) -> None:
        match work:
            case Write():
                self._write(work)
            case Read():
                self._read(work)
            case Dispatch():
                self._dispatch(work)
            case Run(function):
                self._after.append(function)
            case Submit(recordings, writes):
                self._flush()
                self._recordings.extend(recordings)
                for storage in writes:
                    storage.error = None
            case Await(wait):
                # What was queued before must reach the device first: the other side may wait
                # for it in turn.
                self._finish()
                wait()

    # -- transfers -----------------------------------------------------------------------------
    def _write(self, work: Write) -> None:
        storage = work.storage
        storage.error = None
        if work.data is None and work.staged is None:
            self._transfer(FillCommand(storage.backing, 0, padded(storage.size)))
            return
        if work.staged is not None:
            self._keep(work.staged)
            self._transfer(CopyCommand(work.staged, 0, storage.backing, 0, storage.size))
            return
        for start in range(0, storage.size, PIECE_BYTES):
            piece = work.data[start : start + PIECE_BYTES]
            staged = self._stage(len(piece))
            np.frombuffer(staged.mapped, np.uint8)[: len(piece)] = piece
            staged.flush()
            self._transfer(CopyCommand(staged, 0, storage.backing, start, len(piece)))
        work.data = None

    def _read(self, work: Read) -> None:
        storage = work.storage
        if storage.error is not None:
            work.fail(storage.error)
            return
        result = np.empty(storage.size, np.uint8)
        for start in range(0, storage.size, PIECE_BYTES):
            size = min(PIECE_BYTES, storage.size - start)
            staged = self._stage(size)
            self._transfer(CopyCommand(storage.backing, start, staged, 0, size))

            def collect(staged: Any = staged, start: int = start, size: int = size) -> None:
                staged.invalidate()
                result[start : start + size] = np.frombuffer(staged.mapped, np.uint8)[:size]

            self._after.append(collect)
        self._after.append(lambda: work.done(result))

    def _transfer(self, command: Command) -> None:
        # Transfers of one batch may depend on each other (write, then read).
        if self._commands:
            self._commands.append(BarrierCommand())
        self._commands.append(command)

    def _stage(self, size: int) -> Any:
        if self._staged_bytes + size > STAGED_BYTES:
            self._finish()
        staged = self.driver.allocate(size, host=True, label="staging")
        self._keep(staged)
        return staged

    def _keep(self, staged: Any) -> None:
        self._staged.append(staged)
        self._staged_bytes += staged.size

    # -- graphs --------------------------------------------------------------------------------
    def _dispatch(self, work: Dispatch) -> None:
        error = poisoned(work.inputs)
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

    # -- submission ----------------------------------------------------------------------------
    def _flush(self) -> None:
        if self._commands:
            recording = self.driver.record(self._commands)
            self._commands = []
            self._recordings.append(recording)
            self._transient.append(recording)

    def submit(self) -> None:
        """Submit what was added; its completions go to the batch."""
        self._flush()
        if self._recordings:
            self.batch.value = self.driver.submit(self._recordings)
        transient, staged = self._transient, self._staged
        self.batch.completions += self._after
        self.batch.completions.append(lambda: _release(transient, staged))
        self._recordings, self._transient, self._staged, self._after = [], [], [], []
        self._staged_bytes = 0

    def _finish(self) -> None:
        """Submit and wait, for what the host has to see or reuse now."""
        self.submit()
        if self.batch.value is not None:
            self.driver.wait(self.batch.value)
        completions, self.batch.completions = self.batch.completions, []
        for completion in completions:
            completion()


def _release(recordings: Sequence[Recording], staged: Sequence[Any]) -> None:
    for recording in recordings:
        recording.free()
    for allocation in staged:
        allocation.free()
