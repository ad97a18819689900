"""MLContext: tensors, dispatch and the timeline of one device (§8.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.compiler.types.buffers import as_bytes, writable_bytes
from webnn_vk.compiler.types.data_types import (
    MLOperandDescriptor,
    MLTensorDescriptor,
    entries,
    to_descriptor,
)
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.runtime.batch_assembly import IN_PLACE_BYTES
from webnn_vk.runtime.context_state import ContextState, MLContextLostInfo
from webnn_vk.runtime.device import Device
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.mapping import is_host_memory, staged_write
from webnn_vk.runtime.staging import Reservation
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.stream import Fence
from webnn_vk.runtime.tensor_state import Owner, TensorState, owned
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.runtime.work import Await, Write
from webnn_vk.support import background, forks
from webnn_vk.support.errors import NotSupportedError, OperationError, shortage_error
from webnn_vk.support.mixins import AsyncManager, OneOfAKind, PublicDir
from webnn_vk.support.promise import MLPromise, settle_in_background
from webnn_vk.support.settings import Settings

from .compute import checked_arrays, run_in_order, run_once
from .compute_policy import effective_policy
from .create_tensor import checked_descriptor, create_tensor, import_constant
from .donation import check_repeated
from .limits import op_support_limits
from .ml_graph import MLGraph, executable_of, input_shapes, storages
from .tensor import MLTensor
from .tensor_export import external_binding

if TYPE_CHECKING:  # imported on first use: running a model needs none of it
    from webnn_vk.compiler.program import Target
    from webnn_vk.gpu.semaphore import GPUSemaphore
    from webnn_vk.profiler import Profile
    from webnn_vk.runtime.tuning.tuner import Tuner

__all__ = ["MLContext", "MLContextLostInfo"]

_MAPPINGS = "dispatch: inputs and outputs are mappings of names to tensors"


class MLContext(PublicDir, OneOfAKind, AsyncManager):
    """A device and a strict order of work on it, made by ``ml.create_context``.

    Every method may be called from any thread. Calls return at once; promises resolve from the
    context's timeline, in the order of the calls. At most 4 submits are on the device at a time
    (``runtime.schedule.MAX_IN_FLIGHT``). Further calls wait in a queue as small records and are
    submitted together. A callback of a promise must not wait for the same context.
    """

    def __init__(
        self,
        timeline: Timeline,
        info: DeviceInfo,
        settings: Settings,
        *,
        accelerated: bool = True,
        gpu_device: Any = None,
    ) -> None:
        self._state = ContextState(
            timeline, info, partial(_compiling, timeline.device, settings),
            frozenset(settings.experimental),
        )
        self._settings = settings
        self._accelerated = accelerated
        self._gpu_device = gpu_device

    # -- attributes ----------------------------------------------------------------------------
    @property
    def accelerated(self) -> bool:
        """The value that was given at creation (§8.3)."""
        return self._accelerated

    @property
    def compute_policy(self) -> str:
        """The policy in effect: what the context's device amounts to, see docs/experimental.md
        (experimental "compute-policy", webnn#934). AttributeError in other contexts."""
        return effective_policy(self._state, "compute_policy")

    @property
    def lost(self) -> MLPromise[MLContextLostInfo]:
        """Resolves once, with a message, when the context is lost or destroyed (§8.3.9)."""
        return self._state.lost

    @property
    def device_info(self) -> DeviceInfo:
        """Name, driver, type, API version, limits and features in use (extension)."""
        return self._state.info

    def op_support_limits(self) -> dict[str, Any]:
        """Data types and ranks of every operand of every operator on this device, with
        ``max_tensor_byte_length`` in bytes and ``preferred_input_layout`` (§8.3.7). Returns at
        once and never raises."""
        return op_support_limits(
            self._state.device, "low-precision" in self._state.experimental
        )

    # -- tensors -------------------------------------------------------------------------------
    def create_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any]
    ) -> MLPromise[MLTensor]:
        """A zeroed tensor (§8.3.2). ``descriptor``: MLTensorDescriptor or a mapping with
        data_type, shape, readable, writable. Rejects with TypeError for an invalid descriptor,
        UnknownError when the device is out of memory, InvalidStateError when the context is
        lost."""

        def create() -> MLPromise[MLTensor]:
            what = "create_tensor"
            wanted = checked_descriptor(self._state, descriptor, what, MLTensorDescriptor)
            external = None
            if wanted.importable_to_web_gpu:
                if self._gpu_device is None:
                    raise NotSupportedError(
                        f"{what}: importable_to_web_gpu needs a context made on a GPUDevice, by "
                        "ml.create_context(gpu_device); create_exportable_tensor takes one for "
                        "others"
                    )
                external = external_binding(self._state, self._gpu_device)
            return create_tensor(self._state, wanted, external=external)

        if self._state.device.interruptible:
            return self._state.promised(create)
        return background.run_on_worker(self._state.promised, create)

    def create_constant_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], input_data: Any
    ) -> MLPromise[MLTensor]:
        """A constant tensor for ``builder.constant(tensor)``, which any number of graphs can share
        (§8.3.3). ``input_data`` is copied before the call returns. Rejects as ``create_tensor``
        does, and with TypeError when the data does not match the descriptor."""

        def create() -> MLPromise[MLTensor]:
            what = "create_constant_tensor"
            wanted = checked_descriptor(self._state, descriptor, what)
            view = as_bytes(input_data, wanted, what)
            plain = to_descriptor(wanted, MLTensorDescriptor)
            return create_tensor(self._state, plain, view)

        return background.run_on_worker(self._state.promised, create)

    def import_constant_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], buffer: Any
    ) -> MLPromise[MLTensor]:
        """A constant tensor that is ``buffer`` itself: no copy, no device memory (extension).

        Meant for weights in a read-only memory-mapped file (``np.memmap``). The library keeps the
        buffer as long as anything uses it and never writes to it; its contents must not change.
        Rejects as ``create_constant_tensor`` does, with TypeError when the device can't use the
        memory (it needs 16-byte alignment; the message says what is wrong), NotSupportedError
        without VK_EXT_external_memory_host."""

        def create() -> MLPromise[MLTensor]:
            what = "import_constant_tensor"
            wanted = checked_descriptor(self._state, descriptor, what)
            return MLPromise.resolved(import_constant(self._state, wanted, buffer, what))

        return background.run_on_worker(self._state.promised, create)

    def write_tensor(self, tensor: MLTensor, input_data: Any) -> None:
        """Replace a writable tensor's contents, in order with other work (§8.3.6).
        ``input_data`` is copied before the call returns. The call waits for the device when
        ``runtime.staging.STAGING_BYTES`` of data are queued already. If a call with 1 MiB or more
        is interrupted, the tensor may be left unwritten, and reading it is an error. Raises
        TypeError when the tensor belongs to another context or is not writable, or when the data
        does not match; InvalidStateError when the tensor was destroyed, and in a callback that
        would have to wait; OperationError when out of memory."""
        self._state.timeline.check_fork()
        state = owned(tensor, self._state, "write_tensor")
        state.use("write_tensor")
        if not tensor.writable:
            raise TypeError(f"write_tensor: {tensor!r} was not created with writable=True")
        try:
            self._write(state, as_bytes(input_data, state.descriptor, "write_tensor"))
        except MemoryError as error:
            raise shortage_error(error, "write_tensor") from None

    def _write(self, state: TensorState, view: np.ndarray) -> None:
        if self._state.stream.write(state.use("write_tensor"), view):
            return
        if view.nbytes >= IN_PLACE_BYTES and self._write_and_wait(state.use("write_tensor"), view):
            return
        write = staged_write(self._state.timeline, state.use("write_tensor"), view, "write_tensor")
        state.use("write_tensor")  # it may have been destroyed or lent meanwhile
        self._state.stream.enqueue(write)

    def _write_and_wait(self, storage: Storage, view: np.ndarray) -> bool:
        """Have the timeline copy the data to the tensor's own memory, without a copy in between.
        False if other work is queued or running, or the device has its own memory."""
        state = self._state
        if (
            background.on_timeline() or not state.timeline.idle
            or not is_host_memory(storage, state.device.profile)
        ):
            return False
        try:
            state.stream.enqueue(Write(storage, view, waited=True))
            state.stream.fence().wait()
        except BaseException:
            # The caller may change the data before it is copied.
            state.stream.enqueue(Await(partial(_spoil, storage)))
            raise
        return True

    def read_tensor(self, tensor: MLTensor, output: Any = None) -> MLPromise[Any]:
        """A readable tensor's contents after all earlier work (§8.3.4): a NumPy array of its data
        type and shape, or None after filling ``output`` (§8.3.5). ``output`` is a writable buffer
        of a matching type: an array of the tensor's shape, or a flat one of at least its byte
        length. It stays unchanged on failure, unless it has more than 64 MiB and the device fails
        in the middle. Rejects with TypeError for a tensor of another context, a tensor that is not
        readable or a wrong buffer, InvalidStateError when the tensor is destroyed or the context
        lost first, and with the error of the dispatch that should have written the tensor."""

        def read() -> MLPromise[Any]:
            state = owned(tensor, self._state, "read_tensor")
            state.check_readable("read_tensor")
            if output is None:
                return state.read("read_tensor")
            view = writable_bytes(output, state.descriptor, "read_tensor")
            return state.read("read_tensor", view)

        return self._state.promised(read)

    # -- sharing -------------------------------------------------------------------------------
    def create_exportable_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], gpu_device: Any = None
    ) -> MLPromise[MLTensor]:
        """A zeroed tensor that ``export_to_gpu`` lends to ``gpu_device`` without a copy. The
        GPUDevice is the one that the context was made on, or another one of the same hardware. For
        a ``wgpu.GPUDevice`` the contents are copied (extension; docs/interop.md).

        Without a ``gpu_device`` the tensor serves only ``tensor.export_fd()``. Rejects as
        ``create_tensor`` does, with InvalidStateError when the GPUDevice was destroyed, and with
        NotSupportedError on the CPU device, for a GPUDevice of other hardware, and without
        VK_KHR_external_memory_fd where it is needed (between two opened devices).
        """

        def create() -> MLPromise[MLTensor]:
            what = "create_exportable_tensor"
            wanted = checked_descriptor(self._state, descriptor, what, MLTensorDescriptor)
            wanted = replace(wanted, importable_to_web_gpu=gpu_device is not None)
            external = external_binding(self._state, gpu_device)
            return create_tensor(self._state, wanted, external=external)

        return background.run_on_worker(self._state.promised, create)

    def create_exportable_semaphore(self) -> GPUSemaphore:
        """A semaphore that orders the context's work with CUDA, another device or another process,
        without waits by the host. Use it with ``tensor.export_fd()`` (extension).

        Raises NotSupportedError on the CPU device and without VK_KHR_external_semaphore_fd for
        timeline semaphores (lavapipe), InvalidStateError when the context is lost.
        """
        self._state.check()
        what = "create_exportable_semaphore"
        with forks.undisturbed():
            from webnn_vk.gpu.semaphore import GPUSemaphore
        return background.run_on_worker(GPUSemaphore, self._state.stream, what)

    def export_to_gpu(self, tensor: MLTensor) -> Any:
        """Lend an exportable tensor to its GPUDevice (extension). Returns a buffer with the
        tensor's memory at once; later calls return the same buffer until it is destroyed.

        The buffer has usage STORAGE, COPY_SRC and COPY_DST and the tensor's packed byte length. The
        GPUDevice's work sees the results of all work queued on the context before.
        ``buffer.destroy()`` returns the memory with its contents to the tensor; until then,
        writing, reading and dispatching with the tensor raise TypeError. The buffer keeps its data
        when the tensor or the context is destroyed. Raises TypeError for a tensor that isn't
        exportable or belongs to another context, InvalidStateError when the tensor or the GPUDevice
        was destroyed. """
        self._state.timeline.check_fork()
        caller = Owner()
        try:
            export = owned(tensor, self._state, "export_to_gpu").export(caller)
            # The last call is done: an interrupt from here on makes the caller lose the buffer.
            export.seen = True
            return export.buffer
        except BaseException:
            caller.gone = True
            raise

    # -- graphs --------------------------------------------------------------------------------
    def dispatch(
        self, graph: MLGraph, inputs: Mapping[str, MLTensor], outputs: Mapping[str, MLTensor]
    ) -> None:
        """Queue one run of ``graph`` (§8.3.1). ``inputs`` and ``outputs`` map the graph's names to
        tensors with exactly their data types and shapes; named dimensions have the sizes of the
        inputs' tensors, and outputs the shapes of ``graph.compute_shapes``. A donated input
        (``build``) and its output may be one tensor. Returns at once, unless sizes have to be
        compiled first. Raises TypeError for tensors that don't match or occur twice,
        InvalidStateError for a destroyed graph. If the run fails, reading an output raises the
        error."""
        context = self._state
        inputs, outputs = entries(inputs, _MAPPINGS), entries(outputs, _MAPPINGS)
        executable = executable_of(graph, context, "dispatch", input_shapes, inputs)
        program = executable.program
        tensors = [*inputs.values(), *outputs.values()]
        for tensor in tensors:
            owned(tensor, context, "dispatch")
        if len({*map(id, tensors)}) < len(tensors):
            check_repeated(inputs, outputs, program.donated)
        for tensor in tensors:
            tensor._state.use("dispatch")
        sources = storages(inputs, program.inputs, "input", graph._unused)
        results = storages(outputs, program.outputs, "output")
        context.stream.run(executable, sources, results)

    def compute(self, graph: MLGraph, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run ``graph`` once on arrays and wait for its outputs (extension): name → array.

        ``inputs``: an array (or bytes, or lists of numbers) for each input of the graph. An array
        of more than one dimension must have the input's shape. A donated input (``build``) may be
        a tensor, which the run updates; its output is not in the result then. Blocks;
        ``compute_async`` doesn't. Raises TypeError for names and arrays that don't match,
        InvalidStateError for a destroyed graph or context, OperationError when the run fails."""
        try:
            executable, at_once, arrays, shared = checked_arrays(
                self._state, graph, inputs, "compute"
            )
            if at_once is not None:
                # No state changes here that an interrupt could leave half done.
                self._state.check()
                return at_once.compute(arrays)
            return run_once(self._state, graph, executable, arrays, shared)
        except MemoryError as error:
            raise shortage_error(error, "compute") from None

    def compute_async(
        self, graph: MLGraph, inputs: Mapping[str, Any]
    ) -> MLPromise[dict[str, np.ndarray]]:
        """``compute`` as a promise, which asyncio can await (extension). The inputs are copied
        before the call returns, and the run has its place in the order of the calls.
        The promise rejects with the errors that ``compute`` raises (TypeError, InvalidStateError,
        OperationError)."""

        def start() -> MLPromise[dict[str, np.ndarray]]:
            what = "compute_async"
            executable, at_once, arrays, shared = checked_arrays(
                self._state, graph, inputs, what
            )
            promise = self._state.new_promise("outputs by name")
            if at_once is None:
                return run_in_order(promise, self._state, graph, executable, arrays, shared)
            size = sum(array.nbytes for array in arrays.values())
            held = self._state.timeline.staging.reserve(size, what)
            copies = {name: array.copy() for name, array in arrays.items()}

            def run(held: Reservation = held) -> dict[str, np.ndarray]:  # until the copies go
                self._state.check()
                return at_once.compute(copies)

            return settle_in_background(
                promise, run, "compute", lambda error: shortage_error(error, what)
            )

        return self._state.promised(start)

    # -- saved graphs --------------------------------------------------------------------------
    def save_graph(self, key: str, graph: MLGraph) -> MLPromise[None]:
        """Save a built graph under ``key`` for later processes (extension, from the cache
        explainer): the compiled program, its shaders, and the weights as they are stored on the
        device. An earlier graph under the same key is replaced completely; on failure it stays.

        The promise resolves to None once the graph is on disk, in the folder of
        ``Settings.cache``. Rejects with TypeError for a key that is not a str or a graph of another
        context, InvalidStateError for a destroyed graph or context, NotSupportedError without a
        cache folder, OperationError when the weights can't be read or the files can't be
        written."""

        build = _build_module()

        def save() -> MLPromise[None]:
            return build.save_graph(self._state, self._graphs, key, graph)

        return background.run_on_worker(self._state.promised, save)

    def load_graph(self, key: str) -> MLPromise[MLGraph]:
        """The graph saved under ``key``, loaded in a fraction of the time of a build (extension).
        Rejects with TypeError for a key that is not a str. Rejects with NotSupportedError and the
        reason when the key is missing, when the graph was saved on another device, with another
        driver, other features in use or another version of webnn_vk, and when its files are
        damaged. Otherwise as ``builder.build``."""

        build = _build_module()

        def load() -> MLPromise[MLGraph]:
            return build.load_graph(self._state, self._graphs, key)

        return background.run_on_worker(self._state.promised, load)

    def list_graphs(self) -> MLPromise[list[str]]:
        """The keys of all saved graphs in the cache folder, sorted, including keys of other
        devices (extension). Rejects with NotSupportedError without a cache folder."""
        build = _build_module()
        return background.run_on_worker(
            self._state.promised, lambda: build.list_graphs(self._state, self._graphs)
        )

    def delete_graph(self, key: str) -> MLPromise[None]:
        """Remove the graph saved under ``key`` (extension); graphs loaded from it stay usable.
        Rejects with TypeError for a key that is not a str, NotSupportedError when there is no such
        graph."""

        build = _build_module()

        def delete() -> MLPromise[None]:
            return build.delete_graph(self._state, self._graphs, key)

        return background.run_on_worker(self._state.promised, delete)

    @property
    def _graphs(self) -> Path | None:
        """The folder of saved graphs."""
        cache = self._settings.cache_folder
        return None if cache is None else cache / "graphs"

    # -- profile -------------------------------------------------------------------------------
    def profile(self, *, roofline: bool = True, every: int | None = None) -> Profile:
        """A profile of the work on the context's device during a ``with`` statement: kernels, CPU
        steps, transfers and waits (extension)::

            with context.profile() as p:
                context.compute(graph, inputs)
            print(p.report)
            p.save("report.html")  # or "trace.json", for Perfetto and chrome://tracing

        Entering waits for the work before, leaving for the work inside. ``roofline``: measure, once
        in a process, how fast the device computes and reads memory, so that kernels can be compared
        with these rates. The kernels of each graph's first runs are timed, and of later runs
        as long as measuring costs below 5 % of the time of the work; other runs are timed as a
        whole. ``every``: instead, time the kernels of one run in every ``every`` runs of each
        graph, beginning with the first; 1 means all runs. Raises InvalidStateError when the context
        is lost or already profiled, TypeError for an invalid ``every``."""
        self._state.check()
        with forks.undisturbed():
            from webnn_vk.profiler import Profile
        return Profile(self._state, roofline=roofline, every=every)

    # -- end -----------------------------------------------------------------------------------
    def destroy(self) -> None:
        """Destroy the context (§8.3.8), at once: its tensors and graphs are destroyed, and pending
        promises reject with InvalidStateError. A second call does nothing."""
        self._state.destroy()

    def __enter__(self) -> MLContext:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._state.timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        return f"<MLContext on {self._state.device.name}{' lost' if self.lost.done() else ''}>"

    def fence(self) -> Fence:
        """A fence after all work queued so far (extension), with its ``value`` on the timeline,
        ``done``, and ``wait(timeout)`` in seconds. Returns at once and never raises."""
        return self._state.stream.fence()


def _spoil(storage: Storage) -> None:
    """Work from here on finds that the tensor was not written."""
    storage.error = OperationError(
        "write_tensor was interrupted before the data was copied; write the tensor again"
    )


def _build_module() -> ModuleType:
    """``api.build``, with the compiler, which takes a while to import: a context needs neither."""
    with forks.undisturbed():
        from . import build
    return build


def _compiling(device: Device, settings: Settings) -> tuple[Target, Tuner | None]:
    """The device and options for which a context compiles graphs, and its tuner."""
    with forks.undisturbed():
        from webnn_vk.compiler.program import Target
        from webnn_vk.runtime.tuning.tuner import prepared
    profile, tuned, tuner = prepared(device, settings.cache_folder, settings.tune)
    target = Target(
        profile, skip=settings.skip_passes, force_cpu=settings.force_cpu, dump=settings.dump,
        tuned=tuned,
    )
    if isinstance(device, DriverDevice):
        shaders = device.shaders
        target = replace(target, available=shaders.available, has_compiler=shaders.has_compiler)
    return target, tuner
