"""Sharing between two opened devices: how their timelines are ordered."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.bridge import BridgedDriver
from tests.support.faults import FaultyDriver
from tests.support.gpu_shaders import contents, double
from tests.support.open_files import left_open, open_files
from webnn_vk import InvalidStateError, NotSupportedError, OperationError, UnknownError
from webnn_vk.api.context import MLContext
from webnn_vk.driver import OutOfDeviceMemory
from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.gpu.adapter import GPUDevice
from webnn_vk.gpu.flags import SUPPORTED_USAGE
from webnn_vk.runtime.device_selection import open_device
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.runtime.work import Await

DESCRIPTOR = {"data_type": "float32", "shape": [1000], "readable": True, "writable": True}
ONES = np.ones(1000, np.float32)

Wrap = Callable[[Any], Any]


@pytest.fixture
def opened(adapter: Any) -> Iterator[Callable[..., tuple[MLContext, GPUDevice]]]:
    """Makes a context and a GPUDevice on two drivers, each wrapped."""
    if "external_memory_fd" not in adapter.features:
        pytest.skip("the device has no external memory")
    settings = webnn_vk.Settings.from_environment()
    made: list[Any] = []

    def gpu(wrap: Wrap) -> DriverDevice:
        found = open_device(adapter._physical, settings)
        return DriverDevice(wrap(found.driver), found.shaders)

    def make(wrap_context: Wrap, wrap_device: Wrap) -> tuple[MLContext, GPUDevice]:
        device = GPUDevice(adapter, gpu(wrap_device), settings)
        timeline = Timeline(gpu(wrap_context))
        context = MLContext(timeline, DeviceInfo.of(timeline.device.profile), settings)
        made.extend((context, device))
        return context, device

    yield make
    for each in made:
        each.destroy()


def unwrapped(driver: Any) -> Any:
    return driver


@pytest.mark.parametrize("wrap", [unwrapped, BridgedDriver], ids=["host", "semaphore"])
def test_ping_pong(opened: Any, wrap: Wrap, compiler: None) -> None:
    context, device = opened(wrap, wrap)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    assert (tensor._state.external._sides[0].semaphore is not None) == (wrap is BridgedDriver)
    context.write_tensor(tensor, ONES)
    reads = []
    for _ in range(12):
        with context.export_to_gpu(tensor) as buffer:
            double(device, buffer)
            reads.append(device.queue.read_buffer(buffer))
        reads.append(context.read_tensor(tensor))
    for i, read in enumerate(reads):
        assert np.array_equal(read.result(60).view(np.float32), ONES * 2 ** (i // 2 + 1))
    if wrap is BridgedDriver:
        assert device._state.device.driver.carried >= 23


@pytest.mark.parametrize("wrap", [unwrapped, BridgedDriver], ids=["host", "semaphore"])
def test_the_caller_never_waits(opened: Any, wrap: Wrap) -> None:
    """The device's timeline waits for the context's, which is blocked here; calls return."""
    context, device = opened(wrap, wrap)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    go = threading.Event()
    context._state.stream.enqueue(Await(lambda: go.wait(60)))
    context.write_tensor(tensor, ONES)
    buffer = context.export_to_gpu(tensor)
    read = device.queue.read_buffer(buffer)
    device.queue.write_buffer(buffer, 0, ONES * 5)
    buffer.destroy()
    back = context.read_tensor(tensor)
    with pytest.raises(TimeoutError):
        read.result(0.05)
    assert not back.done()
    go.set()
    assert np.array_equal(read.result(60).view(np.float32), ONES)
    assert np.array_equal(back.result(60), ONES * 5)


@pytest.mark.parametrize("wrap", [unwrapped, BridgedDriver], ids=["host", "semaphore"])
def test_tensors_that_cross(adapter: Any, wrap: Wrap) -> None:
    """Contexts on both devices lend to each other at once: the waits never form a cycle."""
    if "external_memory_fd" not in adapter.features:
        pytest.skip("the device has no external memory")
    settings = webnn_vk.Settings.from_environment()
    devices = []
    for _ in range(2):
        found = open_device(adapter._physical, settings)
        device = DriverDevice(wrap(found.driver), found.shaders)
        devices.append(GPUDevice(adapter, device, settings))
    contexts = [webnn_vk.ml.create_context(device).result(60) for device in devices]
    tensors = [
        context.create_exportable_tensor(DESCRIPTOR, device).result(60)
        for context, device in zip(contexts, devices[::-1], strict=True)
    ]
    rounds = 25

    def lend(me: int) -> None:
        for i in range(rounds):
            with contexts[me].export_to_gpu(tensors[me]) as buffer:
                devices[1 - me].queue.write_buffer(buffer, 4 * i, np.float32([i + me]))

    threads = [threading.Thread(target=lend, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for me in range(2):
        found = contexts[me].read_tensor(tensors[me]).result(60)
        assert np.array_equal(found[:rounds], np.arange(rounds) + me)
    for each in (*contexts, *devices):
        each.destroy()


def test_failed_work_is_known_on_the_other_side(opened: Any) -> None:
    context, device = opened(FaultyDriver, unwrapped)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    context.fence().wait(60)
    context._state.device.driver.fail_submit()
    context.write_tensor(tensor, ONES)
    context.fence().wait(60)
    with context.export_to_gpu(tensor) as buffer:
        with pytest.raises(OperationError, match="injected"):
            device.queue.read_buffer(buffer).result(60)
        device.queue.write_buffer(buffer, 0, ONES * 3)  # all of it: failed work is forgotten
        assert np.array_equal(contents(device, buffer), ONES * 3)
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES * 3)


@pytest.mark.parametrize("wrap", [unwrapped, BridgedDriver], ids=["host", "semaphore"])
@pytest.mark.parametrize("failing", ["release", "acquire"])
def test_a_handover_that_fails(opened: Any, failing: str, wrap: Wrap) -> None:
    """A later reader of the memory gets an error, since its contents may be wrong."""
    def faulty(driver: Any) -> Any:
        return FaultyDriver(wrap(driver))

    context, device = opened(faulty, faulty)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    context.fence().wait(60)
    driver = context._state.device.driver if failing == "release" else device._state.device.driver
    driver.fail_submit()
    with context.export_to_gpu(tensor) as buffer:
        for each in (context._state.stream, device._state.stream):
            each.fence().wait(60)
        with pytest.raises(OperationError, match="injected"):
            device.queue.read_buffer(buffer).result(60)
        device.queue.write_buffer(buffer, 0, ONES)
        assert np.array_equal(contents(device, buffer), ONES)
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES)


def test_device_lost_while_it_holds_a_tensor(opened: Any) -> None:
    context, device = opened(unwrapped, FaultyDriver)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    context.write_tensor(tensor, ONES)
    buffer = context.export_to_gpu(tensor)
    device.queue.on_submitted_work_done().result(60)
    device._state.device.driver.lose()
    with pytest.raises(InvalidStateError):
        device.queue.read_buffer(buffer).result(60)
    info = device.lost.result(60)
    assert info.reason == "unknown" and "injected" in info.message
    # The tensor is the context's again; its contents are undefined.
    deadline = threading.Event()
    while tensor._state.lease is not None and not deadline.wait(0.01):
        pass
    with pytest.raises(OperationError, match="device that held"):
        context.read_tensor(tensor).result(60)
    context.write_tensor(tensor, ONES * 2)
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES * 2)
    assert not context.lost.done()


def test_memory_that_the_device_does_not_take(opened: Any, monkeypatch: Any) -> None:
    """The tensor is not created, and nothing of the attempt stays."""
    context, device = opened(unwrapped, unwrapped)
    context.create_exportable_tensor(DESCRIPTOR, device).result(60).destroy()
    context.fence().wait(60)
    before = context._state.device.memory_in_use(), device._state.device.memory_in_use()
    files = open_files()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OutOfDeviceMemory("refused")

    monkeypatch.setattr(device._state.device.driver.sharing, "import_memory", refuse)
    for _ in range(3):
        with pytest.raises(UnknownError, match="float32\\[1000\\].*refused"):
            context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    gc.collect()
    context.fence().wait(60)
    assert (context._state.device.memory_in_use(), device._state.device.memory_in_use()) == before
    assert not left_open(files)


@pytest.mark.parametrize("side", ["context", "device"])
def test_lost_when_the_tensor_is_made(opened: Any, side: str) -> None:
    """Whichever device is lost reports it at once; the other lives on."""
    context, device = opened(FaultyDriver, FaultyDriver)
    drivers = {"context": context._state.device.driver, "device": device._state.device.driver}
    export = drivers["context"].driver.sharing.export_memory

    def lose_then_export(allocation: Any) -> Any:
        drivers[side].lose()
        return export(allocation)

    drivers["context"].export_memory = lose_then_export
    with pytest.raises((InvalidStateError, UnknownError), match="injected"):
        context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    lost, living = (context, device) if side == "context" else (device, context)
    assert "injected" in lost.lost.result(60).message
    assert not living.lost.done()


def test_a_device_of_other_hardware(opened: Any) -> None:
    context, device = opened(unwrapped, unwrapped)
    device._state.device.profile = dataclasses.replace(device._state.device.profile, uuid="ab" * 16)
    with pytest.raises(NotSupportedError, match="the context is on .*, the GPUDevice on"):
        context.create_exportable_tensor(DESCRIPTOR, device).result(60)


def test_context_lost_while_its_tensor_is_out(opened: Any) -> None:
    context, device = opened(FaultyDriver, unwrapped)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    context.write_tensor(tensor, ONES)
    buffer = context.export_to_gpu(tensor)
    device.queue.on_submitted_work_done().result(60)
    context._state.device.driver.lose()
    context.fence()
    with pytest.raises(InvalidStateError):
        context.create_tensor(DESCRIPTOR).result(60)
    assert np.array_equal(contents(device, buffer), ONES)
    buffer.destroy()
    assert not device.lost.done()


@pytest.mark.parametrize("wrap", [unwrapped, BridgedDriver], ids=["host", "semaphore"])
def test_work_before_the_end_of_either_side(opened: Any, wrap: Wrap, compiler: None) -> None:
    """Destroying the context or the device doesn't drop work that the other side waits for."""
    context, device = opened(wrap, wrap)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    go = threading.Event()
    context._state.stream.enqueue(Await(lambda: go.wait(60)))
    context.write_tensor(tensor, ONES)
    buffer = context.export_to_gpu(tensor)
    context.destroy()
    read = device.queue.read_buffer(buffer)
    go.set()
    assert np.array_equal(read.result(60).view(np.float32), ONES)

    context, device = opened(wrap, wrap)
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    context.write_tensor(tensor, ONES)
    buffer = context.export_to_gpu(tensor)
    for _ in range(20):
        double(device, buffer)
    device.destroy()
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES * 2**20)


def test_what_was_handed_over_stands_when_later_work_fails(opened: Any) -> None:
    context, device = opened(BridgedDriver, lambda driver: FaultyDriver(BridgedDriver(driver)))
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    buffer = context.export_to_gpu(tensor)
    other = device.create_buffer(size=4000, usage=SUPPORTED_USAGE)
    device.queue.write_buffer(buffer, 0, ONES)
    device.queue.on_submitted_work_done().result(60)
    go = threading.Event()
    device._state.stream.enqueue(Await(lambda: go.wait(60)))
    before = device.queue.read_buffer(buffer)
    buffer.destroy()
    after = device.queue.read_buffer(other)
    # Three submissions of one batch: the read, the tensor's return, and refused work.
    device._state.device.driver.fail_submit(3)
    go.set()
    with pytest.raises(UnknownError, match="injected"):
        after.result(60)
    assert np.array_equal(before.result(60).view(np.float32), ONES)
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Waits until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_return_that_fails_when_the_other_side_is_gone(opened: Any) -> None:
    """The device's timeline goes on."""
    context, device = opened(BridgedDriver, lambda driver: FaultyDriver(BridgedDriver(driver)))
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    buffer = context.export_to_gpu(tensor)
    device.queue.on_submitted_work_done().result(60)
    events = [threading.Event() for _ in range(2)]
    for stream, event in zip((context._state.stream, device._state.stream), events, strict=True):
        stream.enqueue(Await(lambda event=event: event.wait(60)))
    buffer.destroy()
    context.destroy()
    # A separate thread closes: until it has begun, the context's work would go on.
    until(lambda: context._state.timeline._scheduler.end is not None)
    events[0].set()
    assert context._state.timeline._closed.wait(60)
    device._state.device.driver.fail_submit()
    events[1].set()
    other = device.create_buffer(size=4000, usage=SUPPORTED_USAGE)
    assert not device.queue.read_buffer(other).result(60).any()


def test_threads(pair: Any) -> None:
    """Exports, writes and returns from many threads: whichever side may work on a tensor sees
    complete contents."""
    context, device = pair
    tensor = context.create_exportable_tensor(DESCRIPTOR, device).result(60)
    refused, exported, wrong = [0], [0], []

    lenders_done = threading.Event()

    def write(number: int) -> None:
        i = 0
        while not lenders_done.is_set():
            i += 1
            try:
                context.write_tensor(tensor, ONES * (number * 1000 + i % 1000))
            except TypeError:
                refused[0] += 1

    def lend() -> None:
        for _ in range(100):
            with context.export_to_gpu(tensor) as buffer:
                try:
                    first = device.queue.read_buffer(buffer)
                    second = device.queue.read_buffer(buffer)
                except InvalidStateError:
                    continue  # the other lender had the same buffer and destroyed it
                exported[0] += 1
                # No call writes to a lent tensor.
                a, b = (read.result(60).view(np.float32) for read in (first, second))
                if a[0] != b[0] or not (a == a[0]).all():
                    wrong.append((a, b))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=lend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads[2:]:
        thread.join(60)
    lenders_done.set()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert refused[0] and exported[0]
    context.write_tensor(tensor, ONES)
    assert np.array_equal(context.read_tensor(tensor).result(60), ONES)
