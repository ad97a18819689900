"""A signal at various places in the GPU API's methods: the device goes on, or the call has no
effect."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.support import selection
from tests.support.gpu_shaders import ALL, DOUBLE, needs_compiler
from tests.support.interrupts import Places, count, interrupt
from webnn_vk import InvalidStateError, UnknownError, gpu, ml
from webnn_vk.driver import BarrierCommand, CopyCommand

pytestmark = pytest.mark.device
METHODS = ("submit", "write_buffer", "read_buffer", "create_buffer", "create_query_set", "record",
           "work_done", "export", "destroy_buffer")
SAMPLE = 10


class World:
    """Buffers a[i] that a command buffer doubles, and a tensor to share."""

    def __init__(self) -> None:
        self.device = gpu.request_adapter().result().request_device().result()
        self.context = ml.create_context(self.device).result()
        descriptor = {"data_type": "float32", "shape": [4], "readable": True, "writable": True}
        self.tensor = self.context.create_exportable_tensor(descriptor, self.device).result()
        self.queue = self.device.queue
        module = self.device.create_shader_module(code=DOUBLE["float32"])
        self.pipeline = self.device.create_compute_pipeline(module=module)
        self.buffer = self.device.create_buffer(size=16, usage=ALL)
        self.data = np.arange(4, dtype=np.float32)
        self.commands = self.record()
        self.calls = {
            "submit": lambda: self.queue.submit([self.commands]).wait(60),
            "write_buffer": lambda: self.queue.write_buffer(self.buffer, 0, self.data),
            "read_buffer": lambda: self.queue.read_buffer(self.buffer).result(60),
            "create_buffer": lambda: self.device.create_buffer(size=16, usage=ALL),
            "create_query_set": lambda: self.device.create_query_set(type="timestamp", count=2),
            "record": self.record,
            "work_done": lambda: self.queue.on_submitted_work_done().result(60),
            "export": self.export,
            "destroy_buffer": lambda: self.device.create_buffer(size=16, usage=ALL).destroy(),
        }

    def record(self):
        encoder = self.device.create_command_encoder()
        group = self.device.create_bind_group(entries=[self.buffer])
        with encoder.begin_compute_pass() as work:
            work.set_pipeline(self.pipeline)
            work.set_bind_group(0, group)
            work.dispatch_workgroups(1)
        return encoder.finish()

    def export(self):
        self.context.export_to_gpu(self.tensor).destroy()

    def check(self, number: float) -> None:
        self.queue.write_buffer(self.buffer, 0, np.full(4, number, np.float32))
        self.queue.submit([self.commands])
        read = self.queue.read_buffer(self.buffer).result(60)
        assert read.view(np.float32).tolist() == [2 * number] * 4
        # The object that a line of `export` may have lost.
        self.context.export_to_gpu(self.tensor).destroy()
        self.context.write_tensor(self.tensor, np.full(4, number, np.float32))
        assert self.context.read_tensor(self.tensor).result(60).tolist() == [number] * 4


@pytest.fixture(scope="module")
def world(vulkan):
    needs_compiler()
    world = World()
    yield world
    world.context.destroy()
    world.device.destroy()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["interrupt", "handler"])
def test_a_signal_at_any_place(world, method, form, request):
    call = world.calls[method]
    call()
    total = count(call)
    places = range(total)
    if not request.config.option.explore and total > SAMPLE:
        places = sorted(selection.chance("places", method).sample(places, SAMPLE))
    for at in places:
        signal = Places(at, interrupt if form == "interrupt" else lambda: world.check(3))
        try:
            signal.call(call)
        except KeyboardInterrupt:
            assert form == "interrupt"
        world.check(at)


def test_an_interrupted_export_is_undone(world):
    """Wherever the interrupt arrives: either the tensor belongs to the context, or the caller has
    its buffer."""
    data = np.arange(4, dtype=np.float32)
    # No frame of the library, in which the return value could be lost.
    export = partial(world.context.export_to_gpu, world.tensor)
    export().destroy()
    for at in range(count(export)):
        world.context.export_to_gpu(world.tensor).destroy()
        signal = Places(at, interrupt)
        try:
            signal.call(export).destroy()
        except KeyboardInterrupt:
            pass
        world.context.write_tensor(world.tensor, data * at)
        found = world.context.read_tensor(world.tensor).result(60)
        assert found.tolist() == (data * at).tolist(), signal.place
    # A buffer that a caller already has stays valid, whatever interrupts a second call.
    buffer = export()
    for at in range(count(export)):
        try:
            Places(at, interrupt).call(export)
        except KeyboardInterrupt:
            pass
        with pytest.raises(TypeError, match="is held by"):
            world.context.write_tensor(world.tensor, data)
    assert export() is buffer
    buffer.destroy()


@pytest.mark.parametrize("call", ["write_buffer", "submit", "read_buffer"])
def test_a_buffer_that_is_given_back_amid_a_call(world, call):
    """A call that finds too late that the buffer was given back leaves the tensor unchanged."""
    theirs, ours = np.full(4, 9, np.float32), np.full(4, 5, np.float32)
    refused = 0

    def once(at):
        nonlocal refused
        buffer = world.context.export_to_gpu(world.tensor)
        encoder = world.device.create_command_encoder()
        encoder.clear_buffer(buffer)
        commands = encoder.finish()
        calls = {
            "write_buffer": lambda: world.queue.write_buffer(buffer, 0, theirs),
            "submit": lambda: world.queue.submit([commands]).wait(60),
            "read_buffer": lambda: world.queue.read_buffer(buffer).exception(60),
        }

        def give_back():
            buffer.destroy()
            world.context.write_tensor(world.tensor, ours)

        signal = Places(at, give_back)
        try:
            error = signal.call(calls[call])
            if call == "read_buffer" and isinstance(error, UnknownError):
                refused += 1
        except InvalidStateError as error:
            assert "was destroyed" in str(error)
            refused += 1
        if signal.place:
            found = world.context.read_tensor(world.tensor).result(60)
            assert found.tolist() == ours.tolist(), signal.place
        else:
            buffer.destroy()
        return signal.place

    at = 0
    while once(at):
        at += 1
    assert refused and at > 5
    world.check(1)


@pytest.mark.parametrize("form", ["interrupt", "handler"])
def test_a_signal_amid_recording(world, form, monkeypatch):
    """Commands are recorded whole, with a barrier between any two that touch the same memory, on
    any recording thread. The values follow from that order."""
    device, driver = world.device, world.device._state.device.driver
    a, b, c = (device.create_buffer(size=16, usage=ALL) for _ in range(3))
    recorded = []
    record = driver.record
    monkeypatch.setattr(driver, "record", lambda commands: recorded.extend(commands)
                        or record(commands))

    def once(at):
        encoder = device.create_command_encoder()
        encoder.copy_buffer_to_buffer(a, 0, b, 0, 16)

        def handle():
            if form == "interrupt":
                raise KeyboardInterrupt
            encoder.copy_buffer_to_buffer(b, 0, c, 0, 16)

        signal = Places(at, handle)
        try:
            signal.call(lambda: encoder.copy_buffer_to_buffer(a, 0, b, 0, 16))
        except KeyboardInterrupt:
            encoder.copy_buffer_to_buffer(a, 0, b, 0, 16)
        device.queue.write_buffer(a, 0, np.full(4, at, np.float32))
        device.queue.on_submitted_work_done().result(60)
        recorded.clear()
        finished = encoder.finish()
        commands = list(recorded)
        device.queue.submit([finished])
        copies = [command for command in commands if isinstance(command, CopyCommand)]
        assert len(copies) == 2 or (signal.place and len(copies) == 3), signal.place
        kinds = [type(command) for command in commands]
        barriers = [BarrierCommand] * len(copies)
        expected = [kind for pair in zip([CopyCommand] * len(copies), barriers, strict=True)
                    for kind in pair][:-1]
        assert kinds == expected, signal.place
        last = device.queue.read_buffer(c if len(copies) == 3 and form == "handler" else b)
        assert last.result(60).view(np.float32).tolist() == [at] * 4
        return signal.place

    at = 0
    while once(at):
        at += 1
    assert at > 10


def test_a_handler_that_destroys_the_device(vulkan, request):
    needs_compiler()
    for number in range(30 if request.config.option.explore else 2):
        world = World()
        call = world.calls["submit"]
        at = selection.chance("destroyed", number).randrange(count(call))
        signal = Places(at, world.device.destroy)
        try:
            signal.call(call)
        except InvalidStateError as error:
            assert "lost" in str(error) or "closed" in str(error)
        assert world.device.lost.result(60).message == "destroy() was called"
        world.context.destroy()
