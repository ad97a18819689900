"""GPUDevice, buffers and the queue."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.faults import FaultyDriver
from tests.support.gpu_shaders import (
    ALL,
    COPY_DST,
    COPY_SRC,
    STORAGE,
    contents,
    encode,
    push,
    scale_pipeline,
)
from webnn_vk import InvalidStateError, OperationError
from webnn_vk.driver.resources import room_for
from webnn_vk.gpu import GPUBufferUsage
from webnn_vk.gpu.adapter import GPUDevice
from webnn_vk.runtime.device_selection import open_device
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.reclaim import TRIES
from webnn_vk.runtime.work import Await


@pytest.fixture
def faulty(adapter: Any) -> Any:
    """A device whose driver fails on command, and that driver."""
    settings = webnn_vk.Settings.from_environment()
    found = open_device(adapter._physical, settings)
    driver = FaultyDriver(found.driver)
    device = GPUDevice(adapter, DriverDevice(driver, found.shaders), settings)
    yield device, driver
    device.destroy()


def test_usage_values() -> None:
    """WebGPU's own."""
    assert (GPUBufferUsage.MAP_READ, GPUBufferUsage.MAP_WRITE) == (1, 2)
    assert (COPY_SRC, COPY_DST, GPUBufferUsage.UNIFORM, STORAGE) == (4, 8, 0x40, 0x80)


def test_alone(device: Any, compiler: None) -> None:
    """GLSL is compiled, runs, and its result is read: WebNN is not involved."""
    values = np.arange(1000, dtype=np.float32)
    source = device.create_buffer_with_data(data=values, usage=STORAGE)
    target = device.create_buffer(size=values.nbytes, usage=STORAGE | COPY_SRC, label="target")
    command = encode(
        device, (scale_pipeline(device, 3), [source, target], push(1000, 0.5), 16)
    )
    fence = device.queue.submit([command])
    assert fence.wait(60)
    assert fence.done
    assert np.array_equal(contents(device, target), values * 3 + 0.5)
    assert device.queue.submit([command, command]).wait(60)


def test_new_buffers_are_zeroed(device: Any) -> None:
    for _ in range(4):
        buffer = device.create_buffer(size=1 << 16, usage=ALL)
        assert not contents(device, buffer).any()
        device.queue.write_buffer(buffer, 0, np.ones(1 << 14, np.float32))
        buffer.destroy()


@pytest.mark.parametrize("size", [1, 3, 6, 255])
def test_sizes_that_are_no_words(device: Any, size: int) -> None:
    data = np.arange(1, size + 1, dtype=np.uint8)
    buffer = device.create_buffer_with_data(data=data, usage=ALL)
    assert buffer.size == size
    assert np.array_equal(device.queue.read_buffer(buffer).result(60), data)
    encoder = device.create_command_encoder()
    encoder.clear_buffer(buffer)
    device.queue.submit([encoder.finish()])
    assert not device.queue.read_buffer(buffer).result(60).any()


def test_parts(device: Any) -> None:
    buffer = device.create_buffer(size=64, usage=ALL)
    device.queue.write_buffer(buffer, 8, np.float32([1, 2, 3]))
    device.queue.write_buffer(buffer, 21, b"abcdef", 2, 3)
    expected = np.zeros(64, np.uint8)
    expected[8:20] = np.float32([1, 2, 3]).view(np.uint8)
    expected[21:24] = np.frombuffer(b"cde", np.uint8)
    assert np.array_equal(device.queue.read_buffer(buffer).result(60), expected)
    assert np.array_equal(device.queue.read_buffer(buffer, 9, 13).result(60), expected[9:22])
    device.queue.write_buffer(buffer, 0, b"")


def test_large_parts(device: Any) -> None:
    """Larger than one staging transfer, from and to the middle."""
    size = (32 << 20) + 4096
    buffer = device.create_buffer(size=size + 1000, usage=ALL)
    data = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    device.queue.write_buffer(buffer, 500, data)
    data_then = data.copy()
    data[:] = 0  # copied before the call returned
    assert np.array_equal(device.queue.read_buffer(buffer, 500, size).result(60), data_then)
    assert not device.queue.read_buffer(buffer, 0, 500).result(60).any()
    assert not device.queue.read_buffer(buffer, size + 500).result(60).any()


def test_data_of_all_kinds(device: Any) -> None:
    strided = np.arange(20, dtype=np.int16)[::2]
    for data, expected in (
        (b"abcd", b"abcd"),
        (bytearray(b"abcd"), b"abcd"),
        (memoryview(b"abcd"), b"abcd"),
        (strided, strided.tobytes()),
        (np.float64(1.5), np.float64(1.5).tobytes()),
    ):
        buffer = device.create_buffer_with_data(data=data, usage=COPY_SRC)
        assert device.queue.read_buffer(buffer).result(60).tobytes() == expected
    with pytest.raises(TypeError, match="buffer of numbers"):
        device.create_buffer_with_data(data="text", usage=ALL)
    with pytest.raises(TypeError, match="buffer of numbers"):
        device.create_buffer_with_data(data=np.array([None]), usage=ALL)


def test_what_is_no_buffer(device: Any) -> None:
    limit = device.limits["max_buffer_size"]
    for size, error in ((0, ValueError), (-4, ValueError), (limit + 1, ValueError),
                        (4.0, TypeError), (True, TypeError), ("4", TypeError)):
        with pytest.raises(error, match="create_buffer \\[odd\\]: size"):
            device.create_buffer(size=size, usage=ALL, label="odd")
    for usage in ("STORAGE", None):
        with pytest.raises(TypeError, match="create_buffer: usage: an integer is expected"):
            device.create_buffer(size=4, usage=usage)
    with pytest.raises(TypeError, match="the label has to be a str"):
        device.create_buffer(size=4, usage=ALL, label=5)
    assert device.create_buffer(size=np.int64(4), usage=int(ALL)).size == 4
    for usage in (0, GPUBufferUsage.MAP_READ | COPY_DST, GPUBufferUsage.UNIFORM, 1 << 20):
        with pytest.raises(ValueError, match="STORAGE, COPY_SRC, COPY_DST and QUERY_RESOLVE"):
            device.create_buffer(size=4, usage=usage)


def test_wrong_use(device: Any, own_device: Any) -> None:
    queue = device.queue
    no_copies = device.create_buffer(size=16, usage=STORAGE, label="plain")
    with pytest.raises(ValueError, match="'plain'.* usage COPY_DST"):
        queue.write_buffer(no_copies, 0, b"1234")
    with pytest.raises(ValueError, match="'plain'.* usage COPY_SRC"):
        queue.read_buffer(no_copies)
    buffer = device.create_buffer(size=16, usage=ALL)
    for call in (
        lambda: queue.write_buffer(buffer, 13, b"1234"),
        lambda: queue.write_buffer(buffer, -1, b"1234"),
        lambda: queue.read_buffer(buffer, 16),
        lambda: queue.read_buffer(buffer, 0, 17),
    ):
        with pytest.raises(ValueError, match="not inside"):
            call()
    encoder = device.create_command_encoder()
    other = device.create_buffer(size=16, usage=ALL)
    for call in (
        lambda: queue.write_buffer("buffer", 0, b"1234"),
        lambda: queue.write_buffer(buffer, 4.0, b"1234"),
        lambda: queue.write_buffer(buffer, 0, b"1234", 0.0),
        lambda: queue.write_buffer(buffer, 0, b"1234", 0, "4"),
        lambda: queue.read_buffer(None),
        lambda: queue.read_buffer(buffer, 0, 4.0),
        lambda: encoder.copy_buffer_to_buffer("buffer", 0, buffer, 0, 4),
        lambda: encoder.copy_buffer_to_buffer(other, 0, None, 0, 4),
        lambda: encoder.copy_buffer_to_buffer(other, 0.0, buffer, 0, 4),
        lambda: encoder.copy_buffer_to_buffer(other, 0, buffer, 0, 4.0),
        lambda: encoder.clear_buffer("buffer"),
        lambda: device.create_bind_group(entries=[{"buffer": buffer, "offset": "0"}]),
        lambda: device.create_bind_group(entries=[{"binding": "0", "resource": buffer}]),
    ):
        with pytest.raises(TypeError, match="expected, not"):
            call()
    for part in ((-4,), (5,), (0, -2), (3, 2)):
        with pytest.raises(ValueError, match="write_buffer: .* bytes of 4, from"):
            queue.write_buffer(buffer, 0, b"1234", *part)
    assert queue.read_buffer(buffer).result(60).tolist() == [0] * 16
    queue.write_buffer(buffer, np.int64(4), b"1234", 1, 2)
    assert queue.read_buffer(buffer, 4, np.uint32(3)).result(60).tobytes() == b"23\0"
    with pytest.raises(ValueError, match="5 bytes of 4"):
        queue.write_buffer(buffer, 0, b"1234", 0, 5)
    with pytest.raises(ValueError, match="another GPUDevice"):
        own_device.queue.read_buffer(buffer)
    with pytest.raises(TypeError, match="a GPUCommandBuffer is expected"):
        queue.submit([buffer])
    buffer.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        queue.read_buffer(buffer)


def test_order(device: Any, compiler: None) -> None:
    """Writes, shaders, copies and reads run in the order of the calls."""
    ones = np.ones(256, np.float32)
    a, b = (device.create_buffer(size=1024, usage=ALL) for _ in range(2))
    add = scale_pipeline(device, 2)
    reads = []
    for i in range(6):
        device.queue.write_buffer(a, 0, ones * i)
        device.queue.submit([encode(device, (add, [a, b], push(256, 1), 4))])
        reads.append(device.queue.read_buffer(b))
        encoder = device.create_command_encoder()
        encoder.copy_buffer_to_buffer(b, 0, a, 0)
        device.queue.submit([encoder.finish()])
        reads.append(device.queue.read_buffer(a))
    for i, read in enumerate(reads):
        assert np.array_equal(read.result(60).view(np.float32), ones * (i // 2 * 2 + 1))


def test_work_done(device: Any) -> None:
    buffer = device.create_buffer(size=4, usage=ALL)
    device.queue.write_buffer(buffer, 0, b"1234")
    read = device.queue.read_buffer(buffer)
    assert device.queue.on_submitted_work_done().result(60) is None
    assert read.done()
    empty = device.queue.submit([])
    assert empty.wait(60)


def test_memory_is_counted(own_device: Any) -> None:
    gpu = own_device._state.device
    before = gpu.memory_in_use()
    buffers = [own_device.create_buffer(size=1 << 20, usage=ALL) for _ in range(3)]
    assert gpu.memory_in_use() == before + 3 * room_for(1 << 20, gpu.profile)
    own_device.queue.on_submitted_work_done().result(60)
    buffers[0].destroy()
    assert gpu.memory_in_use() <= before + (3 << 20)
    del buffers
    own_device.queue.on_submitted_work_done().result(60)
    gc.collect()
    assert gpu.memory_in_use() == before


def test_command_buffers_keep_memory_and_let_it_go(own_device: Any, compiler: None) -> None:
    gpu, made = own_device._state.device, scale_pipeline(own_device)
    own_device.queue.on_submitted_work_done().result(60)
    before = gpu.memory_in_use()
    for _ in range(300):
        a, b = (own_device.create_buffer(size=4096, usage=ALL) for _ in range(2))
        own_device.queue.submit([encode(own_device, (made, [a, b], push(1024), 16))])
    del a, b
    own_device.queue.on_submitted_work_done().result(60)
    gc.collect()
    own_device.queue.on_submitted_work_done().result(60)
    assert gpu.memory_in_use() == before


def test_out_of_memory(own_device: Any) -> None:
    heap = max(size for size, _ in own_device._state.device.profile.memory_heaps)
    size = min(own_device.limits["max_buffer_size"], heap)
    kept = []
    with pytest.raises(MemoryError):
        for _ in range(1 + heap // size):
            kept.append(own_device._state.device.create_storage(size))  # reserved, never touched
    with pytest.raises(OperationError, match="create_buffer \\[huge\\]: out of device memory"):
        own_device.create_buffer(size=size, usage=ALL, label="huge")
    kept.clear()
    assert not contents(own_device, own_device.create_buffer(size=64, usage=ALL)).any()


def test_destroy(adapter: Any, compiler: None) -> None:
    device = adapter.request_device().result(60)
    buffer = device.create_buffer(size=64, usage=ALL)
    module = scale_pipeline(device)._module
    encoder = device.create_command_encoder()
    command = device.create_command_encoder().finish()
    assert not device.lost.done()
    device.destroy()
    device.destroy()
    info = device.lost.result(60)
    assert (info.reason, info.message) == ("destroyed", "destroy() was called")
    for call in (
        lambda: device.create_buffer(size=4, usage=ALL),
        lambda: device.create_buffer_with_data(data=b"1234", usage=ALL),
        lambda: device.create_shader_module(code="void"),
        lambda: device.create_compute_pipeline(module=module),
        lambda: device.create_bind_group(entries=[buffer]),
        lambda: device.create_command_encoder(),
        lambda: device.queue.write_buffer(buffer, 0, b"1234"),
        lambda: device.queue.read_buffer(buffer),
        lambda: device.queue.submit([command]),
        lambda: device.queue.on_submitted_work_done(),
        lambda: encoder.begin_compute_pass(),
        lambda: encoder.finish(),
    ):
        with pytest.raises(InvalidStateError, match="GPUDevice is lost"):
            call()


def test_devices_are_collected(adapter: Any) -> None:
    device = adapter.request_device().result(60)
    timeline = device._state.timeline
    buffer = device.create_buffer(size=64, usage=ALL)
    gone = weakref.ref(device._state)
    del device
    gc.collect()
    assert gone() is not None  # the buffer holds it
    del buffer
    gc.collect()
    assert gone() is None
    assert timeline._closed.wait(60)


def test_lost(faulty: Any) -> None:
    device, driver = faulty
    buffer = device.create_buffer(size=64, usage=ALL)
    device.queue.on_submitted_work_done().result(60)
    driver.lose("gone")
    with pytest.raises(InvalidStateError):
        device.queue.read_buffer(buffer).result(60)
    info = device.lost.result(60)
    assert info.reason == "unknown" and "gone" in info.message
    with pytest.raises(InvalidStateError, match="gone"):
        device.create_buffer(size=64, usage=ALL)


def test_contexts_are_told_of_a_loss_that_the_device_finds(faulty: Any) -> None:
    device, driver = faulty
    context = webnn_vk.ml.create_context(device).result(60)
    encoder = device.create_command_encoder()
    driver.lose("gone")
    with pytest.raises(InvalidStateError, match="gone"):
        encoder.finish()
    assert "gone" in context.lost.result(60).message
    assert device.lost.result(60).reason == "unknown"


def test_failed_submissions_are_known_to_readers(faulty: Any, compiler: None) -> None:
    device, driver = faulty
    made = scale_pipeline(device)
    a, b, c = (device.create_buffer(size=4096, usage=ALL) for _ in range(3))
    command = encode(device, (made, [a, b], push(1024, 1), 16))
    onward = encode(device, (made, [b, c], push(1024, 1), 16))
    device.queue.on_submitted_work_done().result(60)
    driver.fail_submit()
    device.queue.submit([command]).wait(60)
    device.queue.submit([onward]).wait(60)
    for buffer in (b, c):
        with pytest.raises(OperationError, match="injected"):
            device.queue.read_buffer(buffer).result(60)
    assert not contents(device, a).any()
    device.queue.submit([command, onward])  # now it goes through
    assert np.array_equal(contents(device, c), np.full(1024, 2, np.float32))
    assert not device.lost.done()


def test_out_of_memory_at_the_driver(faulty: Any) -> None:
    device, driver = faulty
    driver.fail_allocation(times=TRIES)
    with pytest.raises(OperationError, match="create_buffer: injected"):
        device.create_buffer(size=64, usage=ALL)
    assert not contents(device, device.create_buffer(size=64, usage=ALL)).any()


@pytest.mark.parametrize(("method", "call"), [
    ("record", lambda device: device.create_command_encoder().finish()),
    ("pipelines", lambda device: scale_pipeline(device, 3)),
])
def test_a_device_that_another_thread_destroys_meanwhile(
    adapter: Any, compiler: None, monkeypatch: pytest.MonkeyPatch, method: str, call: Any
) -> None:
    device = adapter.request_device().result()
    timeline = device._state.timeline
    driver = timeline.device.driver
    real = getattr(driver, method)

    def late(*arguments: Any) -> Any:
        device.destroy()
        timeline.close(60)
        return real(*arguments)

    monkeypatch.setattr(driver, method, late)
    with pytest.raises(InvalidStateError, match="closed"):
        call(device)


def test_a_device_dropped_with_results_pending(adapter: Any) -> None:
    gate = threading.Event()

    def promises() -> tuple[Any, Any]:
        device = adapter.request_device().result(60)
        buffer = device.create_buffer_with_data(data=b"12345678", usage=ALL)
        device._state.stream.enqueue(Await(lambda: gate.wait(60)))
        return device.queue.read_buffer(buffer), device.queue.on_submitted_work_done()

    read, done = promises()
    gc.collect()
    time.sleep(0.1)  # the end of the device is noticed
    gate.set()
    assert read.result(60)[:8].tobytes() == b"12345678"
    assert done.result(60) is None
