"""The timeline's order, limits and end, on a device that the test controls."""

import gc
import threading
import time
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.gated_device import FakeDevice, failed
from webnn_vk.runtime import timeline
from webnn_vk.runtime.schedule import MAX_BATCH_WORKS, MAX_IN_FLIGHT
from webnn_vk.runtime.storage import DeviceLostError
from webnn_vk.runtime.stream import Fence
from webnn_vk.runtime.throttle import BATCH_SECONDS, Cost
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.runtime.work import Allocate, Await, Read, Run, RunGraph, Write
from webnn_vk.support.errors import InvalidStateError, UnknownError


def test_order_is_the_order_of_the_calls(device, stream):
    seen, done = [], threading.Event()
    for i in range(500):
        stream.enqueue(Run(lambda i=i: seen.append(i), failed))
    stream.enqueue(Run(done.set, failed))
    assert done.wait(60)
    assert seen == list(range(500))


def test_writes_and_reads_in_order(device, stream):
    storage = device.create_storage(4)
    results, done = [], threading.Event()
    for i in range(5):
        stream.enqueue(
            Write(storage, np.full(4, i, np.uint8)),
            Read(storage, lambda d: results.append(int(d[0])), failed),
        )
    stream.enqueue(Run(done.set, failed))
    assert done.wait(60)
    assert results == [0, 1, 2, 3, 4]


def test_batches_in_flight_are_bounded_and_later_calls_join_one(device, stream):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT):
        before = len(device.started)
        stream.enqueue(Run(lambda: None, failed))
        while len(device.started) == before:
            pass
    last = threading.Event()
    for _ in range(100):
        stream.enqueue(Run(lambda: None, failed))
    fence = stream.fence()
    stream.enqueue(Run(last.set, failed))
    assert not fence.done and not fence.wait(0.05)
    assert len(device.started) == MAX_IN_FLIGHT
    device.gate.set()
    assert last.wait(60) and fence.wait(60) and fence.done
    assert len(device.started) <= MAX_IN_FLIGHT + 2
    assert sum(device.started) == MAX_IN_FLIGHT + 101


def test_a_batch_is_bounded_in_works_and_in_estimated_cost(device, stream):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT):
        before = len(device.started)
        stream.enqueue(Run(lambda: None, failed))
        while len(device.started) == before:
            pass

    def dispatch(seconds):
        return RunGraph(SimpleNamespace(cost=Cost(seconds=seconds)), {}, {})

    stream.enqueue(*[Run(lambda: None, failed)] * (2 * MAX_BATCH_WORKS + 1))
    third = BATCH_SECONDS / 3.1
    stream.enqueue(*[dispatch(third)] * 7, dispatch(10 * third), dispatch(third))
    device.gate.set()
    assert stream.fence().wait(60)
    # A job that costs more than a batch may goes alone.
    assert device.started[MAX_IN_FLIGHT:] == [MAX_BATCH_WORKS, MAX_BATCH_WORKS, 4, 3, 1, 1, 1]


def test_work_behind_work_on_the_host_ends_after_it(device, monkeypatch):
    """Also what takes no time on the device: it may read what the other work wrote."""
    class Late(SimpleQueue):
        def put(self, item):
            if threading.current_thread().name == "webnn_vk-host":
                time.sleep(0.1)
            super().put(item)

    monkeypatch.setattr(timeline, "SimpleQueue", Late)
    execute, ends = device.execute, SimpleQueue()

    def started(works):
        batch = execute(works)
        if isinstance(works[0], Run):
            batch.value = None
        return batch

    def waited(batch):
        if batch.value is not None:
            device.gate.wait(60)
            ends.put("on the device")

    device.execute, device.wait = started, waited
    device.gate.clear()
    order = Timeline(device)
    stream, _ = order.stream(), order.stream()
    graph = SimpleNamespace(cost=Cost(seconds=0.0), on_host=True)
    stream.enqueue(RunGraph(graph, {}, {}), Run(lambda: ends.put("behind it"), failed))
    while len(device.started) < 2:
        time.sleep(0.001)
    time.sleep(0.05)
    device.gate.set()
    assert [ends.get(timeout=60) for _ in range(2)] == ["on the device", "behind it"]
    order.close()


def test_an_end_waits_for_little_of_what_takes_long(device):
    """However far the estimate of the work is too low."""
    taken, ended = [], threading.Event()

    def wait(batch):
        if len(taken) < 2:
            time.sleep(0.3 * len(batch.works))
        else:
            ended.wait(60)
        taken.append(len(batch.works))

    device.wait = wait
    timeline = Timeline(device)
    stream = timeline.stream()
    graph = RunGraph(SimpleNamespace(cost=Cost()), {}, {})
    stream.enqueue(*[graph] * 100)
    while len(taken) < 2:
        time.sleep(0.01)
    closer = threading.Thread(target=timeline.close)
    closer.start()
    while timeline._scheduler.end is None:
        time.sleep(0.01)
    ended.set()
    closer.join(60)
    # Two that were over, the one that ran, and at most one behind it.
    assert taken == [1] * len(taken) and len(taken) <= 4
    assert device.closed


def test_loss_fails_what_waits_and_tells_each_user_once(device, stream):
    told = []
    stream.timeline.join(told.append)
    stream.timeline.join(lambda message: told.append(message.upper()))
    device.gate.clear()
    errors = []
    stream.enqueue(Run(lambda: None, errors.append))
    while not device.started:
        pass
    device.fail_with = DeviceLostError("it burnt")
    stream.enqueue(Run(lambda: None, errors.append))
    device.gate.set()
    fence_error = threading.Event()
    while len(errors) < 2:
        pass
    stream.enqueue(Run(lambda: None, lambda e: (errors.append(e), fence_error.set())))
    assert fence_error.wait(60)
    assert {str(e) for e in errors} == {"the context is lost: it burnt"}
    assert all(isinstance(e, InvalidStateError) for e in errors)
    assert told == ["it burnt", "IT BURNT"]


def test_a_defect_in_execute_fails_the_work_and_not_the_timeline(device, stream):
    errors, done = [], threading.Event()
    device.fail_with = ValueError("odd")
    stream.enqueue(Run(lambda: None, errors.append))
    while not errors:
        pass
    assert isinstance(errors[0], UnknownError) and "odd" in str(errors[0])
    device.fail_with = None
    stream.enqueue(Run(done.set, failed))
    assert done.wait(60)


def test_the_last_user_closes_it(device):
    stream = Timeline(device).stream()
    view = stream.timeline.join(print)
    stream.leave()
    stream.leave()
    assert not device.closed
    stream.timeline.leave(view)
    assert device.closed
    errors = []
    stream.enqueue(Run(lambda: None, errors.append))
    assert isinstance(errors[0], InvalidStateError)


def test_closing_waits_for_builds(device):
    stream = Timeline(device).stream()
    inside, release = threading.Event(), threading.Event()

    def build():
        with stream.timeline.building():
            inside.set()
            release.wait(60)

    builder = threading.Thread(target=build)
    builder.start()
    assert inside.wait(60)
    closer = threading.Thread(target=stream.timeline.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive() and not device.closed
    release.set()
    closer.join(60)
    assert device.closed
    builder.join(60)


def test_closing_does_not_wait_for_kept_errors(device):
    """A call that came too late, or failed: its error may live on, in a promise for example."""
    stream = Timeline(device).stream()
    errors = []
    for late in (False, True):
        if late:
            stream.timeline.end("the end")
        try:
            with stream.timeline.building():
                assert not late
                raise MemoryError("while building")
        except (InvalidStateError, MemoryError) as error:
            errors.append(error)
    assert [str(error) for error in errors] == ["while building", "the end"]
    stream.timeline.close(10)
    assert device.closed


def test_memory_is_held_until_the_last_use(device, stream):
    storage = device.create_storage(4)
    device.gate.clear()
    done = threading.Event()
    stream.enqueue(Read(storage, lambda d: None, failed))
    while not device.started:
        pass
    del storage
    gc.collect()
    assert not device.deferred
    device.gate.set()
    stream.enqueue(Run(done.set, failed))
    assert done.wait(60)
    while not stream.timeline._scheduler.schedule.at_rest:
        pass
    gc.collect()
    assert len(device.deferred) == 1


def test_a_fork_is_refused(stream, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(InvalidStateError, match="before a fork"):
        stream.enqueue(Run(lambda: None, failed))


def test_fences_are_numbered_by_what_was_queued(device, stream):
    device.gate.clear()
    assert stream.fence().value == 0 and stream.fence().done
    stream.enqueue(*[Run(lambda: None, failed)] * 3)
    first = stream.fence()
    stream.enqueue(Run(lambda: None, failed))
    second = stream.fence()
    assert (first.value, second.value) == (3, 4)
    assert not first.done and not first.wait(0)
    device.gate.set()
    assert second.wait(60) and first.done and stream.reached == 4


def test_a_fence_whose_work_is_dropped_raises(device, stream):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT + 1):
        before = len(device.started)
        stream.enqueue(Run(lambda: None, lambda error: None))
        while len(device.started) == before < MAX_IN_FLIGHT:
            pass
    running, dropped = stream.fence(), stream.fence()
    stream.enqueue(Run(lambda: None, lambda error: None))
    dropped = stream.fence()
    stream.timeline.end("it ended")
    device.gate.set()
    for fence in (dropped, running, stream.fence()):
        with pytest.raises(InvalidStateError, match="it ended"):
            fence.wait(60)
        assert not fence.done
    assert stream.reached == MAX_IN_FLIGHT


@pytest.mark.parametrize("error", [MemoryError("no room"), ValueError("a defect")])
@pytest.mark.parametrize("failures", [1, 2])
def test_a_message_that_fails_tells_its_sender(device, stream, monkeypatch, error, failures):
    """Its work or fence ends with the reason, and the timeline closes."""
    left = [error] * (failures if isinstance(error, MemoryError) else 1)

    def failing(function):
        def call(*arguments):
            if left:
                raise left.pop()
            return function(*arguments)
        return call

    monkeypatch.setattr(Fence, "place", failing(Fence.place))
    with pytest.raises(InvalidStateError, match=str(error)):
        stream.fence().wait(60)
    stream.leave()
    assert device.closed and not left

    other = Timeline(FakeDevice())
    stream, schedule = other.stream(), other._scheduler.schedule
    left += [error]
    monkeypatch.setattr(schedule, "append", failing(schedule.append))
    told = SimpleQueue()
    stream.enqueue(Run(lambda: None, told.put))
    assert str(error) in str(told.get(timeout=60))
    stream.leave()
    assert other.device.closed


def test_a_completion_that_fails_fails_its_work_alone(device, stream):
    errors, seen, done = [], [], threading.Event()

    def fail():
        raise ValueError("odd")

    device.gate.clear()
    stream.enqueue(
        Run(lambda: seen.append(1), failed), Run(fail, errors.append),
        Run(lambda: seen.append(2), failed), Run(done.set, failed),
    )
    device.gate.set()
    assert done.wait(60)
    assert seen == [1, 2] and [str(e) for e in errors] == ["ValueError: odd"]


def test_allocations_wait_for_what_runs_and_awaits_begin_a_batch(device, stream):
    order = []
    storage = device.create_storage(4)
    device.gate.clear()
    stream.enqueue(Run(lambda: order.append("first"), failed))
    while not device.started:
        pass
    plain = Run(lambda: order.append("plain"), failed)
    stream.enqueue(plain, Allocate(storage), plain, Await(lambda: None), plain)
    while len(device.started) < 2:
        pass
    # The allocation is not started before the two batches are over.
    assert device.started == [1, 1]
    device.gate.set()
    assert stream.fence().wait(60)
    assert device.started == [1, 1, 2, 2]
    assert order == ["first", "plain", "plain", "plain"]


def test_closing_with_a_limit_leaves_a_device_in_use_alone(device):
    stream = Timeline(device).stream()
    device.gate.clear()
    stream.enqueue(Run(lambda: None, failed))
    while not device.started:
        pass
    stream.timeline.close(0.05)
    assert not device.closed
    device.gate.set()


def test_in_a_forked_child_ends_are_nobody_s(device, stream, monkeypatch):
    fence = stream.fence()
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        stream.leave()
        stream.timeline.close()
        assert not device.closed
        for call in (stream.fence, lambda: fence.wait(0), stream.timeline.building().__enter__):
            with pytest.raises(InvalidStateError, match="before a fork"):
                call()
    stream.leave()
    assert device.closed
