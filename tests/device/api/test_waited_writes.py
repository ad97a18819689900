"""Large tensors of devices that use the host's memory: a write waits until the timeline has copied
the data, once; what an idle device has is read by one copy, too."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over
from tests.support.driver_proxy import DriverProxy
from tests.support.interrupts import Places, count, interrupt
from webnn_vk import InvalidStateError, MLContext, MLGraph, MLGraphBuilder, OperationError
from webnn_vk.api import context as context_module
from webnn_vk.driver import resources
from webnn_vk.runtime import batch_assembly
from webnn_vk.runtime.work import Await, Write
from webnn_vk.support.host_copy import copy_bytes

COUNT = 300_000
SHAPE = {"data_type": "float32", "shape": [COUNT]}
KIND = {**SHAPE, "readable": True, "writable": True}


@pytest.fixture(autouse=True)
def _every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_module, "IN_PLACE_BYTES", 4 * COUNT)


@pytest.fixture(params=["vulkan", "cpu"])
def context(request: pytest.FixtureRequest) -> Iterator[MLContext]:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(request.param) as opened:
        yield opened


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[Write]:
    """The writes whose caller waits."""
    found: list[Write] = []
    made = context_module.Write

    def write(*arguments: Any, **options: Any) -> Write:
        found.append(made(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(context_module, "Write", write)
    return found


def _random(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(COUNT, np.float32)


def _tensor(context: MLContext) -> Any:
    return context.create_tensor(KIND).result(60)


def _doubling(context: MLContext) -> MLGraph:
    builder = MLGraphBuilder(context)
    x = builder.input("x", SHAPE)
    return builder.build({"y": builder.add(x, x)}).result(60)


def _settle(context: MLContext) -> None:
    """Until nothing is queued or running: what a caller waits for may end a moment before."""
    end = time.monotonic() + 60
    while not context._state.timeline.idle:
        assert time.monotonic() < end
        time.sleep(0.001)


def _read(context: MLContext, tensor: Any) -> np.ndarray:
    return context.read_tensor(tensor).result(60)


def test_what_is_changed_after_the_call_is_not_written(context, waited) -> None:
    tensor, data = _tensor(context), _random()
    for number in range(5):
        expected = data + number
        given = expected.copy()
        _settle(context)
        context.write_tensor(tensor, given)
        given[:] = -1
        np.testing.assert_array_equal(_read(context, tensor), expected)
    assert len(waited) == 5


def test_arrays_of_any_kind(context, waited) -> None:
    """Read-only, at an odd address, in another order, and no array at all."""
    tensor, data = _tensor(context), _random()
    fixed = data.copy()
    fixed.flags.writeable = False
    odd = np.zeros(4 * COUNT + 1, np.uint8)[1:].view(np.float32)
    odd[:] = data
    for given in (fixed, odd, np.repeat(data, 2)[::2], data.tobytes()):
        for written in (np.zeros_like(data), given):
            _settle(context)
            context.write_tensor(tensor, written)
        np.testing.assert_array_equal(_read(context, tensor), data)
    assert len(waited) == 8


@pytest.mark.parametrize("kind", ["write", "read", "create"])
def test_each_byte_is_copied_once(vulkan: None, monkeypatch, kind: str) -> None:
    with open_context("vulkan") as context:
        tensor, data, out = _tensor(context), _random(), np.empty(COUNT, np.float32)
        context.write_tensor(tensor, data)
        _settle(context)
        sizes: list[int] = []

        def copy(target: np.ndarray, source: np.ndarray) -> None:
            sizes.append(len(source))
            copy_bytes(target, source)

        monkeypatch.setattr(resources, "copy_bytes", copy)
        monkeypatch.setattr(batch_assembly, "copy_bytes", copy)
        driver = context._state.device.driver
        before = driver.submitted()
        if kind == "write":
            context.write_tensor(tensor, data)
        elif kind == "read":
            context.read_tensor(tensor, out).result(60)
            np.testing.assert_array_equal(out, data)
        else:
            tensor = context.create_constant_tensor(SHAPE, data).result(60)
        assert sizes == [4 * COUNT] and driver.submitted() == before
        if kind == "create":
            builder = MLGraphBuilder(context)
            x = builder.constant(tensor)
            graph = builder.build({"y": builder.add(x, x)}).result(60)
            np.testing.assert_array_equal(context.compute(graph, {})["y"], data + data)


def test_a_busy_device_gets_a_copy_later(context, waited) -> None:
    """The call doesn't wait, and what ran before sees the old data."""
    tensor, made, data = _tensor(context), _tensor(context), _random()
    graph = _doubling(context)
    context.write_tensor(tensor, data)
    hold = threading.Event()
    context._state.stream.enqueue(Await(lambda: hold.wait(60)))
    context.dispatch(graph, {"x": tensor}, {"y": made})
    before = len(waited)
    context.write_tensor(tensor, data + 1)
    assert len(waited) == before
    hold.set()
    np.testing.assert_array_equal(_read(context, made), data + data)
    np.testing.assert_array_equal(_read(context, tensor), data + 1)


def test_the_order_of_dispatches_writes_and_reads(context) -> None:
    tensor, made, graph = _tensor(context), _tensor(context), _doubling(context)
    promises = []
    for number in range(12):
        context.write_tensor(tensor, np.full(COUNT, number, np.float32))
        context.dispatch(graph, {"x": tensor}, {"y": made})
        promises.append(context.read_tensor(made))
        if number % 3 == 0:
            context.fence().wait(60)
    for number, promise in enumerate(promises):
        assert (promise.result(60) == 2 * number).all()


def test_threads_that_write_and_read_one_tensor(context) -> None:
    """Every read finds one of the writes, whole."""
    tensor = _tensor(context)
    context.write_tensor(tensor, np.zeros(COUNT, np.float32))
    found: list[np.ndarray] = []

    def write(number: int) -> None:
        for turn in range(6):
            context.write_tensor(tensor, np.full(COUNT, 10 * turn + number, np.float32))

    def read() -> None:
        for _ in range(6):
            found.append(_read(context, tensor))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 12
    assert all((array == array[0]).all() for array in found)


def test_in_a_callback_nothing_waits(context, waited) -> None:
    tensor, data, done = _tensor(context), _random(), threading.Event()

    def write(promise: Any) -> None:
        context.write_tensor(tensor, data)
        done.set()

    context.read_tensor(tensor).add_done_callback(write)
    assert done.wait(60) and not waited
    np.testing.assert_array_equal(_read(context, tensor), data)


def test_a_profile_sees_the_transfers(vulkan: None, waited) -> None:
    with open_context("vulkan") as context:
        tensor, data = _tensor(context), _random()
        with context.profile(roofline=False) as profile:
            context.write_tensor(tensor, data)
            np.testing.assert_array_equal(_read(context, tensor), data)
        assert not waited
        moved = {t.kind: (t.count, t.bytes) for t in profile.report.transfers}
        assert moved == {"upload": (1, 4 * COUNT), "download": (1, 4 * COUNT)}


class Discrete(DriverProxy):
    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.profile = driver.profile.replace(device_type="discrete", vendor_id=0x10DE)


def test_a_device_with_memory_of_its_own_gets_staged_data(vulkan: None, waited) -> None:
    context, _ = open_over(Discrete)
    with context:
        tensor, data = _tensor(context), _random()
        context.write_tensor(tensor, data)
        np.testing.assert_array_equal(_read(context, tensor), data)
        assert not waited


# -- what ends the wait
@pytest.fixture
def blocked(context: MLContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The timeline is about to copy, and does so once ``go`` is set; ``begun``: it has come."""
    begun, go = threading.Event(), threading.Event()
    device = type(context._state.device)
    execute = device.execute

    def held(self: Any, works: Any) -> Any:
        if any(isinstance(work, Write) and work.waited for work in works):
            begun.set()
            assert go.wait(60)
        return execute(self, works)

    monkeypatch.setattr(device, "execute", held)
    yield begun, go
    go.set()


def test_ctrl_c_leaves_the_tensor_unwritten(context, blocked) -> None:
    """Reading it says so, and so do what was computed from it and its reads; a new write ends it.
    """
    begun, go = blocked
    tensor, made, data, graph = _tensor(context), _tensor(context), _random(), _doubling(context)
    _settle(context)
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        def press() -> None:
            begun.wait(60)
            signal.raise_signal(signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            context.write_tensor(tensor, data)
        data[:] = 7
        presser.join()
    finally:
        signal.signal(signal.SIGINT, before)
    context.dispatch(graph, {"x": tensor}, {"y": made})
    go.set()
    for spoilt in (tensor, made):
        with pytest.raises(OperationError, match="write_tensor was interrupted"):
            _read(context, spoilt)
    context.write_tensor(tensor, data)
    context.dispatch(graph, {"x": tensor}, {"y": made})
    assert (_read(context, tensor) == 7).all() and (_read(context, made) == 14).all()


def test_the_end_of_the_context_ends_the_wait(context, blocked) -> None:
    begun, go = blocked
    tensor = _tensor(context)
    _settle(context)
    thread = threading.Thread(target=lambda: (begun.wait(60), go.set(), context.destroy()))
    thread.start()
    try:
        context.write_tensor(tensor, _random())
    except InvalidStateError as error:
        assert "destroy() was called" in str(error)
    thread.join(60)


def test_an_interrupt_at_any_place(context, request) -> None:
    """The tensor has the old data or the new, or reading it is an error."""
    tensor, old, new = _tensor(context), np.zeros(COUNT, np.float32), np.ones(COUNT, np.float32)

    def call() -> None:
        context.write_tensor(tensor, new)

    call()
    total = count(call)
    step = 1 if request.config.option.explore else max(1, total // 25)
    seen = set()
    for at in range(0, total, step):
        new[:] = 1
        context.write_tensor(tensor, old)
        _settle(context)
        place = Places(at, interrupt)
        try:
            place.call(call)
        except KeyboardInterrupt:
            new[:] = 7
        try:
            values = set(_read(context, tensor).tolist())
            assert values in ({0}, {1}), place.place
            seen |= values
        except OperationError as error:
            assert "write_tensor was interrupted" in str(error)
            seen.add(-1)
    assert {0, -1} <= seen
