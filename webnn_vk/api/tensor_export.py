"""Tensors whose memory is lent to a ``GPUDevice``, or exported as a file descriptor (§ Interop of
the explainer; extensions).

An exported tensor is lent to its buffer: only the buffer may be used, as with an array in
``interop.numpy``. Both sides work on the same bytes, so this module only orders their work.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from webnn_vk.gpu import buffer as buffers
from webnn_vk.gpu.buffer import GPUBuffer
from webnn_vk.gpu.device_state import DeviceState, GPUDeviceBase, device_state
from webnn_vk.gpu.flags import EXPORTED_USAGE
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.external import (
    export_memory,
    ownership,
    share_memory,
    share_semaphore,
    shares_memory,
    stop_waits,
    why_not_shared,
)
from webnn_vk.runtime.storage import Storage
from webnn_vk.runtime.stream import Stream
from webnn_vk.runtime.tensor_state import Export, ExternalBinding, Owner, TensorState
from webnn_vk.runtime.work import Await, Lend, Return, Run, Submit
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import NotSupportedError, OperationError

from .interop import wgpu


@dataclass(frozen=True)
class TensorMemory:
    """A tensor's memory as an opaque file descriptor, which the holder of this record owns.

    The tensor has ``size`` bytes, starting at ``offset``. An importer needs ``allocation_size``,
    the bytes of the whole (dedicated) allocation, and may compare ``device_uuid`` with its own. An
    import takes over ``fd``; without an import, call ``close()``.
    """

    fd: int
    size: int
    offset: int
    allocation_size: int
    device_uuid: bytes

    def close(self) -> None:
        """Close a file descriptor that was not imported."""
        os.close(self.fd)


class SameDevice(ExternalBinding):
    """Context and GPUDevice share a timeline; at each handover one follows the other."""

    def __init__(self, gpu_device: GPUDeviceBase, gpu: DeviceState, stream: Stream) -> None:
        """``gpu``: the state of the GPUDevice; ``stream``: the context's."""
        self.gpu_device = gpu_device
        self.gpu = gpu
        self.exportable = shares_memory(self.gpu.device)  # for ``export_fd``
        # The context and the GPUDevice, as `_pass` needs them.
        self._sides: tuple[Any, Any] = (stream, gpu.stream)
        self._storage: Storage | None = None

    def connect(self, storage: Storage) -> None:
        self._storage = storage

    def export(self, tensor: TensorState, caller: Owner) -> Export:
        what = "export_to_gpu"
        with tensor.context.handover:
            tensor.storage_of(what)
            export = tensor.lease
            if isinstance(export, Export):
                export.join(caller)
                return export
            gpu = self.gpu
            with gpu.lock:
                gpu.check(what)
                returned = partial(_take_back, weakref.ref(tensor), self)
                buffer = GPUBuffer(gpu, self._storage, EXPORTED_USAGE, "MLTensor", returned)
                export = Export(caller, buffer.destroy)
                export.buffer = buffer
                tensor.acquire_lease(export, what)
                gpu.exported.add(weakref.ref(buffer, gpu.exported.discard))
                gpu.stream.enqueue(Return(self._storage))
                self.lend()
            return export

    def release(self, tensor: TensorState) -> None:
        with tensor.context.handover:  # not during an export
            self._storage, self._sides = None, (None, None)

    def end(self) -> None:
        """Take the memory from the GPU device. Calls that found the buffer alive but queue their
        work only now fail."""
        if self._storage is not None:
            self.gpu.stream.enqueue(Lend(self._storage))

    def lend(self) -> None:
        """Order the GPU device's use after the tensor's."""
        self._pass(*self._sides)

    def take_back(self) -> None:
        """Order the tensor's use after the GPU device's."""
        self._pass(*reversed(self._sides))

    def _pass(self, source: Any, target: Any) -> None:
        """Order all further work of ``target`` after all work of ``source`` so far."""
        target.follow(source)


@dataclass
class _Side:
    """One of two devices that see the same memory."""

    stream: Stream
    storage: Storage
    release: Any
    acquire: Any
    semaphore: Any

    def not_acquired(self, error: Exception) -> None:
        """Record that the contents of the memory are undefined."""
        self.storage.error = error


class TwoDevices(SameDevice):
    """Context and GPUDevice opened the same device separately. Each has its own view of the memory.
    A semaphore orders their timelines, or the host where semaphores can't be shared."""

    _handovers = 0

    def connect(self, storage: Storage) -> None:
        ours, theirs = self._sides
        with theirs.timeline.building():
            try:
                self._storage = share_memory(ours.device, storage, theirs.device)
                mine, yours = share_semaphore(ours.device, theirs.device) or (None, None)
                self._sides = _side(ours, storage, mine), _side(theirs, self._storage, yours)
            except Exception:
                for stream in (ours, theirs):
                    if reason := stream.device.driver.lost():
                        stream.timeline.lose(reason)
                raise

    def _pass(self, source: _Side, target: _Side) -> None:
        self._handovers += 1
        through = _by_host if source.semaphore is None else partial(_by_semaphore, self._handovers)
        # Work that the other side waits for must survive the end of the context or GPUDevice.
        timeline = source.stream.timeline
        user = timeline.join(lambda message: None)
        through(source, target, partial(_leave, partial(timeline.leave, user)))


def _side(stream: Stream, storage: Storage, semaphore: Any) -> _Side:
    return _Side(stream, storage, *ownership(stream.device, storage), semaphore)


def _by_host(source: _Side, target: _Side, leave: Callable[[], None]) -> None:
    arrived = threading.Event()
    # If the work of ``source`` failed, the contents of the memory are undefined.
    errors: list[Exception | None] = []

    def ended(error: Exception | None) -> None:
        errors.append(error)
        arrived.set()
        leave()

    def failed(error: Exception) -> None:
        ended(OperationError(f"the device that held the tensor's memory: {error}"))

    def wait() -> None:
        arrived.wait()
        target.storage.error = errors[0]

    source.stream.enqueue(
        Submit([source.release], keep=source, failed=failed),
        Run(lambda: ended(source.storage.error), failed),
    )
    target.stream.enqueue(
        Await(wait), Submit([target.acquire], keep=target, failed=target.not_acquired)
    )


def _by_semaphore(number: int, source: _Side, target: _Side, leave: Callable[[], None]) -> None:
    def failed(error: Exception) -> None:
        target.storage.error = OperationError(
            f"the device that held the tensor's memory: {error}"
        )
        # The target must not wait for a signal that never comes.
        stop_waits(target.semaphore, number)

    def reached() -> None:
        # Too late for work that the target has started meanwhile, since the host isn't involved.
        if source.storage.error is not None:
            target.storage.error = source.storage.error
        leave()

    source.stream.enqueue(
        Submit([source.release], keep=source, signal=[(source.semaphore, number)], failed=failed),
        Run(reached, lambda error: leave()),
    )
    target.stream.enqueue(
        Submit(
            [target.acquire],
            keep=target,
            wait=[(target.semaphore, number)],
            failed=target.not_acquired,
        )
    )


def _leave(leave: Callable[[], None]) -> None:
    if background.on_timeline():
        leave()  # doesn't wait there
    else:
        background.retry(leave, "close")


def _take_back(
    reference: weakref.ref[TensorState], binding: SameDevice, buffer: GPUBuffer
) -> None:
    tensor = reference()
    if tensor is None:
        buffers.clear(buffer)
        return
    with tensor.context.handover:
        if buffers.clear(buffer):
            if tensor.storage is not None:
                binding.end()
                binding.take_back()
            export = tensor.lease
            if isinstance(export, Export) and export.buffer is buffer:
                tensor.end_lease(export)


def external_binding(context: ContextState, gpu_device: Any) -> ExternalBinding:
    """How tensors of a context go to ``gpu_device`` (None: only by file descriptor). Raises
    TypeError for anything but a GPUDevice, InvalidStateError for a destroyed one, NotSupportedError
    if the two devices can't share memory."""
    device, what = context.device, "create_exportable_tensor"
    if wgpu.is_device(gpu_device):
        return wgpu.WgpuBinding(gpu_device, what)
    if device.profile is None:
        raise NotSupportedError(f"{what}: the CPU device shares no memory with a GPUDevice")
    if gpu_device is None:
        if not shares_memory(device):
            raise NotSupportedError(f"{what}: {device.name}: {why_not_shared(device)}")
        return ExternalBinding()
    gpu = device_state(gpu_device, what)
    if gpu.timeline is context.timeline:
        return SameDevice(gpu_device, gpu, context.stream)
    if device.profile.uuid != gpu.device.profile.uuid:
        raise NotSupportedError(
            f"{what}: the context is on {device.name}, the GPUDevice on {gpu.device.name}"
        )
    for each in (device, gpu.device):
        if not shares_memory(each):
            raise NotSupportedError(f"{what}: {each.name}: {why_not_shared(each)}")
    return TwoDevices(gpu_device, gpu, context.stream)


def export_fd(tensor: TensorState) -> TensorMemory:
    """See ``MLTensor.export_fd``."""
    storage = tensor.use("export_fd")
    device = tensor.context.device
    if tensor.external is None:
        raise TypeError(f"export_fd: {tensor!r} was not created by create_exportable_tensor")
    if device.profile is None or not shares_memory(device):
        raise NotSupportedError(f"export_fd: {device.name}: {why_not_shared(device)}")
    if not tensor.external.exportable:
        raise TypeError(f"export_fd: {tensor!r} was created for a wgpu.GPUDevice, by copies")
    with tensor.context.timeline.building():
        memory = export_memory(device, storage)
    return TensorMemory(
        memory.fd,
        tensor.descriptor.byte_length,
        memory.offset,
        memory.block_size,
        bytes.fromhex(memory.uuid),
    )
