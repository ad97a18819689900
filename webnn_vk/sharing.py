"""Tensors whose memory is lent to a ``GPUDevice``, or handed out as a file descriptor (§ Interop of
the explainer; extensions).

While it is exported a tensor is its buffer's alone: the buffer is the tensor's rental, as an array
is in ``interop.numpy``. Both sides work on the same bytes; what has to be arranged is the order.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import background
from .data_types import MLOperandDescriptor, MLTensorDescriptor, to_descriptor
from .errors import NotSupportedError, OperationError
from .gpu.buffer import GPUBuffer
from .gpu.device import GPUDevice
from .gpu.flags import SUPPORTED_USAGE
from .gpu.semaphore import GPUSemaphore
from .interop import wgpu
from .runtime import Await, Run, Storage, Submit, Timeline
from .runtime.external import (
    export_memory,
    ownership,
    share_memory,
    share_semaphore,
    shares_memory,
    stop_waits,
)

if TYPE_CHECKING:
    from .promise import MLPromise
    from .tensor import MLTensor

_UNSUPPORTED = "its driver has no VK_KHR_external_memory_fd"


@dataclass(frozen=True)
class TensorMemory:
    """A tensor's memory as an opaque file descriptor, which belongs to the holder of this record.

    The tensor is ``size`` bytes from ``offset`` on. What imports it needs ``allocation_size``, the
    bytes of the whole (dedicated) allocation, and may compare ``device_uuid`` with its own. An
    import takes ``fd`` over; without one, ``close()``.
    """

    fd: int
    size: int
    offset: int
    allocation_size: int
    device_uuid: bytes

    def close(self) -> None:
        """Close the file descriptor; nobody imported it."""
        os.close(self.fd)


class Exchange:
    """How one tensor's memory goes to a GPU device and back. This one serves ``export_fd`` only."""

    #: Whether the tensor's memory has to be exportable to another opened device.
    external = True

    def __init__(self, gpu_device: Any = None) -> None:
        self.gpu_device = gpu_device

    def connect(self, storage: Storage) -> None:
        """The tensor's memory is there. Runs on the timeline."""

    def export(self, tensor: MLTensor) -> Any:
        """The buffer that holds the tensor from now on."""
        raise TypeError(f"export_to_gpu: {tensor!r} was created without a GPUDevice")

    def release(self, tensor: MLTensor) -> None:
        """The tensor was destroyed: let go of its memory. A buffer that is out keeps it."""


class SameDevice(Exchange):
    """Context and GPUDevice have one timeline, whose order is all that is needed."""

    def __init__(self, gpu_device: GPUDevice) -> None:
        super().__init__(gpu_device)
        self.external = shares_memory(gpu_device._gpu)  # for ``export_fd``
        self._storage: Storage | None = None

    def connect(self, storage: Storage) -> None:
        self._storage = storage

    def export(self, tensor: MLTensor) -> GPUBuffer:
        what = "export_to_gpu"
        with tensor._context._order:
            tensor._storage_of(what)
            held = tensor._rental
            if isinstance(held, GPUBuffer):
                return held
            device = self.gpu_device
            with device._lock:
                device._check(what)
                returned = partial(_take_back, weakref.ref(tensor), self)
                buffer = GPUBuffer(device, self._storage, SUPPORTED_USAGE, "MLTensor", returned)
                tensor._rent(buffer, what)
                device._exported.add(buffer)
                self.lend()
            return buffer

    def release(self, tensor: MLTensor) -> None:
        with tensor._context._order:  # not amid an export
            self._storage = None

    def lend(self) -> None:
        """Order the GPU device's use behind the tensor's."""

    def take_back(self) -> None:
        """Order the tensor's use behind the GPU device's."""


@dataclass
class _Side:
    """One of two devices that see the same memory."""

    timeline: Timeline
    storage: Storage
    release: Any
    acquire: Any
    semaphore: Any

    def not_acquired(self, error: Exception) -> None:
        """What the memory holds can't be relied on."""
        self.storage.error = error


class TwoDevices(SameDevice):
    """Context and GPUDevice opened the same device twice: each has its own view of the memory, and
    their timelines are ordered by a semaphore, or by the host where semaphores can't be shared."""

    def __init__(self, gpu_device: GPUDevice, timeline: Timeline) -> None:
        super().__init__(gpu_device)
        self._timeline = timeline
        self._turn = 0
        self._ml: _Side | None = None
        self._gpu: _Side | None = None

    def connect(self, storage: Storage) -> None:
        ours, theirs = self._timeline, self.gpu_device._timeline
        with theirs.building():
            try:
                self._storage = share_memory(ours.device, storage, theirs.device)
                mine, yours = share_semaphore(ours.device, theirs.device) or (None, None)
                self._ml = _side(ours, storage, mine)
                self._gpu = _side(theirs, self._storage, yours)
            except Exception:
                for timeline in (ours, theirs):
                    if reason := timeline.device.driver.lost():
                        timeline.lose(reason)
                raise

    def release(self, tensor: MLTensor) -> None:
        with tensor._context._order:
            self._storage = self._ml = self._gpu = None

    def lend(self) -> None:
        self._pass(self._ml, self._gpu)

    def take_back(self) -> None:
        self._pass(self._gpu, self._ml)

    def _pass(self, source: _Side, target: _Side) -> None:
        """What ``target`` is given from now on comes behind all that ``source`` has been given."""
        self._turn += 1
        through = _by_host if source.semaphore is None else partial(_by_semaphore, self._turn)
        # Neither the context's nor the GPUDevice's end may drop what the other waits for.
        user = source.timeline.join(lambda message: None)
        through(source, target, partial(_leave, source.timeline, user))


def _side(timeline: Timeline, storage: Storage, semaphore: Any) -> _Side:
    return _Side(timeline, storage, *ownership(timeline.device, storage), semaphore)


def _by_host(source: _Side, target: _Side, leave: Callable[[], None]) -> None:
    arrived = threading.Event()
    # What the memory holds: the work of ``source`` may have failed.
    errors: list[Exception | None] = []

    def reached() -> None:
        errors.append(source.storage.error)
        arrived.set()
        leave()

    def failed(error: Exception) -> None:
        errors.append(OperationError(f"the device that held the tensor's memory: {error}"))
        arrived.set()
        leave()

    def wait() -> None:
        arrived.wait()
        target.storage.error = errors[0]

    source.timeline.enqueue(
        Submit([source.release], keep=source, failed=failed), Run(reached, failed)
    )
    target.timeline.enqueue(
        Await(wait), Submit([target.acquire], keep=target, failed=target.not_acquired)
    )


def _by_semaphore(turn: int, source: _Side, target: _Side, leave: Callable[[], None]) -> None:
    def failed(error: Exception) -> None:
        target.storage.error = OperationError(
            f"the device that held the tensor's memory: {error}"
        )
        # The target must not wait for what never comes.
        stop_waits(target.semaphore, turn)

    def reached() -> None:
        # Known too late for what the target has started meanwhile: no host takes part in this.
        if source.storage.error is not None:
            target.storage.error = source.storage.error
        leave()

    source.timeline.enqueue(
        Submit([source.release], keep=source, signal=[(source.semaphore, turn)], failed=failed),
        Run(reached, lambda error: leave()),
    )
    target.timeline.enqueue(
        Submit(
            [target.acquire],
            keep=target,
            wait=[(target.semaphore, turn)],
            failed=target.not_acquired,
        )
    )


def _leave(timeline: Timeline, user: int) -> None:
    if background.on_timeline():
        timeline.leave(user)  # doesn't wait there
    else:
        background.start(timeline.leave, "close", user)


def _take_back(reference: weakref.ref[MLTensor], exchange: SameDevice, buffer: GPUBuffer) -> None:
    tensor = reference()
    if tensor is None:
        buffer._clear()
        return
    with tensor._context._order:
        if buffer._clear():
            if tensor._storage is not None:
                exchange.take_back()
            tensor._end_rental(buffer)


def _exchange(timeline: Timeline, gpu_device: Any) -> Exchange:
    """How tensors of a timeline's context go to ``gpu_device`` (None: only by file descriptor)."""
    device, what = timeline.device, "create_exportable_tensor"
    if wgpu.is_device(gpu_device):
        return wgpu.WgpuExchange(gpu_device, what)
    if device.profile is None:
        raise NotSupportedError(f"{what}: the CPU device shares no memory with a GPUDevice")
    if gpu_device is None:
        if not shares_memory(device):
            raise NotSupportedError(f"{what}: {device.name}: {_UNSUPPORTED}")
        return Exchange()
    if not isinstance(gpu_device, GPUDevice):
        raise TypeError(
            f"{what}: a GPUDevice (of webnn_vk.gpu or wgpu) is expected, not "
            f"{type(gpu_device).__name__}"
        )
    gpu_device._check(what)
    if gpu_device._timeline is timeline:
        return SameDevice(gpu_device)
    other = gpu_device._gpu
    if device.profile.uuid != other.profile.uuid:
        raise NotSupportedError(
            f"{what}: the context is on {device.name}, the GPUDevice on {other.name}"
        )
    for each in (device, other):
        if not shares_memory(each):
            raise NotSupportedError(f"{what}: {each.name}: {_UNSUPPORTED}")
    return TwoDevices(gpu_device, timeline)


class SharingContext:
    """The part of ``MLContext`` that shares tensors."""

    _timeline: Timeline
    _gpu_device: Any
    _checked: Callable[..., Any]
    _promise: Callable[..., Any]
    _create: Callable[..., Any]
    _own: Callable[..., None]
    _check_lost: Callable[[], None]

    def create_exportable_tensor(
        self, descriptor: MLOperandDescriptor | Mapping[str, Any], gpu_device: Any = None
    ) -> MLPromise[MLTensor]:
        """A zeroed tensor that ``export_to_gpu`` lends to ``gpu_device``, without a copy: the
        device that the context was made on, or another ``GPUDevice`` of the same hardware. To any
        ``wgpu.GPUDevice`` its contents are copied (docs/interop.md).

        Without a ``gpu_device`` it serves ``tensor.export_fd()`` only. Rejects as ``create_tensor``
        does, with InvalidStateError when the GPUDevice was destroyed, NotSupportedError on the CPU
        device, for a GPUDevice of other hardware or without VK_KHR_external_memory_fd where that is
        needed (between two opened devices).
        """

        def create() -> MLPromise[MLTensor]:
            what = "create_exportable_tensor"
            wanted = self._checked(to_descriptor(descriptor, MLTensorDescriptor), what)
            wanted = replace(wanted, importable_to_web_gpu=gpu_device is not None)
            exchange = _exchange(self._timeline, gpu_device)
            return self._create(wanted, None, constant=False, exchange=exchange)

        return self._promise(create)

    def create_exportable_semaphore(self) -> GPUSemaphore:
        """A semaphore that orders the context's work with that of CUDA, another device or process,
        without waits by the host: the companion of ``tensor.export_fd()``.

        NotSupportedError on the CPU device and where the device has no VK_KHR_external_semaphore_fd
        for timeline semaphores (lavapipe), InvalidStateError when the context is lost.
        """
        self._timeline.check_fork()
        self._check_lost()
        return GPUSemaphore(self._timeline, "create_exportable_semaphore")

    def _create_importable(self, descriptor: MLTensorDescriptor) -> MLPromise[MLTensor]:
        if self._gpu_device is None:
            raise NotSupportedError(
                "create_tensor: importable_to_web_gpu needs a context made on a GPUDevice, by "
                "ml.create_context(gpu_device); create_exportable_tensor takes one for others"
            )
        exchange = _exchange(self._timeline, self._gpu_device)
        return self._create(descriptor, None, constant=False, exchange=exchange)

    def export_to_gpu(self, tensor: MLTensor) -> Any:
        """Lend an exportable tensor to its GPUDevice: the buffer with its memory, at once; the same
        one until it is destroyed.

        The buffer has usage STORAGE, COPY_SRC and COPY_DST and the tensor's packed byte length. The
        device's work finds what was queued on the context before. ``buffer.destroy()`` gives the
        tensor back with what is in it; until then writing, reading and dispatching with the tensor
        is a TypeError. Tensor and context may be destroyed, the buffer keeps its data. TypeError
        for a tensor that isn't exportable or belongs to another context, InvalidStateError when the
        tensor or the GPUDevice was destroyed.
        """
        self._timeline.check_fork()
        self._own(tensor, "export_to_gpu")
        if tensor._exchange is None:
            raise TypeError(
                f"export_to_gpu: {tensor!r} was not created by create_exportable_tensor"
            )
        return tensor._exchange.export(tensor)


def export_fd(tensor: MLTensor) -> TensorMemory:
    """See ``MLTensor.export_fd``."""
    storage = tensor._use("export_fd")
    device = tensor._context._device
    if tensor._exchange is None:
        raise TypeError(f"export_fd: {tensor!r} was not created by create_exportable_tensor")
    if device.profile is None or not shares_memory(device):
        raise NotSupportedError(f"export_fd: {device.name}: {_UNSUPPORTED}")
    if not tensor._exchange.external:
        raise TypeError(f"export_fd: {tensor!r} was created for a wgpu.GPUDevice, by copies")
    with tensor._context._timeline.building():
        external = export_memory(device, storage)
    return TensorMemory(
        external.fd,
        tensor._descriptor.byte_length,
        external.offset,
        external.block_size,
        bytes.fromhex(external.uuid),
    )
