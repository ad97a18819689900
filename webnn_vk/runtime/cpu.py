"""The CPU device: programs run with NumPy, tensors are NumPy memory."""

from __future__ import annotations

import platform
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..data_types import MAX_DIMENSION
from ..program import HostSegment, Program
from .device import Batch
from .host import Arrays, run_host_segment
from .storage import Storage, again, poisoned
from .work import Allocate, Await, Executable, Read, Run, RunGraph, Work, Write


class CpuExecutable:
    """A program of one HostSegment."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uploads: list[Write] = []
        self.build_seconds: dict[str, float] = {}
        self.on_host = True
        self.flops = sum(step.flops for step in program.report.steps)


class CpuDevice:
    """See ``device.Device``; everything is over when ``execute`` returns."""

    profile = None

    def __init__(self) -> None:
        self.name = f"CPU ({platform.processor() or platform.machine()}, NumPy {np.__version__})"
        self.settle: Callable[[], None] = lambda: None
        self._in_use = 0
        self._graveyard: deque[tuple[int, np.ndarray]] = deque()
        self._lock = threading.Lock()

    @property
    def max_tensor_byte_length(self) -> int:
        return MAX_DIMENSION

    def create_storage(self, size: int, *, exportable: bool = False) -> Storage:
        return Storage(size, self._allocate(size), self._graveyard.append)

    def promise_storage(self, size: int) -> Storage:
        return Storage(size, None, self._graveyard.append)

    def import_storage(self, data: np.ndarray) -> Storage:
        # Not ours: it isn't counted.
        return Storage(data.nbytes, data, lambda gone: None)

    def _allocate(self, size: int) -> np.ndarray:
        backing = np.empty(size, np.uint8)
        with self._lock:
            self._bury()
            self._in_use += size
        return backing

    def _bury(self) -> None:
        while self._graveyard:
            _, backing = self._graveyard.popleft()
            self._in_use -= backing.nbytes

    def memory_in_use(self) -> int:
        with self._lock:
            self._bury()
            return self._in_use

    def stage(self, data: np.ndarray) -> Any:
        return None

    def load(self, program: Program) -> Executable:
        return CpuExecutable(program)

    def execute(self, works: Sequence[Work]) -> Batch:
        batch = Batch(works)
        for work in works:
            try:
                self._run(work, batch)
            except Exception as error:
                work.fail(error)
        return batch

    def _run(self, work: Work, batch: Batch) -> None:
        match work:
            case Allocate(storage):
                storage.backing = self._allocate(storage.size)
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
            case RunGraph(executable, inputs, outputs):
                error = poisoned(inputs.values())
                if error is not None:
                    work.fail(error)
                else:
                    self._dispatch(executable.program, inputs, outputs)

    @staticmethod
    def _dispatch(program: Program, inputs: Any, outputs: Any) -> None:
        arrays: Arrays = {
            value: _view(inputs[name], value) for name, value in program.inputs.items()
        }
        for value in program.constants:
            if value.source is not None:
                arrays[value] = _view(value.source, value)
        (segment,) = program.segments
        assert isinstance(segment, HostSegment)
        run_host_segment(segment, arrays, lambda value, array: None)
        for name, value in program.outputs.items():
            _view(outputs[name], value)[...] = (
                value.data if value.data is not None else arrays[value]
            )
            outputs[name].error = None

    def wait(self, batch: Batch) -> None:
        pass

    def close(self) -> None:
        pass


def _view(storage: Storage, value: Any) -> np.ndarray:
    descriptor = value.descriptor
    data = storage.backing[: descriptor.byte_length].view(descriptor.numpy_dtype)
    return data.reshape(descriptor.shape)
