"""MLContext: tensors, dispatch and the timeline of one device (§8.3)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import background
from .buffers import as_bytes, writable_bytes
from .data_types import (
    MLOperandDescriptor,
    MLTensorDescriptor,
    check_dimensions,
    to_descriptor,
)
from .device_info import DeviceInfo
from .errors import (
    DOMException,
    InvalidStateError,
    OperationError,
    UnknownError,
    sanitize,
)
from .graph import Graph
from .interop import host_memory
from .limits import op_support_limits
from .ml_graph import MLGraph, check_names, match
from .program import Constants, Program, Target, compile_program
from .promise import MLPromise
from .runtime import (
    Allocate,
    Executable,
    Fence,
    Read,
    Run,
    RunGraph,
    Storage,
    Timeline,
    Write,
)
from .runtime.device import DeviceLostError
from .settings import Settings
from .sharing import Exchange, SharingContext
from .tensor import MLTensor


@dataclass(frozen=True)
class MLContextLostInfo:
    """Why a context was lost (§8.3.9)."""

    message: str


class MLContext(SharingContext):
    """A device and the strict order of work on it; made by ``ml.create_context``.

    Every method may be called from any thread. Calls return at once; promises resolve from the
    context's timeline, in the order of the calls. At most 4 submits are on the device at a time
    (``runtime.timeline.MAX_IN_FLIGHT``); further calls wait in a queue as small records, and go to
    the device together. A callback of a promise must not wait for the same context.
    """

    def __init__(
        self,
        timeline: Timeline,
        info: DeviceInfo,
        settings: Settings,
        *,
        accelerated: bool = True,
        has_compiler: bool = True,
        available: Callable[[Any], bool] = lambda spec: True,
        gpu_device: Any = None,
    ) -> None:
        device = timeline.device
        self._timeline = timeline
        self._device = device
        self._info = info
        self._settings = settings
        self._accelerated = accelerated
        self._gpu_device = gpu_device
        # Makes finding tensors free and queueing work with them one step.
        self._order = threading.RLock()
        self._target = Target(
            device.profile,
            available,
            fold="fold" not in settings.skip_passes,
            fuse="fuse" not in settings.skip_passes and has_compiler,
            force_cpu=settings.force_cpu,
        )
        self._lost: MLPromise[MLContextLostInfo] = MLPromise()
        # Guards the three sets against the loss, which empties them.
        self._state = threading.Lock()
        self._loss: str | None = None
        # Sets of references, not WeakSets: those can't be read while another thread adds.
        self._tensors: set[weakref.ref[MLTensor]] = set()
        self._graphs: set[weakref.ref[MLGraph]] = set()
        # Promises of tensors being made and graphs being built: loss rejects them.
        self._pending: set[MLPromise] = set()
        this = weakref.ref(self)
        user = timeline.join(lambda message: _lose(this, message))
        self._finalizer = weakref.finalize(self, _leave_in_background, timeline, user)
        self._finalizer.atexit = False

    # -- attributes ----------------------------------------------------------------------------
    @property
    def accelerated(self) -> bool:
        """What was asked for at creation (§8.3)."""
        return self._accelerated

    @property
    def lost(self) -> MLPromise[MLContextLostInfo]:
        """Resolves once, with a message, when the context is lost or destroyed (§8.3.9)."""
        return self._lost

    @property
    def device_info(self) -> DeviceInfo:
        """Name, driver, type, API version, limits and features in use (extension)."""
        return self._info

    def op_support_limits(self) -> dict[str, Any]:
        """Data types and ranks of every operand of every operator on this device, with
        ``max_tensor_byte_length`` in bytes and ``preferred_input_layout`` (§8.3.7)."""
        return op_support_limits(self._device)

    # -- tensors -------------------------------------------------------------------------------
    def create_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any]
    ) -> MLPromise[MLTensor]:
        """A zeroed tensor (§8.3.2). ``descriptor``: MLTensorDescriptor or a mapping with
        data_type, shape, readable, writable. Rejects with TypeError for an invalid descriptor,
        UnknownError when the device has no memory for it, InvalidStateError when lost."""

        def create() -> MLPromise[MLTensor]:
            wanted = self._checked(to_descriptor(descriptor, MLTensorDescriptor), "create_tensor")
            if wanted.importable_to_web_gpu:
                return self._create_importable(wanted)
            return self._create(wanted, None, constant=False)

        return self._promise(create)

    def create_constant_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], input_data: Any
    ) -> MLPromise[MLTensor]:
        """A constant tensor for ``builder.constant(tensor)``, shared by any number of graphs
        (§8.3.3). ``input_data`` is copied before the call returns. Rejects as ``create_tensor``
        does, and with TypeError when the data does not fit."""

        def create() -> MLPromise[MLTensor]:
            wanted = self._checked(to_descriptor(descriptor), "create_constant_tensor")
            copied = as_bytes(input_data, wanted, "create_constant_tensor").copy()
            plain = MLTensorDescriptor(wanted.data_type, wanted.shape)
            return self._create(plain, copied, constant=True)

        return self._promise(create)

    def import_constant_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], buffer: Any
    ) -> MLPromise[MLTensor]:
        """A constant tensor that is ``buffer`` itself: no copy, no device memory (extension).

        For weights in a read-only memory-mapped file (``np.memmap``). The buffer is kept for as
        long as anything uses it, never written, and must not change. Rejects as
        ``create_constant_tensor`` does, with TypeError when the data does not lie where the device
        can use it (16-byte alignment; the message says what is needed), NotSupportedError when it
        has no VK_EXT_external_memory_host."""

        def create() -> MLPromise[MLTensor]:
            what = "import_constant_tensor"
            wanted = self._checked(to_descriptor(descriptor), what)
            try:
                with self._timeline.building():
                    storage = host_memory.share(self._device, wanted, buffer, what)
            except DeviceLostError as error:
                self._timeline.lose(str(error))
                raise InvalidStateError(f"the context is lost: {error}") from error
            plain = MLTensorDescriptor(wanted.data_type, wanted.shape)
            tensor = MLTensor(self, plain, storage, constant=True)
            self._register(self._tensors, tensor)
            return MLPromise.resolved(tensor)

        return self._promise(create)

    def _checked(self, descriptor: MLOperandDescriptor, what: str) -> Any:
        error = check_dimensions(descriptor)
        limit = self._device.max_tensor_byte_length
        if error is None and descriptor.byte_length > limit:
            error = f"{descriptor.byte_length} bytes exceed max_tensor_byte_length {limit}"
        if error is not None:
            raise TypeError(f"{what}: {descriptor}: {error}")
        return descriptor

    def _create(
        self,
        descriptor: MLTensorDescriptor,
        data: np.ndarray | None,
        *,
        constant: bool,
        exchange: Exchange | None = None,
    ) -> MLPromise[MLTensor]:
        promise = self._new_promise()
        exportable = exchange is not None and exchange.external
        storage, works = self._new_storage(descriptor.byte_length, exportable)
        tensor = MLTensor(self, descriptor, storage, constant=constant, exchange=exchange)
        self._register(self._tensors, tensor)

        def made() -> None:
            if storage.error is not None:
                failed(storage.error)
                return
            if exchange is not None:
                exchange.connect(storage)
            promise.resolve(tensor)

        def failed(error: Exception) -> None:
            if not isinstance(error, InvalidStateError):
                error = UnknownError(f"{descriptor}: {error}")
            promise.reject(error)

        self._timeline.enqueue(*works, Write(storage, data), Run(made, failed))
        return promise

    def _new_storage(self, size: int, exportable: bool) -> tuple[Storage, tuple[Allocate, ...]]:
        """Memory, found now or, after what was destroyed before is given back, by the work."""
        try:
            return self._device.create_storage(size, exportable=exportable), ()
        except MemoryError:
            storage = self._device.promise_storage(size)
            return storage, (Allocate(storage, exportable),)
        except DeviceLostError as error:
            self._timeline.lose(str(error))
            raise InvalidStateError(f"the context is lost: {error}") from error

    def write_tensor(self, tensor: MLTensor, input_data: Any) -> None:
        """Replace a writable tensor's contents, in order with other work (§8.3.6).
        ``input_data`` is copied before the call returns. TypeError when the tensor belongs to
        another context, is not writable, or the data does not fit; InvalidStateError when it was
        destroyed."""
        self._timeline.check_fork()
        self._own(tensor, "write_tensor")
        storage = tensor._use("write_tensor")
        if not tensor.writable:
            raise TypeError(f"write_tensor: {tensor!r} was not created with writable=True")
        view = as_bytes(input_data, tensor._descriptor, "write_tensor")
        with self._timeline.building():
            staged = self._device.stage(view)
        copied = view.copy() if staged is None else None
        with self._order:
            tensor._use("write_tensor")  # destroyed or lent meanwhile
            self._timeline.enqueue(Write(storage, copied, staged))

    def read_tensor(self, tensor: MLTensor, output: Any = None) -> MLPromise[Any]:
        """A readable tensor's contents once all work before is done (§8.3.4): a NumPy array of
        its data type and shape, or None after filling ``output`` (§8.3.5), a writable buffer of
        fitting type and at least the byte length that stays untouched on failure. Rejects with
        TypeError for a tensor of another context, one not readable or a wrong buffer, with
        InvalidStateError when the tensor or the context goes away first, and with the error of the
        dispatch that should have written it."""

        def read() -> MLPromise[Any]:
            self._own(tensor, "read_tensor")
            storage = tensor._use("read_tensor")
            if not tensor.readable:
                raise TypeError(f"read_tensor: {tensor!r} was not created with readable=True")
            d = tensor._descriptor
            view = None if output is None else writable_bytes(output, d, "read_tensor")
            promise: MLPromise[Any] = MLPromise()

            def done(data: np.ndarray) -> None:
                with tensor._lock:
                    # destroy() rejects what it finds pending; after that nothing may be written.
                    if promise not in tensor._pending:
                        return
                    tensor._pending.discard(promise)
                if view is None:
                    promise.resolve(data.view(d.numpy_dtype)[: d.size].reshape(d.shape))
                else:
                    view[...] = data[: d.byte_length]
                    promise.resolve(None)

            def failed(error: Exception) -> None:
                with tensor._lock:
                    tensor._pending.discard(promise)
                promise.reject(error)

            with self._order:
                with tensor._lock:
                    tensor._use("read_tensor")  # destroyed or lent meanwhile
                    tensor._pending.add(promise)
                self._timeline.enqueue(Read(storage, done, failed))
            return promise

        return self._promise(read)

    # -- graphs --------------------------------------------------------------------------------
    def dispatch(
        self, graph: MLGraph, inputs: Mapping[str, MLTensor], outputs: Mapping[str, MLTensor]
    ) -> None:
        """Queue one run of ``graph`` (§8.3.1): tensors by the names of its inputs and outputs, with
        exactly their data types and shapes. Returns at once. TypeError for tensors that don't fit,
        InvalidStateError for a destroyed graph; errors while it runs come out when an output is
        read."""
        self._own_graph(graph, "dispatch")
        if not isinstance(inputs, Mapping) or not isinstance(outputs, Mapping):
            raise TypeError("dispatch: inputs and outputs are mappings of names to tensors")
        executable = graph._use()
        tensors = [*inputs.values(), *outputs.values()]
        for tensor in tensors:
            self._own(tensor, "dispatch")
        if len({id(t) for t in tensors}) != len(tensors):
            raise TypeError("dispatch: a tensor is given more than once")
        with self._order:
            for tensor in tensors:
                tensor._use("dispatch")
            bound_inputs = match(inputs, graph._inputs, "input")
            bound_outputs = match(outputs, graph._outputs, "output")
            self._timeline.enqueue(RunGraph(executable, bound_inputs, bound_outputs))

    def compute(self, graph: MLGraph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run ``graph`` once on arrays and wait for its outputs (extension): name → array."""
        self._own_graph(graph, "compute")
        graph._use()
        if not isinstance(inputs, Mapping):
            raise TypeError("compute: inputs is a mapping of names to arrays")
        check_names(inputs, graph._inputs, "compute: inputs")
        given, made = {}, {}
        try:
            for name, data in inputs.items():
                d = graph._inputs[name]
                view = as_bytes(data, d, f"compute: input {sanitize(name)!r}")
                given[name] = self.create_tensor(
                    MLTensorDescriptor(d.data_type, d.shape, writable=True)
                ).result()
                self.write_tensor(given[name], view)
            for name, d in graph._outputs.items():
                made[name] = self.create_tensor(
                    MLTensorDescriptor(d.data_type, d.shape, readable=True)
                ).result()
            self.dispatch(graph, given, made)
            reads = {name: self.read_tensor(tensor) for name, tensor in made.items()}
            return {name: promise.result() for name, promise in reads.items()}
        finally:
            for tensor in (*given.values(), *made.values()):
                tensor.destroy()

    def _build(self, graph: Graph) -> MLPromise[MLGraph]:
        """Compile on a thread of its own: other work on the timeline goes on meanwhile."""
        return self._promise(lambda: self._start_build([graph]))

    def _start_build(self, graphs: list[Graph]) -> MLPromise[MLGraph]:
        """``graphs`` is emptied: with its only reference go the constants' host copies."""
        promise = self._new_promise()

        def failed(error: Exception) -> None:
            promise.reject(_build_error(error))

        def build() -> None:
            try:
                with self._timeline.building():
                    program, constants = compile_program(graphs.pop(), self._target)
                    executable = self._load(program, constants)
                report = program.report
                report.build_seconds.update(executable.build_seconds)
                made = MLGraph(self, executable, report)
                self._register(self._graphs, made)

                def set_up() -> None:
                    error = executable.setup_error()
                    if error is None:
                        promise.resolve(made)
                    else:
                        failed(error)

                executable.set_up(self._timeline, Run(set_up, failed))
            except DeviceLostError as error:
                self._timeline.lose(str(error))
                promise.reject(InvalidStateError(f"the context is lost: {error}"))
            except Exception as error:
                failed(error)

        if not background.start(build, "build"):
            promise.reject(InvalidStateError("the interpreter is exiting"))
        return promise

    def _load(self, program: Program, constants: Constants) -> Executable:
        try:
            return self._device.load(program, constants)
        except MemoryError:
            # Once what runs now is over, what was destroyed before is given back.
            self._timeline.fence().wait()
            return self._device.load(program, constants)

    # -- end -----------------------------------------------------------------------------------
    def destroy(self) -> None:
        """Lose the context on purpose (§8.3.8): its tensors and graphs are destroyed, what is
        pending rejects with InvalidStateError. Calling it again does nothing."""
        self._timeline.check_fork()
        self._lose("destroy() was called")
        self._finalizer()

    def __enter__(self) -> MLContext:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        return f"<MLContext on {self._device.name}{' lost' if self._lost.done() else ''}>"

    def _lose(self, message: str) -> None:
        with self._state:
            if self._loss is not None:
                return
            self._loss = message
        self._lost.resolve(MLContextLostInfo(message))
        for made in (*self._graphs.copy(), *self._tensors.copy()):
            if (alive := made()) is not None:
                alive.destroy()
        for promise in self._pending.copy():
            promise.reject(InvalidStateError(f"the context is lost: {message}"))

    def fence(self) -> Fence:
        """The point after all work queued so far (extension): its ``value`` on the timeline,
        ``done``, ``wait(timeout)`` in seconds."""
        return self._timeline.fence()

    # -- checks --------------------------------------------------------------------------------
    def _new_promise(self) -> MLPromise[Any]:
        promise: MLPromise[Any] = MLPromise()
        with self._state:
            self._check_lost()
            self._pending.add(promise)
        promise.add_done_callback(self._pending.discard)
        return promise

    def _register(self, where: set[weakref.ref[Any]], made: Any) -> None:
        """Have the loss of the context destroy ``made``."""
        with self._state:
            self._check_lost()
            where.add(weakref.ref(made, where.discard))

    def _check_lost(self) -> None:
        if self._loss is not None:
            raise InvalidStateError(f"the context is lost: {self._loss}")

    def _promise(self, call: Callable[[], MLPromise[Any]]) -> MLPromise[Any]:
        """What a method that returns a promise raises becomes the promise's rejection."""
        try:
            self._timeline.check_fork()
            self._check_lost()
            return call()
        except (TypeError, DOMException) as error:
            return MLPromise.rejected(error)

    def _own_graph(self, graph: Any, what: str) -> None:
        if not isinstance(graph, MLGraph):
            raise TypeError(f"{what}: an MLGraph is expected, not {type(graph).__name__}")
        if graph._context is not self:
            raise TypeError(f"{what}: the graph belongs to another context")

    def _own(self, tensor: Any, what: str) -> None:
        if not isinstance(tensor, MLTensor):
            raise TypeError(f"{what}: an MLTensor is expected, not {type(tensor).__name__}")
        if tensor._context is not self:
            raise TypeError(f"{what}: {tensor!r} belongs to another context")


def _build_error(error: Exception) -> Exception:
    if isinstance(error, (InvalidStateError, OperationError)):
        return error
    if isinstance(error, MemoryError):
        return OperationError(f"build: out of memory: {error}")
    wrapped = OperationError(f"build: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _lose(this: weakref.ref[MLContext], message: str) -> None:
    context = this()
    if context is not None:
        context._lose(message)


def _leave_in_background(timeline: Timeline, user: int) -> None:
    # The last to leave waits for the device; neither the collector nor destroy() should.
    if not timeline.forked:
        background.start(timeline.leave, "close", user)
