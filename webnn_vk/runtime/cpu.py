"""The CPU device: programs run on an engine or with NumPy, tensors are NumPy memory."""

from __future__ import annotations

import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import KernelSpec

from ..data_types import MAX_DIMENSION
from ..errors import DOMException, InvalidStateError, OperationError
from ..program import Constants, Program, with_kernels
from . import reclaim
from .device import Batch
from .engine import NUMPY, HostEngine
from .host import Arrays
from .storage import Gone, Storage, again, heed, poisoned, unfound
from .work import (
    LENT,
    Allocate,
    Await,
    Executable,
    Order,
    Read,
    Refuse,
    Run,
    RunGraph,
    Work,
    Write,
)


class CpuExecutable:
    """A program of one HostSegment. Its constants stay where they are."""

    def __init__(
        self, program: Program, constants: Constants, engine: HostEngine = NUMPY
    ) -> None:
        self.program = program
        self.build_seconds: dict[str, float] = {}
        self.on_host = True
        self.workspace = None
        self.flops = program.flops
        self.modules: Mapping[Any, bytes] = {}
        #: Whether ``compute`` is worth leaving the order of work for: the engine copies nothing,
        #: and a run may take less than the way through the timeline's threads.
        self.at_once = engine is not NUMPY
        self._storages = {
            number: storage
            for number in range(len(constants))
            if (storage := constants.storage(number)) is not None
        }
        self._arrays = {
            number: constants.read(number)
            for number in range(len(constants))
            if number not in self._storages
        }
        start = time.perf_counter()
        prepared = engine.prepare(program, constants)
        if engine is not NUMPY:
            self.build_seconds["engine"] = time.perf_counter() - start
        self.report = with_kernels(program.report, program, prepared.notes)
        self._runs = list(prepared.runs.values())

    def run(self, memory: Mapping[tuple[str, str], np.ndarray]) -> None:
        """Take all steps; ``memory`` holds the bytes of inputs and outputs by kind and name."""
        slots = self.program.slots

        def of_slot(number: int) -> np.ndarray | None:
            slot = slots[number]
            if slot.kind == "constant":
                return self.constant(slot.index)
            return memory.get((slot.kind, slot.name))

        arrays: Arrays = {}
        for run in self._runs:
            run(arrays, of_slot)

    def compute(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One run at once, in the caller's thread, on flat bytes by name: the outputs as arrays.
        OperationError where it fails, MemoryError."""
        memory = {("input", name): data for name, data in inputs.items()}
        outputs = {}
        for name, d in self.program.outputs.items():
            outputs[name] = np.empty(d.shape, d.numpy_dtype)
            memory["output", name] = outputs[name].reshape(-1).view(np.uint8)
        try:
            self.run(memory)
        except (DOMException, MemoryError):
            raise
        except Exception as error:
            raise OperationError(f"{type(error).__name__}: {error}") from error
        return outputs

    def constant(self, number: int) -> np.ndarray:
        """The bytes of a constant."""
        storage = self._storages.get(number)
        return self._arrays[number] if storage is None else storage.backing

    def originals(self, number: int) -> np.ndarray | list[tuple[Storage, str]]:
        """See ``work.Executable``."""
        return self.constant(number)

    def set_up(self, order: Order, *after: Work) -> None:
        """See ``work.Executable``."""
        order.enqueue(*after)

    def setup_error(self) -> Exception | None:
        """See ``work.Executable``."""
        errors = (storage.error for storage in self._storages.values())
        return next((error for error in errors if error is not None), None)

    def contents(self) -> Mapping[int, Storage | np.ndarray]:
        """See ``work.Executable``."""
        constants = {**self._arrays, **self._storages}
        slots = enumerate(self.program.slots)
        return {n: constants[slot.index] for n, slot in slots if slot.kind == "constant"}


class CpuDevice:
    """See ``device.Device``; everything is over when ``execute`` returns."""

    profile = None

    def __init__(self, engine: HostEngine = NUMPY) -> None:
        self.engine = engine
        self.name = f"CPU ({platform.machine()}, {engine.description})"
        self.settle: Callable[[], None] = lambda: None
        self._in_use = 0
        self._graveyard: deque[Gone] = deque()
        # Whether there was work since the last rest.
        self._used = False
        self._lock = threading.Lock()

    @property
    def max_tensor_byte_length(self) -> int:
        return MAX_DIMENSION

    def create_storage(self, size: int, *, exportable: bool = False) -> Storage:
        storage = self.promise_storage(size)
        storage.backing = _memory(size)
        return storage

    def promise_storage(self, size: int) -> Storage:
        storage = Storage(size, None, self._graveyard.append)
        with self._lock:
            self._bury()
            self._in_use += size
        return storage

    def import_storage(self, data: np.ndarray) -> Storage:
        # Not ours: it isn't counted.
        return Storage(data.nbytes, data, heed)

    def _bury(self) -> None:
        while self._graveyard:
            gone = self._graveyard.popleft()
            heed(gone)
            self._in_use -= gone.size

    def memory_in_use(self) -> int:
        with self._lock:
            self._bury()
            return self._in_use

    def stage(self, data: np.ndarray) -> Any:
        return None

    def find_shaders(self, program: Program) -> None:
        pass

    def available(self, spec: KernelSpec) -> bool:
        return False

    def load(
        self, program: Program, constants: Constants, modules: Mapping[Any, bytes] | None = None
    ) -> Executable:
        return CpuExecutable(program, constants, self.engine)

    def execute(self, works: Sequence[Work]) -> Batch:
        batch = Batch(works)
        self._used = True
        for work in works:
            try:
                self._run(work, batch)
            except Exception as error:
                work.fail(error)
        return batch

    def _run(self, work: Work, batch: Batch) -> None:
        match work:
            case Allocate(storage):
                storage.backing = _memory(storage.size)
            case Write(storage, data):
                if storage.backing is None:
                    return
                start, size = work.part or (0, storage.size)
                storage.backing[start : start + size] = 0 if data is None else data
                if size == storage.size:
                    storage.error = None
            case Read(storage, done):
                if storage.error is not None:
                    raise again(storage.error)
                start, size = work.part or (0, storage.size)
                copied = storage.backing[start : start + size].copy()
                batch.completions.append((work, partial(done, copied)))
            case Run(function):
                batch.completions.append((work, function))
            case Await(wait):
                wait()
            case Refuse():
                raise InvalidStateError(LENT)
            case RunGraph(executable, inputs, outputs):
                error = poisoned(inputs.values()) or unfound(outputs.values())
                if error is not None:
                    work.fail(error)
                else:
                    self._dispatch(executable, inputs, outputs)

    @staticmethod
    def _dispatch(
        executable: Any, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> None:
        memory = {("input", name): storage.backing for name, storage in inputs.items()}
        memory |= {("output", name): storage.backing for name, storage in outputs.items()}
        executable.run(memory)
        for storage in outputs.values():
            storage.error = None

    def wait(self, batch: Batch) -> None:
        pass

    def rest(self) -> None:
        """See ``device.Device``. Its memory goes with the last reference: what stays is the heap's
        of the C library."""
        if self._used or self._graveyard:
            self._used = False
            self.memory_in_use()
            reclaim.trim_heap()

    def close(self) -> None:
        reclaim.trim_heap()


def _memory(size: int) -> np.ndarray:
    return reclaim.insist(lambda: np.empty(size, np.uint8))
