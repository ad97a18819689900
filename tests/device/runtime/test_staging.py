"""The limit on data that waits for a busy device."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from webnn_vk import InvalidStateError, MLContext, MLGraphBuilder
from webnn_vk.api import create_tensor
from webnn_vk.runtime import staging
from webnn_vk.runtime.direct import DirectWork

MB = 1 << 20
BOUND = 8 * MB


class Busy:
    """A context whose device continues when ``gate`` is set."""

    def __init__(self, context: MLContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context = context
        self.timeline = context._state.timeline
        self.gate = threading.Event()
        self.gate.set()
        wait = self.timeline.device.wait

        def held_up(batch: object) -> None:
            assert self.gate.wait(60)
            wait(batch)

        monkeypatch.setattr(self.timeline.device, "wait", held_up)

    def tensor(self, size: int = MB):
        descriptor = {"data_type": "uint8", "shape": [size]}
        return self.context.create_tensor(
            {**descriptor, "readable": True, "writable": True}).result(60)

    def begin(self, call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
        """``call`` on a new thread; its outcome."""
        outcome: list[object] = []

        def run() -> None:
            try:
                outcome.append(call())
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, outcome


@pytest.fixture(params=["cpu", "vulkan"])
def busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    if request.param == "vulkan":
        require_vulkan()
    monkeypatch.setattr(staging, "STAGING_BYTES", BOUND)
    # Direct work would go on, and a write that waits for its copy would wait for the gate.
    monkeypatch.setattr(DirectWork, "open", lambda self: None)
    monkeypatch.setattr(MLContext, "_write_and_wait", lambda *arguments: False)
    # Constants in the device's memory at once wait for nothing.
    monkeypatch.setattr(create_tensor, "fill", lambda storage, data: False)
    with open_context(request.param) as context:
        made = Busy(context, monkeypatch)
        yield made
        made.gate.set()


pytestmark = pytest.mark.device


def fill(busy: Busy, tensor: object) -> None:
    """As much waits as may."""
    busy.gate.clear()
    for _ in range(BOUND // MB):
        busy.context.write_tensor(tensor, np.zeros(MB, np.uint8))
    assert busy.timeline.staging.bytes == BOUND


def test_a_flood_of_writes_waits_for_the_device(busy):
    tensor = busy.tensor()
    fill(busy, tensor)
    thread, outcome = busy.begin(
        lambda: [busy.context.write_tensor(tensor, np.full(MB, i, np.uint8)) for i in range(40)])
    thread.join(0.5)
    assert thread.is_alive() and busy.timeline.staging.bytes == BOUND
    most = []

    def watch() -> None:
        while thread.is_alive():
            most.append(busy.timeline.staging.bytes)

    watcher, _ = busy.begin(watch)
    busy.gate.set()
    thread.join(60)
    watcher.join(60)
    assert outcome == [[None] * 40]
    assert max(most) <= BOUND
    assert (busy.context.read_tensor(tensor).result(60) == 39).all()
    # All room comes back.
    end = time.monotonic() + 60
    while busy.timeline.staging.bytes:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_ctrl_c_ends_the_waiting(busy):
    tensor = busy.tensor()
    fill(busy, tensor)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            busy.context.write_tensor(tensor, np.ones(MB, np.uint8))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    busy.gate.set()
    assert not busy.context.read_tensor(tensor).result(60).any()
    busy.context.write_tensor(tensor, np.full(MB, 7, np.uint8))
    assert (busy.context.read_tensor(tensor).result(60) == 7).all()


def test_a_callback_is_refused(busy):
    tensor = busy.tensor()
    said: list[object] = []

    def callback(promise: object) -> None:
        for call in (
            lambda: busy.context.write_tensor(tensor, np.ones(MB, np.uint8)),
            lambda: busy.context.create_constant_tensor(
                {"data_type": "uint8", "shape": [MB]}, np.ones(MB, np.uint8)).result(0),
        ):
            try:
                said.append(call())
            except InvalidStateError as error:
                said.append(error)

    busy.gate.clear()
    first = busy.context.read_tensor(tensor)
    first.add_done_callback(callback)
    # Work in flight ends before this waits for the gate again.
    fill_after = [busy.context.write_tensor(tensor, np.zeros(MB, np.uint8)) for _ in range(8)]
    assert fill_after == [None] * 8
    callback_over = threading.Event()
    first.add_done_callback(lambda promise: callback_over.set())
    busy.gate.set()
    assert callback_over.wait(60)
    assert len(said) == 2
    for error in said:
        assert isinstance(error, InvalidStateError), said
        assert f"at most {BOUND} may" in str(error) and "callback" in str(error)


def test_the_end_ends_the_waiting(busy):
    tensor = busy.tensor()
    fill(busy, tensor)
    thread, outcome = busy.begin(lambda: busy.context.write_tensor(tensor, np.ones(MB, np.uint8)))
    thread.join(0.2)
    assert thread.is_alive()
    busy.context.destroy()
    thread.join(60)
    (error,) = outcome
    assert isinstance(error, InvalidStateError)


def test_a_tensor_destroyed_meanwhile(busy):
    tensor = busy.tensor()
    fill(busy, tensor)
    thread, outcome = busy.begin(lambda: busy.context.write_tensor(tensor, np.ones(MB, np.uint8)))
    thread.join(0.2)
    tensor.destroy()
    busy.gate.set()
    thread.join(60)
    (error,) = outcome
    assert isinstance(error, InvalidStateError) and "destroyed" in str(error)


def test_one_alone_may_be_larger(busy):
    tensor = busy.tensor(3 * BOUND)
    data = np.arange(3 * BOUND, dtype=np.uint32).astype(np.uint8)
    busy.context.write_tensor(tensor, data)
    np.testing.assert_array_equal(busy.context.read_tensor(tensor).result(60), data)


def test_many_small_ones_wait_too(busy):
    tensor = busy.tensor(16)
    busy.gate.clear()
    most = BOUND // staging.SMALL_BYTES
    for _ in range(most):
        busy.context.write_tensor(tensor, np.zeros(16, np.uint8))
    thread, outcome = busy.begin(lambda: busy.context.write_tensor(tensor, np.ones(16, np.uint8)))
    thread.join(0.3)
    assert thread.is_alive()
    busy.gate.set()
    thread.join(60)
    assert outcome == [None]
    assert (busy.context.read_tensor(tensor).result(60) == 1).all()


def test_other_paths_wait_as_well(busy):
    """Constants and the inputs of compute and compute_async, 40 of each: none waits for another."""
    context, tensor = busy.context, busy.tensor()
    descriptor = {"data_type": "uint8", "shape": [MB]}
    builder = MLGraphBuilder(context)
    x = builder.input("x", descriptor)
    graph = builder.build({"y": builder.max(x, builder.constant("uint8", 3))}).result(120)
    data = np.full(MB, 5, np.uint8)
    calls = {
        "constant": lambda: context.create_constant_tensor(descriptor, data).result(60),
        "compute": lambda: context.compute(graph, {"x": data})["y"][0],
        "compute_async": lambda: [
            promise.result(60)["y"][0]
            for promise in [context.compute_async(graph, {"x": data}) for _ in range(40)]],
    }
    for name, call in calls.items():
        fill(busy, tensor)
        begun = [busy.begin(call) for _ in range(1 if name == "compute_async" else 20)]
        for thread, _ in begun:
            thread.join(0.01)
        assert all(thread.is_alive() for thread, _ in begun), name
        assert busy.timeline.staging.bytes == BOUND
        busy.gate.set()
        for thread, outcome in begun:
            thread.join(60)
            assert not isinstance(outcome[0], BaseException), (name, outcome)
            assert name == "constant" or np.all(np.array(outcome[0]) == 5)


def test_a_gpu_s_queue_has_the_bound_too(vulkan, monkeypatch):
    from webnn_vk.gpu import GPUBufferUsage, request_adapter

    monkeypatch.setattr(staging, "STAGING_BYTES", BOUND)
    device = request_adapter().result(60).request_device().result(60)
    usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC
    buffer = device.create_buffer(size=MB, usage=usage)
    most = 0
    for i in range(60):
        device.queue.write_buffer(buffer, 0, np.full(MB, i, np.uint8))
        most = max(most, device._state.timeline.staging.bytes)
    assert (device.queue.read_buffer(buffer).result(60) == 59).all()
    assert MB <= most <= BOUND
    device.destroy()
