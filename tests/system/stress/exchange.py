"""Calls that share memory with other libraries: files, file descriptors, DLPack, wgpu-py."""

from __future__ import annotations

import os
import tempfile
from functools import cache

import numpy as np

from tests.system.stress.model import LENGTHS, Failure, Gpu, Tensor, ramp
from tests.system.stress.sharing import SharingCalls, is_exportable
from tests.system.stress.world import PATIENCE, World, open_device
from webnn_vk import NotSupportedError, from_dlpack

try:
    import wgpu
except ImportError:
    wgpu = None


class ExchangeCalls(SharingCalls):
    """Calls on any world."""

    # -- DLPack --------------------------------------------------------------------------------
    def numpy_from_dlpack(self, world: World) -> bool:
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            with world.using(world, used):
                array = np.from_dlpack(used.tensor)
                if not np.array_equal(array, used.value):
                    raise Failure(f"{world.context!r}: DLPack {array[:8]}, {used.value[:8]}")
                # The array keeps the tensor alive.
                try:
                    world.context.write_tensor(used.tensor, used.value)
                except TypeError:
                    pass  # DestroyedTensorError too
                else:
                    raise Failure(f"{used.tensor!r} was written while an array shows it")
                del array
        return True

    def from_dlpack(self, world: World) -> bool:
        """From an array, or from another tensor."""
        if self.random.random() < 0.5:
            with world.trying(world):
                value = self.values(self.random.choice(LENGTHS))
                made = from_dlpack(value, world.context)
                self.keep(world, world.tensors, Tensor(made, value))
            return True
        with world.lock:
            used = self.pick_tensor(world)
            if used is None:
                return False
            with world.using(world, used):
                made = from_dlpack(used.tensor, world.context)
                world.tensors.append(Tensor(made, used.value))
        return True

    # -- files ---------------------------------------------------------------------------------
    def import_constant_tensor(self, world: World) -> None:
        index = self.random.randrange(len(LENGTHS))
        length = LENGTHS[index]
        data = np.memmap(weights(), np.int32, "r", 16384 * index, (length,))
        with world.trying(world):
            made = self.wait(world.context.import_constant_tensor(self.descriptor(length), data))
            self.keep(world, world.constants, Tensor(made, ramp(length)), most=6)

    def export_fd(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.tensors, is_exportable)
            if used is None:
                return False
            with world.using(world, used):
                memory = used.tensor.export_fd()
                os.fstat(memory.fd)
                if memory.size != used.value.nbytes or memory.allocation_size < memory.size:
                    raise Failure(f"{memory} of {used.tensor!r}")
                memory.close()
        return True

    # -- wgpu-py -------------------------------------------------------------------------------
    def export_to_wgpu(self, world: World) -> bool:
        """Makes a tensor for wgpu's device, or continues with one: it stays lent or returns."""
        lender, length = wgpu_device(), self.random.choice(LENGTHS)
        if self.random.random() < 0.3:
            with world.trying(world):
                made = self.wait(world.context.create_exportable_tensor(
                    self.descriptor(length, readable=True, writable=True), lender.device))
                self.keep(world, world.tensors, Tensor(made, np.zeros(length, np.int32), lender))
        with world.lock:
            used = self.pick(world.tensors, lambda tensor: tensor.gpu is lender)
            if used is None:
                return False
            exporting = world.context.export_to_gpu
            with world.trying(world, used):
                if not self.lend(world, used, lambda: exporting(used.tensor)):
                    return True
                queue, lent = lender.device.queue, used.lent
                value = np.frombuffer(queue.read_buffer(lent.buffer), np.int32)
                if not np.array_equal(value, used.value):
                    raise Failure(f"{lent.buffer!r} holds {value[:8]}, not {used.value[:8]}")
                used.value = self.values(len(value))
                queue.write_buffer(lent.buffer, 0, used.value)
                if self.random.random() < 0.7:
                    lent.destroy()
                else:
                    lent.buffer = None  # the tensor keeps it
        return True

    def misuse(self, world: World) -> None:
        super().misuse(world)
        if not world.gpus:
            with world.trying(world):
                try:
                    world.context.create_exportable_tensor(
                        self.descriptor(1), gpu_device().device).result(PATIENCE)
                except NotSupportedError:
                    return
                raise Failure(f"{world.context!r}: the CPU shares with a GPUDevice")


@cache
def gpu_device() -> Gpu:
    """A GPUDevice that CPU contexts can't share with."""
    return open_device()


@cache
def wgpu_device() -> Gpu:
    """The only device of wgpu-py."""
    found = [adapter for adapter in wgpu.gpu.enumerate_adapters_sync()
             if adapter.info["backend_type"] == "Vulkan"]
    return Gpu(found[0].request_device_sync(label="stress"), None)


@cache
def weights() -> str:
    """A file with the constants of all lengths, each on separate pages."""
    file = tempfile.NamedTemporaryFile(prefix="webnn_vk-stress-", delete=False)
    for index, length in enumerate(LENGTHS):
        file.seek(16384 * index)
        file.write(ramp(length).tobytes())
    file.close()
    return file.name
