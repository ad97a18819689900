"""Tensors, graphs and contexts destroyed or dropped while work on them is queued or running."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest

from tests.support.contexts import open_context, returns_to, settled_bytes
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from tests.support.paths import ROOT
from tests.system.lifetimes.conftest import adder, build, ints, make_tensor
from tests.system.lifetimes.test_chains import Counting
from webnn_vk import InvalidStateError, MLGraphBuilder
from webnn_vk.runtime.reclaim import TRIES


def rejected(promise):
    with pytest.raises(InvalidStateError) as caught:
        promise.result(60)
    return str(caught.value)


def test_a_tensor_destroyed_with_work_in_flight(over):
    context, driver = over(Counting)
    graph = adder(context)
    x, y, z = (make_tensor(context).result() for _ in range(3))
    context.write_tensor(x, ints(1, 2, 3, 4))
    before = settled_bytes(context)
    driver.gate.clear()
    context.dispatch(graph, {"a": x, "b": y}, {"y": z})
    pending = [context.read_tensor(z), context.read_tensor(x)]
    survivor = context.read_tensor(z)
    buffer = ints(7, 7, 7, 7)
    into = context.read_tensor(x, buffer)
    x.destroy()
    assert "destroyed" in rejected(pending[1]) and "destroyed" in rejected(into)
    assert not survivor.done()
    # Queued work still uses its memory, and ends as usual.
    assert context._state.device.memory_in_use() >= before
    driver.gate.set()
    assert survivor.result(60).tolist() == pending[0].result(60).tolist() == [1, 2, 3, 4]
    assert buffer.tolist() == [7] * 4
    assert returns_to(context, before - 1)


def test_a_graph_destroyed_with_work_in_flight(over):
    context, driver = over(Counting)
    x, y = (make_tensor(context, (64,)).result() for _ in range(2))
    before = settled_bytes(context)
    graph = build(context, lambda b, a: b.softmax(b.cast(a, "float32"), 0), "a",
                  shape=(64,)).result()
    z = make_tensor(context, (64,), "float32").result()
    driver.gate.clear()
    context.dispatch(graph, {"a": x}, {"y": z})
    pending = context.read_tensor(z)
    executable = weakref.ref(graph._executable)
    graph.destroy()
    with pytest.raises(InvalidStateError, match="graph was destroyed"):
        context.dispatch(graph, {"a": x}, {"y": z})
    driver.gate.set()
    assert pending.result(60) == pytest.approx([1 / 64] * 64)
    # Its tensors live on; its pipelines, recordings and intermediates do not.
    z.destroy()
    assert returns_to(context, before)
    gc.collect()
    assert executable() is None
    context.write_tensor(y, ints(*range(64)))


def test_a_context_destroyed_with_everything_pending(over):
    context, driver = over(Counting)
    graph = adder(context)
    x, y, z = (make_tensor(context).result() for _ in range(3))
    builder = MLGraphBuilder(context)
    built = builder.build({"n": builder.neg(builder.input("x", {"data_type": "int32",
                                                                "shape": (5,)}))})
    built.exception(60)
    driver.gate.clear()
    context.dispatch(graph, {"a": x, "b": y}, {"y": z})
    pending = {
        "read": context.read_tensor(z),
        "create": make_tensor(context),
        "constant": context.create_constant_tensor({"data_type": "int32", "shape": (1,)}, ints(1)),
        "build": build(context, lambda b, a: b.abs(a), "a", shape=(3,)),
    }
    told = []
    context.lost.add_done_callback(told.append)
    assert not any(promise.done() for promise in pending.values())
    context.destroy()
    for name, promise in pending.items():
        assert "destroy" in rejected(promise), name
    assert told == [context.lost]
    assert context.lost.result().message == "destroy() was called"
    driver.gate.set()
    assert context._state.timeline._closed.wait(60)
    assert driver.driver.memory_in_use().reserved == 0


@pytest.mark.parametrize("device", ["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def test_a_context_dropped_with_results_pending(device, request):
    """They come, and then the device is closed."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    gate, timelines = threading.Event(), []

    def promises():
        context = open_context(device)
        timelines.append(context._state.timeline)
        graph = build(context, lambda b, a: b.neg(a), "a").result()
        context._state.stream.enqueue(_hold(gate))
        made = [context.compute_async(graph, {"a": ints(n, 0, 0, n)}) for n in range(3)]
        return made, context.fence()

    computed, fence = promises()
    gc.collect()
    time.sleep(0.1)  # the end of the context is noticed
    gate.set()
    for n, promise in enumerate(computed):
        assert promise.result(60)["y"].tolist() == [-n, 0, 0, -n]
    assert fence.wait(60)
    assert timelines[0]._closed.wait(60)


def test_destroying_in_a_callback(fresh):
    """Callbacks run on the timeline's thread: destroying there must not wait for that thread."""
    t = make_tensor(fresh).result()
    fresh.read_tensor(t).add_done_callback(lambda _: fresh.destroy())
    assert fresh.lost.result(60).message == "destroy() was called"
    assert fresh._state.timeline._closed.wait(60)


def test_waiting_in_a_callback_is_refused(context):
    t = make_tensor(context).result()
    seen = []
    called = threading.Event()

    def callback(_):
        try:
            context.read_tensor(t).result()
        except InvalidStateError as error:
            seen.append(str(error))
        try:
            context.fence().wait()
        except InvalidStateError as error:
            seen.append(str(error))
        called.set()

    gate = threading.Event()
    context._state.stream.enqueue(_hold(gate))
    context.read_tensor(t).add_done_callback(callback)
    gate.set()
    assert called.wait(60)
    assert len(seen) == 2 and all("can't wait" in text for text in seen)
    assert make_tensor(context).result(60) is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_exits_doesn_t_end_the_timeline(context):
    def leave(_):
        raise SystemExit

    t = make_tensor(context).result()
    gate = threading.Event()
    context._state.stream.enqueue(_hold(gate))
    context.read_tensor(t).add_done_callback(leave)
    gate.set()
    assert context.read_tensor(t).result(60).tolist() == [0] * 4


def _hold(gate):
    from webnn_vk.runtime.work import Await

    return Await(lambda: gate.wait(60))


def test_a_constant_tensor_destroyed_after_build(context):
    data = ints(5, 6, 7, 8)
    constant = context.create_constant_tensor({"data_type": "int32", "shape": (4,)}, data).result()
    graph = build(context, lambda b, a: b.add(a, b.constant(constant)), "a").result()
    constant.destroy()
    # Memory that was freed by mistake would be this.
    others = [make_tensor(context).result() for _ in range(4)]
    for other in others:
        context.write_tensor(other, ints(99, 99, 99, 99))
    assert context.compute(graph, {"a": ints(1, 1, 1, 1)})["y"].tolist() == [6, 7, 8, 9]


def test_memory_that_is_still_in_use_is_waited_for(over):
    """A tensor destroyed earlier makes room for the next, although its work still runs."""
    context, driver = over(lambda driver: Counting(FaultyDriver(driver)))
    old = make_tensor(context).result()
    driver.gate.clear()
    context.write_tensor(old, ints(1, 2, 3, 4))
    read = context.read_tensor(old)
    driver.fail_allocation(times=TRIES)
    new, later = make_tensor(context), make_tensor(context)
    assert driver.injected["allocation"] == TRIES
    assert not new.done()
    old.destroy()
    driver.gate.set()
    assert "destroyed" in rejected(read)
    for made in (new, later):
        context.write_tensor(made.result(60), ints(4, 3, 2, 1))
        assert context.read_tensor(made.result()).result(60).tolist() == [4, 3, 2, 1]


def cycles(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "tests.system.lifetimes.cycles", *map(str, arguments)],
        capture_output=True, text=True, cwd=ROOT,
        # The layer keeps records of past objects.
        env={**os.environ, "WEBNN_VK_VALIDATE": "0", **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("kind", "count"), [("tensors", 500), ("graphs", 100), ("contexts", 20)])
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_no_leak(kind, count, device):
    """Not one object, of the library or of Vulkan, for every second cycle: allocators keep a few
    blocks."""
    if device == "vulkan":
        require_vulkan()
    left = cycles(kind, count, device, "--count")
    assert left.pop("device bytes") == 0
    assert left.pop("bytes") < 1 << 16, left
    assert max(left.values()) < count // 2, left


@pytest.mark.explore
@pytest.mark.parametrize(
    ("kind", "count"), [("tensors", 10_000), ("graphs", 400), ("contexts", 100)]
)
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_no_growth(kind, count, device):
    """Of the process's resident memory."""
    if device == "vulkan":
        require_vulkan()
    # malloc_trim does not trim the free ends of glibc's arenas for threads. Their number, and how
    # much each keeps, depends on the scheduler (8 MB have been seen).
    result = cycles(kind, count, device, MALLOC_ARENA_MAX="1")
    assert result["cycles"] == count
    assert result["device_bytes"] == result["device_bytes_before"]
    assert result["grown_bytes"] < 2**20, result
