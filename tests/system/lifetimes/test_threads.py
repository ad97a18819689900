"""Calls from many threads and event loops, and CPU steps between a device's steps."""

from __future__ import annotations

import asyncio
import threading
import time

import numpy as np
import pytest

from tests.support.driver_proxy import DriverProxy
from tests.system.lifetimes.conftest import adder, build, ints, make_tensor
from tests.system.lifetimes.test_chains import Counting
from webnn_vk import InvalidStateError, OperationError
from webnn_vk.runtime import host
from webnn_vk.support.event import Event


# -- CPU steps -------------------------------------------------------------------------------------
class HeldSteps:
    """Blocks the CPU steps of partitioned graphs until `go`, and counts them."""

    def __init__(self, monkeypatch):
        self.entered, self.go = threading.Event(), threading.Event()
        self.count = 0
        original = host.run_steps

        def run(*arguments):
            self.count += 1
            self.entered.set()
            assert self.go.wait(60)
            original(*arguments)

        monkeypatch.setattr(host, "run_steps", run)


@pytest.fixture
def held(monkeypatch):
    steps = HeldSteps(monkeypatch)
    yield steps
    steps.go.set()


def partitioned(context):
    """y = −(a + 1) · 2, with the negation on the CPU between two segments of the device."""
    graph = build(context, lambda b, a: b.mul(b.neg(b.add(a, b.constant("int32", 1))),
                                              b.constant("int32", 2)), "a").result(60)
    report = graph.report()
    assert (report.count("cpu"), report.count("vulkan")) == (1, 2)
    return graph


def test_a_cpu_step_blocks_no_caller(over, held):
    context, driver = over(Counting, force_cpu=("neg",))
    other, _ = over(Counting)
    graph = partitioned(context)
    x, y, z = (make_tensor(context).result() for _ in range(3))
    for i in range(3):
        context.write_tensor(x, ints(i, i, i, i))
        context.dispatch(graph, {"a": x}, {"y": y})
    context.dispatch(graph, {"a": y}, {"y": z})
    pending = [context.read_tensor(y), context.read_tensor(z)]
    made = make_tensor(context)
    assert held.entered.wait(60)
    # The step runs: the device has done the segment before it, and nothing after it.
    submits = driver.submits
    assert not any(promise.done() for promise in (*pending, made))
    assert held.count == 1
    # Another context is not delayed.
    t = make_tensor(other).result(60)
    other.write_tensor(t, ints(9, 9, 9, 9))
    assert other.read_tensor(t).result(60).tolist() == [9] * 4
    assert driver.submits == submits
    held.go.set()
    assert pending[0].result(60).tolist() == [-6] * 4
    assert pending[1].result(60).tolist() == [10] * 4
    assert made.result(60) is not None
    assert held.count == 4


def test_a_context_destroyed_amid_a_cpu_step(over, held):
    context, driver = over(Counting, force_cpu=("neg",))
    graph = partitioned(context)
    x, y = (make_tensor(context).result() for _ in range(2))
    context.dispatch(graph, {"a": x}, {"y": y})
    pending = context.read_tensor(y)
    assert held.entered.wait(60)
    context.destroy()
    with pytest.raises(InvalidStateError):
        pending.result(60)
    assert not context._state.timeline._closed.is_set()
    held.go.set()
    assert context._state.timeline._closed.wait(60)
    assert driver.driver.memory_in_use().reserved == 0


def test_a_cpu_step_that_fails_fails_its_dispatch_alone(over, monkeypatch):
    context, _ = over(Counting, force_cpu=("neg",))
    graph, plain = partitioned(context), adder(context)
    x, y, z = (make_tensor(context).result() for _ in range(3))

    def fail(*arguments):
        raise ArithmeticError("the reference fails")

    monkeypatch.setattr(host, "run_steps", fail)
    context.write_tensor(x, ints(1, 2, 3, 4))
    context.dispatch(graph, {"a": x}, {"y": y})
    with pytest.raises(OperationError, match="the reference fails"):
        context.read_tensor(y).result(60)
    monkeypatch.undo()
    context.dispatch(graph, {"a": x}, {"y": y})
    context.dispatch(plain, {"a": x, "b": y}, {"y": z})
    assert context.read_tensor(z).result(60).tolist() == [-3, -4, -5, -6]
    assert not context.lost.done()


def test_a_constant_tensor_feeds_a_cpu_step(over):
    context, _ = over(Counting, force_cpu=("pow", "neg"))
    constant = context.create_constant_tensor(
        {"data_type": "int32", "shape": (4,)}, ints(4, 3, 2, 1)).result()
    graph = build(context, lambda b, a: b.add(b.neg(b.constant(constant)), a), "a").result(60)
    constant.destroy()
    assert context.compute(graph, {"a": ints(1, 1, 1, 1)})["y"].tolist() == [-3, -2, -1, 0]


# -- threads ---------------------------------------------------------------------------------------
def test_threads_and_event_loops_on_one_context(context):
    """Each thread has its own tensors and shares the graph; half of them await."""
    graph = adder(context)
    results = {}

    def blocking(index):
        x, y, z = (make_tensor(context).result(60) for _ in range(3))
        total = np.zeros(4, np.int32)
        for i in range(60):
            value = ints(index, i, -i, 1)
            context.write_tensor(x, value)
            context.dispatch(graph, {"a": x, "b": y}, {"y": z})
            total = total + value
            y, z = z, y
        results[index] = context.read_tensor(y).result(60).tolist(), total.tolist()

    async def awaiting(index):
        x, y, z = await asyncio.gather(*[make_tensor(context) for _ in range(3)])
        total = np.zeros(4, np.int32)
        for i in range(60):
            value = ints(index, i, -i, 1)
            context.write_tensor(x, value)
            context.dispatch(graph, {"a": x, "b": y}, {"y": z})
            total = total + value
            assert (await context.read_tensor(z)).tolist() == total.tolist()
            y, z = z, y
        results[index] = (await context.read_tensor(y)).tolist(), total.tolist()

    async def both(index):
        await asyncio.gather(awaiting(index), awaiting(index + 100))

    threads = [
        threading.Thread(target=blocking, args=(i,)) if i % 2 else
        threading.Thread(target=lambda i=i: asyncio.run(both(i)))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert len(results) == 12
    for found, expected in results.values():
        assert found == expected


def test_a_cancelled_await_cancels_no_work(context):
    t = make_tensor(context).result()

    async def run():
        context.write_tensor(t, ints(1, 2, 3, 4))
        promise = context.read_tensor(t)
        task = asyncio.ensure_future(_await(promise))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return promise

    promise = asyncio.run(run())
    assert not promise.cancelled() and promise.result(60).tolist() == [1, 2, 3, 4]


async def _await(promise):
    return await promise


def test_concurrent_destroys(context, fresh):
    """One thread destroys while the others call: each call ends, with a result or
    InvalidStateError."""
    graph = adder(fresh)
    x, y, z = (make_tensor(fresh).result() for _ in range(3))
    rounds, ends = threading.Semaphore(0), []

    def call():
        while True:
            try:
                make_tensor(fresh).result(60)
                fresh.write_tensor(x, ints(1, 2, 3, 4))
                fresh.dispatch(graph, {"a": x, "b": y}, {"y": z})
                fresh.read_tensor(z).result(60)
                rounds.release()
            except InvalidStateError as error:
                ends.append(str(error))
                return
            except BaseException as error:
                ends.append(error)
                return

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(12):  # calls of all kinds are being made
        assert rounds.acquire(timeout=60)
    fresh.destroy()
    for thread in threads:
        thread.join(60)
    assert len(ends) == 6 and all(isinstance(end, str) for end in ends), ends


class ClosingLate(DriverProxy):
    """Allocations stay in the driver until `close` has begun."""

    def __init__(self, driver):
        super().__init__(driver)
        self.inside = threading.Event()
        original = driver._memory.allocate

        def allocate(*arguments, **options):
            if self.inside.is_set():
                return original(*arguments, **options)
            self.inside.set()
            while not driver._closed:
                time.sleep(0.001)
            return original(*arguments, **options)

        driver._memory.allocate = allocate


def test_the_device_stays_while_a_call_is_inside(over):
    context, driver = over(ClosingLate)
    made = []
    caller = threading.Thread(target=lambda: made.append(make_tensor(context)))
    caller.start()
    assert driver.inside.wait(60)
    context.destroy()
    caller.join(60)
    with pytest.raises(InvalidStateError):
        made[0].result(60)
    assert context._state.timeline._closed.wait(60)


def test_work_queued_by_a_destructor_on_the_timeline(fresh):
    """The collector may run at any point on the context's threads, also during an update of the
    schedule."""
    t = make_tensor(fresh).result()
    fresh.write_tensor(t, ints(1, 2, 3, 4))
    fresh.fence().wait(60)
    reads = []
    fresh._state.timeline._scheduler.inbox.put(lambda: reads.append(fresh.read_tensor(t)))
    while not reads:
        time.sleep(0.001)
    assert reads[0].result(60).tolist() == [1, 2, 3, 4]


class Ending(Event):
    """A destructor runs while the finishing thread works on the same object."""

    def __init__(self, end):
        super().__init__()
        self.end = end

    def set(self):
        self.end()


@pytest.mark.parametrize("thread", ["starting", "finishing"])
def test_the_end_from_inside_of_a_timeline_s_own_threads(fresh, thread):
    make_tensor(fresh).result()
    fresh.fence().wait(60)
    timeline = fresh._state.timeline
    if thread == "starting":
        timeline._scheduler.inbox.put(timeline.close)
    else:
        timeline._in_flight.put(Ending(timeline.close))
    assert timeline._closed.wait(60)
