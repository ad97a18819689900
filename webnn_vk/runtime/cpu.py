"""The CPU device: programs run on an engine or in NumPy, tensors are NumPy memory."""

from __future__ import annotations

import platform
import time
import weakref
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import Constants, GraphReport, Program
from webnn_vk.compiler.types.data_types import LOW_PRECISION, MAX_DIMENSION
from webnn_vk.driver.resources import HostAccess
from webnn_vk.support import background
from webnn_vk.support.errors import DOMException, InvalidStateError, OperationError
from webnn_vk.support.heap import trim_heap

from . import reclaim
from .device import Batch
from .engine import NUMPY, HostEngine, Refused, RefusedRun
from .host import Arrays
from .observer import BatchObserver, Observer
from .storage import Storage, again, poisoned, unfound
from .throttle import Cost
from .work import LENT, Allocate, Await, Executable, Order, Read, Refuse, Run, RunGraph, Work, Write


class CpuExecutable:
    """A program of one HostSegment. Its constants are used in place; constants with keys in
    ``known`` are read there."""

    def __init__(
        self, program: Program, constants: Constants, engine: HostEngine = NUMPY,
        known: MutableMapping[str, np.ndarray] | None = None, refused: Refused | None = None,
    ) -> None:
        self.program = program
        self.refused: Refused = {} if refused is None else refused
        self._source = constants, engine, known, self.refused
        # Before the engine reads them.
        self._shared = [] if known is None else constants.share(known)
        self.build_seconds: dict[str, float] = {}
        self.on_host = True
        self.workspace = None
        self.written_only: frozenset[str] = frozenset()
        self.cost = Cost(program.flops)
        self.modules: Mapping[Any, bytes] = {}
        described = [*program.inputs.values(), *program.outputs.values()]
        #: Whether ``compute`` should bypass the order of work: the engine copies nothing, and a run
        #: may take less time than passing through the timeline's threads.
        self.at_once = engine is not NUMPY and not any(
            d.data_type in LOW_PRECISION for d in described
        )
        self._constants: list[Storage | np.ndarray] = [
            constants.read(number) if (storage := constants.storage(number)) is None else storage
            for number in range(len(constants))
        ]
        start = time.perf_counter()
        self._prepared = engine.prepare(program, constants, self.refused)
        if engine is not NUMPY:
            self.build_seconds["engine"] = time.perf_counter() - start
        self._runs = list(self._prepared.runs.values())
        self._whole = self._prepared.whole

    @property
    def report(self) -> GraphReport:
        """See ``work.Executable``."""
        return self._prepared.report(self.program)

    def at(self, program: Program, order: Order) -> CpuExecutable:
        """See ``work.Executable``."""
        return CpuExecutable(program, *self._source)

    def run(self, memory: Mapping[tuple[str, str], np.ndarray]) -> None:
        """Run all steps; ``memory`` holds the bytes of inputs and outputs by kind and name."""
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
        """One run at once, in the caller's thread, on aligned and contiguous arrays by name;
        outputs are returned in the same form. OperationError if it fails, MemoryError."""
        run = self._by_steps if self._whole is None else self._whole
        try:
            try:
                return run(inputs)
            except RefusedRun:
                self._whole = None
                return self._by_steps(inputs)
        except (DOMException, MemoryError):
            raise
        except Exception as error:
            raise OperationError(f"{type(error).__name__}: {error}") from error

    def _by_steps(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        memory = {("input", name): _bytes(array) for name, array in inputs.items()}
        outputs = {}
        for name, d in self.program.outputs.items():
            outputs[name] = np.empty(d.shape, d.numpy_dtype)
            memory["output", name] = _bytes(outputs[name])
        self.run(memory)
        return outputs

    def constant(self, number: int) -> np.ndarray:
        """The bytes of a constant."""
        constant = self._constants[number]
        return constant.backing if isinstance(constant, Storage) else constant

    def set_up(self, order: Order, *after: Work) -> None:
        """See ``work.Executable``."""
        order.enqueue(*after)

    def setup_error(self) -> Exception | None:
        """See ``work.Executable``."""
        return poisoned(c for c in self._constants if isinstance(c, Storage))

    def contents(self) -> Mapping[int, Storage | np.ndarray]:
        """See ``work.Executable``."""
        slots = enumerate(self.program.slots)
        return {n: self._constants[slot.index] for n, slot in slots if slot.kind == "constant"}


class CpuDevice:
    """See ``device.Device``; everything is over when ``execute`` returns."""

    profile = None
    interruptible = True

    def __init__(self, engine: HostEngine = NUMPY) -> None:
        self.engine = engine
        self.name = f"CPU ({platform.machine()}, {engine.description})"
        self.wait_idle: Callable[[], None] = lambda: None
        self.observer: Observer | None = None
        self.direct = None
        # Living storages, by weak references. No lock: a signal handler may run anywhere.
        self._live: set[weakref.ref[Storage]] = set()
        # Constants by key: graphs of several shapes share the weights and the constants folded from
        # them.
        self._known: weakref.WeakValueDictionary[str, np.ndarray] = weakref.WeakValueDictionary()
        # How many there were at the last trim, and whether there was work since.
        self._alive_at_trim = 0
        self._used = False

    @property
    def max_tensor_byte_length(self) -> int:
        return MAX_DIMENSION

    def create_storage(
        self, size: int, *, exportable: bool = False, host_access: HostAccess = "",
        in_place: bool = True,
    ) -> Storage:
        storage = self.promise_storage(size)
        storage.backing = _memory(size)
        return storage

    def promise_storage(self, size: int) -> Storage:
        storage = Storage(size, None)
        self._live.add(weakref.ref(storage, self._live.discard))
        return storage

    def import_storage(self, data: np.ndarray) -> Storage:
        # Foreign memory is not counted.
        return Storage(data.nbytes, data)

    def memory_in_use(self) -> int:
        alive = [reference() for reference in self._live.copy()]
        return sum(storage.size for storage in alive if storage is not None)

    def stage(self, data: np.ndarray) -> Sequence[Any]:
        return ()

    def keep_shaders(self, modules: Mapping[Any, bytes]) -> None:
        pass

    def find_shaders(self, program: Program) -> None:
        pass

    def try_out(self, program: Program) -> None:
        pass

    def available(self, spec: KernelSpec) -> bool:
        return False

    def planning(self) -> AbstractContextManager[None]:
        return nullcontext()

    def load(
        self, program: Program, constants: Constants, modules: Mapping[Any, bytes] | None = None,
        like: Executable | None = None,
    ) -> Executable:
        return CpuExecutable(
            program, constants, self.engine, self._known, None if like is None else like.refused
        )

    def execute(self, works: Sequence[Work]) -> Batch:
        batch = Batch(works)
        if self.observer is not None:
            batch.observer = self.observer.begin(works)
        self._used = True
        for work in works:
            try:
                self._run(work, batch)
            except Exception as error:
                batch.refuses(work, error)
        if batch.observer is not None:
            batch.observer.submitted()
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
                target = work.target(size)
                if target is not None:
                    target[...] = storage.backing[start : start + len(target)]
                    batch.completions.append((work, partial(done, target)))
            case Run(function):
                batch.completions.append((work, function))
            case Await(wait):
                wait()
            case Refuse():
                raise InvalidStateError(LENT)
            case RunGraph(executable, inputs, outputs):
                error = poisoned(inputs.values()) or unfound(outputs.values())
                if not batch.refuses(work, error):
                    self._dispatch(executable, inputs, outputs, batch.observer)

    @staticmethod
    def _dispatch(
        executable: Any, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage],
        observer: BatchObserver | None = None,
    ) -> None:
        memory = {("input", name): storage.backing for name, storage in inputs.items()}
        memory |= {("output", name): storage.backing for name, storage in outputs.items()}
        for past, present in executable.program.donated.items():
            if inputs[past] is outputs[present]:
                memory["input", past] = inputs[past].backing.copy()
        start = time.perf_counter()
        executable.run(memory)
        if observer is not None:
            observer.host(executable, None, start, time.perf_counter())
        for storage in outputs.values():
            storage.error = None

    def is_over(self, batch: Batch) -> bool:
        return True

    def wait(self, batch: Batch) -> None:
        if batch.observer is not None:
            batch.observer.done()

    def trim(self) -> None:
        """See ``device.Device``. Memory is freed with its last reference; only the C library's heap
        keeps free parts."""
        alive = len(self._live)
        if self._used or alive != self._alive_at_trim:
            self._used, self._alive_at_trim = False, alive
            trim_heap()

    def close(self) -> None:
        trim_heap()


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _memory(size: int) -> np.ndarray:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:
        # Other devices free their unused memory under locks.
        return background.run_on_worker(reclaim.retry_on_oom, lambda: np.empty(size, np.uint8))
