"""CPU steps of one context's graph, blocked by the test, and other work meanwhile on the same
device. The tests check orders of completion, never times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.drivers import require_vulkan
from webnn_vk import MLGraphBuilder, OperationError, Settings, gpu, ml
from webnn_vk.gpu import GPUBufferUsage
from webnn_vk.runtime.executable import DriverExecutable

PATIENCE = 60
FLOATS = {"data_type": "float32", "shape": [4]}
TENSOR = {**FLOATS, "readable": True, "writable": True}
VALUES = np.arange(4, dtype=np.float32)


class HeldUp:
    """CPU steps wait here."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.error: Exception | None = None


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldUp]:
    held = HeldUp()
    run_host = DriverExecutable.run_host

    def wait_and_run(self: Any, *arguments: Any) -> None:
        held.reached.set()
        assert held.go_on.wait(PATIENCE)
        if held.error is not None:
            raise held.error
        run_host(self, *arguments)

    monkeypatch.setattr(DriverExecutable, "run_host", wait_and_run)
    yield held
    held.go_on.set()


@pytest.fixture
def device() -> Iterator[Any]:
    require_vulkan()
    with gpu.request_adapter().result(PATIENCE).request_device().result(PATIENCE) as device:
        yield device


def open_on(device: Any, *, force_cpu: tuple[str, ...] = ()) -> Any:
    settings = Settings(force_cpu=force_cpu)
    return ml.create_context(device, settings=settings).result(PATIENCE)


def graph_of(context: Any) -> Any:
    """y = -(x + x) + x: with ``neg`` on the CPU it is between two segments."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", FLOATS)
    y = builder.add(builder.neg(builder.add(x, x)), x)
    return builder.build({"y": y}).result(PATIENCE)


def tensors(context: Any) -> tuple[Any, Any]:
    x, y = (context.create_tensor(TENSOR).result(PATIENCE) for _ in range(2))
    context.write_tensor(x, VALUES)
    return x, y


@pytest.fixture
def mixed(device: Any) -> Iterator[Any]:
    """A context whose ``neg`` runs on the CPU."""
    with open_on(device, force_cpu=("neg",)) as context:
        yield context


@pytest.fixture
def plain(device: Any) -> Iterator[Any]:
    with open_on(device) as context:
        yield context


def test_another_context_of_the_device_goes_on(held_up: HeldUp, mixed: Any, plain: Any) -> None:
    slow, quick = graph_of(mixed), graph_of(plain)
    x, y = tensors(mixed)
    mixed.dispatch(slow, {"x": x}, {"y": y})
    first, second = mixed.read_tensor(y), mixed.read_tensor(x)
    assert held_up.reached.wait(PATIENCE)
    for _ in range(3):
        assert np.array_equal(plain.compute(quick, {"x": VALUES})["y"], -VALUES)
    fence = plain.fence()
    assert fence.wait(PATIENCE) and fence.done
    # The other context's order is strict: nothing overtakes its CPU step, and it is not over.
    assert not first.done() and not second.done() and not mixed.fence().done
    held_up.go_on.set()
    assert np.array_equal(first.result(PATIENCE), -VALUES)
    assert np.array_equal(second.result(PATIENCE), VALUES)
    assert mixed.fence().wait(PATIENCE)


def test_the_device_s_own_queue_goes_on(held_up: HeldUp, device: Any, mixed: Any) -> None:
    slow = graph_of(mixed)
    x, y = tensors(mixed)
    mixed.dispatch(slow, {"x": x}, {"y": y})
    result = mixed.read_tensor(y)
    assert held_up.reached.wait(PATIENCE)
    buffer = device.create_buffer_with_data(data=VALUES, usage=GPUBufferUsage.COPY_SRC)
    assert np.array_equal(device.queue.read_buffer(buffer).result(PATIENCE).view(np.float32),
                          VALUES)
    device.queue.on_submitted_work_done().result(PATIENCE)
    assert not result.done()
    held_up.go_on.set()
    assert np.array_equal(result.result(PATIENCE), -VALUES)


def test_an_exported_tensor_is_ordered_behind_the_cpu_step(
    held_up: HeldUp, device: Any, mixed: Any, plain: Any
) -> None:
    """The device's queue follows the context after the handover, and then back."""
    slow, quick = graph_of(mixed), graph_of(plain)
    x = mixed.create_tensor(TENSOR).result(PATIENCE)
    y = mixed.create_exportable_tensor(TENSOR, device).result(PATIENCE)
    mixed.write_tensor(x, VALUES)
    mixed.dispatch(slow, {"x": x}, {"y": y})
    assert held_up.reached.wait(PATIENCE)
    with mixed.export_to_gpu(y) as buffer:
        seen = device.queue.read_buffer(buffer)
        assert np.array_equal(plain.compute(quick, {"x": VALUES})["y"], -VALUES)
        assert not seen.done()
        device.queue.write_buffer(buffer, 0, VALUES * 10)
    back = mixed.read_tensor(y)
    assert np.array_equal(plain.compute(quick, {"x": VALUES})["y"], -VALUES)
    assert not seen.done() and not back.done()
    held_up.go_on.set()
    assert np.array_equal(seen.result(PATIENCE).view(np.float32), -VALUES)
    assert np.array_equal(back.result(PATIENCE), VALUES * 10)


def test_a_cpu_step_that_fails(held_up: HeldUp, mixed: Any, plain: Any) -> None:
    """Its outputs report the error, as on a separate timeline; later work goes on."""
    slow, quick = graph_of(mixed), graph_of(plain)
    x, y = tensors(mixed)
    held_up.error = ValueError("odd")
    mixed.dispatch(slow, {"x": x}, {"y": y})
    failed, read = mixed.read_tensor(y), mixed.read_tensor(x)
    assert held_up.reached.wait(PATIENCE)
    held_up.go_on.set()
    with pytest.raises(OperationError, match="odd"):
        failed.result(PATIENCE)
    assert np.array_equal(read.result(PATIENCE), VALUES)
    assert np.array_equal(plain.compute(quick, {"x": VALUES})["y"], -VALUES)


def test_many_mixed_dispatches_of_two_contexts(device: Any) -> None:
    """Each context's own order holds, without blocking."""
    with open_on(device, force_cpu=("neg",)) as a, open_on(device, force_cpu=("neg",)) as b:
        work = []
        for context in (a, b):
            graph, (x, y) = graph_of(context), tensors(context)
            work.append((context, graph, x, y))
        reads = []
        for i in range(20):
            for context, graph, x, y in work:
                context.write_tensor(x, VALUES + i)
                context.dispatch(graph, {"x": x}, {"y": y})
                reads.append((context.read_tensor(y), -(VALUES + i)))
        for promise, wanted in reads:
            assert np.array_equal(promise.result(PATIENCE), wanted)


def test_destroyed_while_a_cpu_step_is_held_up(held_up: HeldUp, device: Any, plain: Any) -> None:
    """The other context lives on, and the device closes at the end."""
    timeline = plain._state.timeline
    context = open_on(device, force_cpu=("neg",))
    slow, quick = graph_of(context), graph_of(plain)
    x, y = tensors(context)
    context.dispatch(slow, {"x": x}, {"y": y})
    result = context.read_tensor(y)
    assert held_up.reached.wait(PATIENCE)
    context.destroy()
    with pytest.raises(Exception, match="destroy"):
        result.result(PATIENCE)
    assert np.array_equal(plain.compute(quick, {"x": VALUES})["y"], -VALUES)
    held_up.go_on.set()
    plain.destroy()
    device.destroy()
    assert timeline._closed.wait(PATIENCE)
