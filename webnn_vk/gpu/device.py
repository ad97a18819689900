"""``GPUDevice``: an opened Vulkan device as an object of its own."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import background
from ..driver import DeviceLost, DriverError, OutOfDeviceMemory, OutOfHostMemory
from ..errors import InvalidStateError, OperationError
from ..promise import MLPromise
from ..runtime import DriverDevice, Timeline, Write
from ..runtime.storage import DeviceLostError
from ..settings import Settings
from .buffer import GPUBuffer, integer
from .commands import GPUBindGroup, GPUCommandEncoder
from .flags import SUPPORTED_USAGE, GPUBufferUsage
from .queue import GPUQueue, byte_view
from .semaphore import GPUSemaphore
from .shader import GPUComputePipeline, GPUShaderModule, named

if TYPE_CHECKING:
    from ..tensor import MLTensor
    from .adapter import GPUAdapter


@dataclass(frozen=True)
class GPUDeviceLostInfo:
    """Why a device was lost: ``reason`` is "destroyed" or "unknown"."""

    reason: str
    message: str


class GPUDevice:
    """An opened device, by ``adapter.request_device()``; ``ml.create_context(gpu_device)`` makes a
    context on it.

    All work on it and on the contexts on it is one order: each sees what was queued before,
    without waits by the host. Every method may be called from any thread.
    """

    def __init__(self, adapter: GPUAdapter, gpu: DriverDevice, settings: Settings) -> None:
        self._adapter = adapter
        self._gpu = gpu
        self._settings = settings
        self._timeline = Timeline(gpu)
        self._queue = GPUQueue(self)
        self._lost: MLPromise[GPUDeviceLostInfo] = MLPromise()
        # Makes the check that a buffer is alive and the queueing of work on it one step.
        # Reentrant: the collector may destroy a buffer while it is held.
        self._lock = threading.RLock()
        self._exported: weakref.WeakSet[GPUBuffer] = weakref.WeakSet()
        this = weakref.ref(self)
        user = self._timeline.join(lambda message: _lose(this, message))
        self._finalizer = weakref.finalize(self, _leave, self._timeline, user)
        self._finalizer.atexit = False

    @property
    def adapter(self) -> GPUAdapter:
        """The adapter it was made from."""
        return self._adapter

    @property
    def queue(self) -> GPUQueue:
        """Its one GPUQueue."""
        return self._queue

    @property
    def limits(self) -> dict[str, int]:
        """Name → number."""
        return self._adapter.limits

    @property
    def features(self) -> frozenset[str]:
        """Names of features in use."""
        return self._gpu.profile.features

    @property
    def lost(self) -> MLPromise[GPUDeviceLostInfo]:
        """Resolves once, when the device is lost or destroyed."""
        return self._lost

    # -- making --------------------------------------------------------------------------------
    def create_buffer(self, *, size: int, usage: int, label: str = "") -> GPUBuffer:
        """A zeroed buffer of ``size`` bytes. ``usage``: STORAGE, COPY_SRC and COPY_DST in any
        combination. OperationError when the device has no memory for it."""
        what = named("create_buffer", label)
        size, usage = integer(size, f"{what}: size"), integer(usage, f"{what}: usage")
        limit = self._gpu.max_tensor_byte_length
        if not 1 <= size <= limit:
            raise ValueError(f"{what}: size {size}; a buffer has 1 to {limit} bytes")
        if not usage or usage & ~int(SUPPORTED_USAGE):
            raise ValueError(
                f"{what}: usage {GPUBufferUsage(usage)!r}; STORAGE, COPY_SRC and COPY_DST are "
                "supported (queue.write_buffer and read_buffer take the place of mapping)"
            )
        self._check(what)
        with self._translated(what):
            storage = self._gpu.create_storage(size)
        self._timeline.enqueue(Write(storage, None))
        return GPUBuffer(self, storage, GPUBufferUsage(usage), label)

    def create_buffer_with_data(self, *, data: Any, usage: int, label: str = "") -> GPUBuffer:
        """A buffer holding a copy of ``data``, anything contiguous with the buffer protocol."""
        what = named("create_buffer_with_data", label)
        view = byte_view(data, what)
        made = self.create_buffer(size=len(view), usage=usage, label=label)
        self._queue._write(made, 0, view, what)
        return made

    def create_shader_module(self, *, code: Any, label: str = "") -> GPUShaderModule:
        """A compute shader from GLSL (str), SPIR-V (bytes) or a ``codegen.KernelSpec``.

        Its storage buffers are at set 0. SPIR-V is trusted like any native code: what it does out
        of a buffer's bounds is undefined. ValueError with the compiler's log for GLSL that doesn't
        compile; NotSupportedError without a compiler.
        """
        self._check("create_shader_module")
        return GPUShaderModule(self, code, label)

    def create_compute_pipeline(
        self,
        *,
        module: GPUShaderModule,
        entry_point: str = "main",
        constants: Mapping[Any, Any] | None = None,
        label: str = "",
    ) -> GPUComputePipeline:
        """A shader ready to run. ``constants``: specialisation constant id → number (for a
        KernelSpec's module also name → number)."""
        self._check("create_compute_pipeline")
        return GPUComputePipeline(self, module, entry_point, constants or {}, label)

    def create_bind_group(self, *, entries: Any, label: str = "") -> GPUBindGroup:
        """Buffers for a dispatch. ``entries``: buffers (or GPUBufferBindings, or mappings with
        buffer, offset and size, in bytes) in the order of their bindings, or mappings with binding
        and resource. The buffers need usage STORAGE."""
        self._check("create_bind_group")
        return GPUBindGroup(self, entries, label)

    def create_command_encoder(self, *, label: str = "") -> GPUCommandEncoder:
        """Records commands for ``queue.submit``."""
        self._check(named("create_command_encoder", label))
        return GPUCommandEncoder(self, label)

    def create_exportable_semaphore(self) -> GPUSemaphore:
        """A semaphore to order the device's work with that of CUDA, another device or process.
        NotSupportedError where the device has no VK_KHR_external_semaphore_fd for timeline
        semaphores."""
        self._check("create_exportable_semaphore")
        return GPUSemaphore(self._timeline, "create_exportable_semaphore")

    def import_external_buffer(self, tensor: MLTensor) -> MLPromise[GPUBuffer]:
        """The buffer of a tensor that was made exportable to this device: ``export_to_gpu`` seen
        from here. Rejects with what that raises."""
        try:
            self._check("import_external_buffer")
            context = getattr(tensor, "_context", None)
            if context is None:
                raise TypeError(
                    f"import_external_buffer: an MLTensor is expected, not {type(tensor).__name__}"
                )
            if tensor._exchange is not None and tensor._exchange.gpu_device is not self:
                raise TypeError(f"import_external_buffer: {tensor!r} is for another GPUDevice")
            return MLPromise.resolved(context.export_to_gpu(tensor))
        except (TypeError, InvalidStateError) as error:
            return MLPromise.rejected(error)

    # -- end -----------------------------------------------------------------------------------
    def destroy(self) -> None:
        """End this object's use of the device. Work submitted before goes on; exported buffers go
        back to their tensors; contexts on the device live on. Calling it again does nothing."""
        self._timeline.check_fork()
        self._end(GPUDeviceLostInfo("destroyed", "destroy() was called"))
        self._finalizer()

    def _end(self, info: GPUDeviceLostInfo) -> None:
        with self._lock:
            if not self._lost.resolve(info):
                return
            buffers = list(self._exported)
        for buffer in buffers:
            buffer.destroy()

    def __enter__(self) -> GPUDevice:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        return f"<GPUDevice {self._gpu.name}{' lost' if self._lost.done() else ''}>"

    # -- checks --------------------------------------------------------------------------------
    def _check(self, what: str) -> None:
        self._timeline.check_fork()
        if self._lost.done():
            info = self._lost.result()
            raise InvalidStateError(f"{what}: the GPUDevice is lost ({info.message})")

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """The driver's errors as those of the API."""
        try:
            yield
        except (MemoryError, OutOfDeviceMemory, OutOfHostMemory) as error:
            raise OperationError(f"{what}: {error}") from error
        except (DeviceLost, DeviceLostError) as error:
            self._timeline.lose(str(error))  # the contexts on the device are told too
            raise InvalidStateError(f"{what}: the GPUDevice is lost ({error})") from error
        except DriverError as error:
            raise OperationError(f"{what}: {error}") from error


def _leave(timeline: Timeline, user: int) -> None:
    # The last to leave waits for the device; neither the collector nor destroy() should.
    if not timeline.forked:
        background.start(timeline.leave, "close", user)


def _lose(this: weakref.ref[GPUDevice], message: str) -> None:
    device = this()
    if device is not None:
        device._end(GPUDeviceLostInfo("unknown", message))
