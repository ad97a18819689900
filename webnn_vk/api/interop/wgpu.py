"""wgpu-py: contexts on the physical device of a ``wgpu.GPUDevice``, tensors lent to one.

wgpu-native imports no memory, so contents are copied by the host, once each way: out of the
tensor's memory into a mapping of the buffer that is exported, and back when that is destroyed.
"""

from __future__ import annotations

import sys
import threading
import weakref
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.mapping import HostMapping
from webnn_vk.runtime.tensor_state import Export, ExternalBinding, Owner, TensorState
from webnn_vk.support import background, forks
from webnn_vk.support.errors import InvalidStateError, NotSupportedError, OperationError

#: Sizes of mapped and of copied ranges are multiples of this in WebGPU.
COPY_ALIGNMENT = 4


def is_device(candidate: Any) -> bool:
    """Whether it is a ``wgpu.GPUDevice``; doesn't import wgpu."""
    wgpu = sys.modules.get("wgpu")
    return wgpu is not None and isinstance(candidate, wgpu.GPUDevice)


def check_device(gpu_device: Any, what: str) -> None:
    """InvalidStateError when a ``wgpu.GPUDevice`` was destroyed or lost."""
    _Lender.of(gpu_device).check(what)


def matching(gpu_device: Any, profiles: list[DeviceProfile]) -> int:
    """The index of the device that a ``wgpu.GPUDevice`` runs on, by vendor, device and name (the
    first of several equal ones); NotSupportedError when there is none."""
    info = gpu_device.adapter.info
    wanted = info["vendor_id"], info["device_id"]
    same = [i for i, p in enumerate(profiles) if (p.vendor_id, p.device_id) == wanted]
    same += [i for i, p in enumerate(profiles) if p.name == info["device"]]
    if not same:
        names = ", ".join(p.name for p in profiles)
        raise NotSupportedError(
            f"no Vulkan device matches the GPUDevice's adapter {info['device']!r} "
            f"({wanted[0]:#x}, {wanted[1]:#x}); there are {names or 'none'}"
        )
    return next((i for i in same if profiles[i].name == info["device"]), same[0])


class WgpuBinding(ExternalBinding):
    """Lends one tensor to a ``wgpu.GPUDevice`` and takes it back."""

    #: The tensor's memory itself stays here.
    exportable = False

    def __init__(self, gpu_device: Any, what: str) -> None:
        self.gpu_device = gpu_device
        self._lender = _Lender.of(gpu_device)
        self._lender.check(what)
        self._lock = threading.RLock()
        # The tensor owns its binding.
        self._tensor: weakref.ref[TensorState] | None = None
        self._mapping: HostMapping | None = None
        self._export: Export | None = None

    def export(self, tensor: TensorState, caller: Owner) -> Export:
        """The ``wgpu.GPUBuffer`` with the tensor's contents, the same one until it is destroyed.

        Waits for the work queued on the tensor's context. InvalidStateError when the GPUDevice was
        destroyed, OperationError when it has no memory, and what ``to_numpy`` raises.
        """
        with self._lock:
            tensor.storage_of("export_to_gpu")
            if self._export is not None:
                self._export.join(caller)
                return self._export
            self._lender.check("export_to_gpu")
            take_back = partial(_take_back, weakref.ref(self))
            export = Export(caller, take_back, "an exported wgpu.GPUBuffer")
            storage = tensor.acquire_lease(export, "export_to_gpu")
            context = tensor.context
            try:
                # The device stays open until the copy is made.
                with context.timeline.building():
                    mapping = HostMapping(context.device, storage)
                    mapping.fetch(context.stream)
                    buffer = self._filled(mapping.memory(writable=False), tensor)
                self._lender.add(self)
            except BaseException:
                tensor.end_lease(export)
                raise
            self._tensor, self._mapping = weakref.ref(tensor), mapping
            export.buffer, self._export = buffer, export
            if tensor.storage is None:
                self.release(tensor)  # destroyed during the export
            return export

    def release(self, tensor: TensorState) -> None:
        """See ``tensor_state.ExternalBinding``. Takes no lock: this may run on the timeline, for
        which the holder of the lock may wait."""
        self._mapping = self._export = None

    def _filled(self, data: memoryview, tensor: TensorState) -> Any:
        wgpu = sys.modules["wgpu"]
        size = -(-len(data) // COPY_ALIGNMENT) * COPY_ALIGNMENT
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
        try:
            exported = self.gpu_device.create_buffer(
                label="MLTensor", size=size, usage=usage, mapped_at_creation=True
            )
            exported.write_mapped(data)
            exported.unmap()
        except wgpu.GPUError as error:
            self._lender.check("export_to_gpu")
            raise OperationError(
                f"export_to_gpu: {tensor!r} ({size} bytes): {type(error).__name__}: {error}"
            ) from error
        this = weakref.ref(self)
        destroy = type(exported).destroy
        reference = weakref.ref(exported)

        def destroy_and_return() -> None:
            """Release the buffer; its contents go back to the tensor that it was made of."""
            binding, itself = this(), reference()
            try:
                if binding is not None:
                    background.run_on_worker(binding.take_back, itself)
            finally:
                if itself is not None:
                    destroy(itself)

        exported.destroy = destroy_and_return
        return exported

    def take_back(self, buffer: Any = None) -> None:
        """End the export of ``buffer`` (None: of any): the tensor has its contents, or what it had
        before when the GPUDevice is gone."""
        with self._lock:
            export = self._export
            if export is None or (buffer is not None and buffer is not export.buffer):
                return
            tensor, mapping, buffer = self._tensor(), self._mapping, export.buffer
            self._tensor = self._mapping = self._export = None
            self._lender.discard(self)
            if tensor is None or tensor.storage is None:
                return
            stream = tensor.context.stream
            try:
                if self._lender.alive():
                    with stream.timeline.building():
                        self._read(buffer, mapping.memory(writable=True))
                        mapping.store(stream)
            except InvalidStateError:
                # A context destroyed during the return takes nothing back.
                if tensor.storage is not None:
                    raise
            finally:
                tensor.end_lease(export)

    def _read(self, buffer: Any, memory: memoryview) -> None:
        wgpu, device = sys.modules["wgpu"], self.gpu_device
        staging = device.create_buffer(
            size=buffer.size, usage=wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
        )
        encoder = device.create_command_encoder()
        encoder.copy_buffer_to_buffer(buffer, 0, staging, 0, buffer.size)
        device.queue.submit([encoder.finish()])
        staging.map_sync(wgpu.MapMode.READ)
        contents = np.frombuffer(staging.read_mapped(copy=False), np.uint8)
        np.frombuffer(memory, np.uint8)[:] = contents[: len(memory)]
        del contents
        staging.unmap()
        staging.destroy()


def _take_back(this: weakref.ref[WgpuBinding]) -> None:
    binding = this()
    if binding is not None:
        binding.take_back()


class _Lender:
    """The tensors lent to one ``wgpu.GPUDevice``: its ``destroy`` gives them back first."""

    def __init__(self, gpu_device: Any) -> None:
        self._gpu_device = weakref.ref(gpu_device)
        self._destroyed = self._ending = False
        self._bindings: weakref.WeakSet[WgpuBinding] = weakref.WeakSet()
        self._lock = threading.Lock()

    @classmethod
    def of(cls, gpu_device: Any) -> _Lender:
        """The lender of a device, made at the first tensor for it."""
        with _lenders_lock:
            lender = _lenders.get(gpu_device)
            if lender is not None:
                return lender
            lender = _lenders[gpu_device] = cls(gpu_device)
        destroy = type(gpu_device).destroy
        device = weakref.ref(gpu_device)

        def return_and_destroy() -> None:
            """Destroy the device; exported tensors get their contents back."""
            background.run_on_worker(lender._take_all_back)
            itself = device()
            if itself is not None:
                destroy(itself)

        gpu_device.destroy = return_and_destroy
        return lender

    def add(self, binding: WgpuBinding) -> None:
        """Remember an export; InvalidStateError when the device is being destroyed."""
        with self._lock:
            if self._ending:
                raise InvalidStateError("export_to_gpu: the wgpu.GPUDevice was destroyed or lost")
            self._bindings.add(binding)

    def discard(self, binding: WgpuBinding) -> None:
        """Forget an export."""
        with self._lock:
            self._bindings.discard(binding)

    def _take_all_back(self) -> None:
        with self._lock:
            self._ending = True
            bindings = list(self._bindings)
        for binding in bindings:
            binding.take_back()
        self._destroyed = True

    def alive(self) -> bool:
        """Whether the device can still work: submitting to one that can't ends the process."""
        device = self._gpu_device()
        if device is None or self._destroyed:
            return False
        wgpu = sys.modules["wgpu"]
        try:
            device.create_buffer(size=COPY_ALIGNMENT, usage=wgpu.BufferUsage.COPY_DST).destroy()
        except wgpu.GPUError:
            self._destroyed = True
            return False
        return True

    def check(self, what: str) -> None:
        """InvalidStateError unless the device is alive."""
        if not self.alive():
            raise InvalidStateError(f"{what}: the wgpu.GPUDevice was destroyed or lost")


_lenders: weakref.WeakKeyDictionary[Any, _Lender] = weakref.WeakKeyDictionary()
_lenders_lock = threading.Lock()
forks.renew(globals(), _lenders_lock=threading.Lock, _lenders=weakref.WeakKeyDictionary)
