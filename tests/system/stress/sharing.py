"""Calls that share tensors with GPUDevices, and calls on the GPUDevices themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.system.stress.calls import Calls
from tests.system.stress.model import LENGTHS, Buffer, Failure, Gpu, Memory, Tensor
from tests.system.stress.world import PATIENCE, World
from webnn_vk.gpu import GPUBufferUsage

ALL = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST


class SharingCalls(Calls):
    """Calls on worlds with a GPUDevice."""

    # -- tensors that are lent -----------------------------------------------------------------
    def create_exportable_tensor(self, world: World) -> None:
        gpu, length = world.gpu, self.random.choice(LENGTHS)
        descriptor = self.descriptor(length, readable=True, writable=True)
        with world.trying(world, gpu):
            if world.context._gpu_device is gpu.device and self.random.random() < 0.5:
                promise = world.context.create_tensor({**descriptor, "importable_to_web_gpu": True})
            else:
                promise = world.context.create_exportable_tensor(descriptor, gpu.device)
            made = Tensor(self.wait(promise), np.zeros(length, np.int32), gpu)
            self.keep(world, world.tensors, made)

    def export_to_gpu(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.tensors, is_exportable)
            if used is None:
                return False
            self.lend(world, used, lambda: world.context.export_to_gpu(used.tensor))
        return True

    def import_external_buffer(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.tensors, is_exportable)
            if used is None:
                return False
            importing = used.gpu.device.import_external_buffer
            self.lend(world, used, lambda: importing(used.tensor).result(PATIENCE))
        return True

    @staticmethod
    def lend(world: World, used: Tensor, call: Callable[[], Any]) -> bool:
        """Makes a call that exports (lock held). While it is lent a tensor has one buffer, after
        its return another."""
        held, lent = used.held, used.lent
        with world.trying(world, used, used.gpu):
            found = call()
            same = lent is not None and lent.reference() is found
            if (used.surely_held and not same) or (same and not held):
                raise Failure(f"{found!r}, {'as' if same else 'unlike'} before")
            if found.size != used.value.nbytes or found.usage != ALL:
                raise Failure(f"{found!r}, usage {found.usage!r}, for {used.tensor!r}")
            if not same:
                used.lent = Buffer(found, used.memory, used.gpu)
            used.lent.buffer = found
            if used.lent not in world.buffers and used.gpu.driver is not None:
                world.buffers.append(used.lent)
            return True
        return False

    def use_exported(self, world: World) -> bool:
        """Every use of a lent tensor is a TypeError."""
        with world.lock:
            used = self.pick(world.tensors, lambda tensor: tensor.surely_held)
            if used is None:
                return False
            context, tensor, value = world.context, used.tensor, used.value
            # The calls succeed if the buffer is given back meanwhile; they change nothing.
            for call in (
                lambda: context.write_tensor(tensor, value),
                lambda: context.read_tensor(tensor).result(PATIENCE),
                lambda: context.read_tensor(tensor, value.copy()).result(PATIENCE),
                lambda: tensor.export_fd().close(),
                tensor.to_numpy,
                tensor.__dlpack__,
            ):
                with world.using(world, used):
                    call()
            graph = self.pick(world.graphs, lambda graph: graph.length == len(value))
            fit = [t for t in world.tensors if len(t.value) == len(value) and t is not used]
            if graph is not None and len(fit) > 1:
                one, two = self.random.sample(fit, 2)
                for x, y, z in (used, one, two), (one, two, used):
                    with world.using(world, graph, x, y, z):
                        context.dispatch(
                            graph.graph, {"x": x.tensor, "y": y.tensor}, {"z": z.tensor})
                        z.value = graph.formula.evaluate(x.value, y.value)
        return True

    # -- work on buffers -----------------------------------------------------------------------
    def create_buffer(self, world: World) -> None:
        gpu, length = world.gpu, self.random.choice(LENGTHS)
        with world.trying(gpu):
            made = gpu.device.create_buffer(size=4 * length, usage=ALL)
            self._keep_buffer(world, made, np.zeros(length, np.int32), gpu)

    def create_buffer_with_data(self, world: World) -> None:
        gpu, data = world.gpu, self.values(self.random.choice(LENGTHS))
        with world.trying(gpu):
            made = gpu.device.create_buffer_with_data(data=data, usage=ALL)
            self._keep_buffer(world, made, data.copy(), gpu)
        data[:] = -1

    def _keep_buffer(self, world: World, made: Any, value: np.ndarray, gpu: Gpu) -> None:
        self.keep(world, world.buffers, Buffer(made, Memory(value), gpu))

    def write_buffer(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.buffers)
            if used is None:
                return False
            start, stop = self._part(used)
            data = self.values(stop - start)
            with world.trying(used):
                used.gpu.device.queue.write_buffer(used.buffer, 4 * start, data)
                used.memory.value = _with(used, start, data)
        data[:] = -1
        return True

    def read_buffer(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.buffers)
            if used is None:
                return False
            start, stop = self._part(used)
            with world.trying(used):
                promise = used.gpu.device.queue.read_buffer(
                    used.buffer, 4 * start, 4 * (stop - start))
                self.expect(world, promise, used.memory.value[start:stop], used)
        return True

    def submit(self, world: World) -> bool:
        """Runs a shader, once or more."""
        with world.lock:
            used = self.pick(world.buffers)
            if used is None:
                return False
            device, times = used.gpu.device, self.random.choice((1, 1, 3))
            with world.trying(used):
                encoder = device.create_command_encoder()
                with encoder.begin_compute_pass() as compute:
                    compute.set_pipeline(used.gpu.pipeline)
                    compute.set_bind_group(0, device.create_bind_group(entries=[used.buffer]))
                    compute.dispatch_workgroups(-(-len(used.memory.value) // 64))
                device.queue.submit([encoder.finish()] * times)
                for _ in range(times):
                    used.memory.value = used.memory.value * 2 + 1
        return True

    def copy_buffer_to_buffer(self, world: World) -> bool:
        with world.lock:
            a = self.pick(world.buffers)
            b = self.pick(world.buffers, lambda other: other.memory is not a.memory
                          and other.gpu is a.gpu)
            if b is None:
                return False
            device = a.gpu.device
            start, stop = self._part(a)
            stop = min(stop, start + len(b.memory.value))
            to = self.random.randint(0, len(b.memory.value) - (stop - start))
            with world.trying(a, b):
                encoder = device.create_command_encoder()
                encoder.copy_buffer_to_buffer(
                    a.buffer, 4 * start, b.buffer, 4 * to, 4 * (stop - start))
                device.queue.submit([encoder.finish()])
                b.memory.value = _with(b, to, a.memory.value[start:stop])
        return True

    def _part(self, used: Buffer) -> tuple[int, int]:
        length = len(used.memory.value)
        if self.random.random() < 0.5:
            return 0, length
        start = self.random.randrange(length)
        return start, self.random.randint(start + 1, length)

    def destroy_buffer(self, world: World) -> bool:
        return self.destroy_one(world, world.buffers)

    def drop_buffer(self, world: World) -> bool:
        with world.lock:
            used = self.pick(world.buffers)
            if used is None:
                return False
            world.buffers.remove(used)
            used.buffer = None
        return True

    def on_submitted_work_done(self, world: World) -> None:
        gpu = world.gpu
        with world.trying(gpu):
            self.wait(gpu.device.queue.on_submitted_work_done())

    def open_device(self, world: World) -> bool:
        if not world.gpu.dead or world.dead:
            return False
        world.open_gpu()
        return True


def is_exportable(used: Tensor) -> bool:
    """Whether it is for one of our GPUDevices."""
    return used.gpu is not None and used.gpu.driver is not None


def _with(used: Buffer, start: int, data: np.ndarray) -> np.ndarray:
    value = used.memory.value.copy()
    value[start:start + len(data)] = data
    return value


