"""The timeline's order, bounds and ends, on a device that does what the test says."""

import gc
import threading
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from webnn_vk.errors import InvalidStateError, UnknownError
from webnn_vk.runtime import Allocate, Await, Read, Run, RunGraph, Storage, Timeline, Write
from webnn_vk.runtime.device import Batch
from webnn_vk.runtime.storage import DeviceLostError
from webnn_vk.runtime.timeline import MAX_BATCH_FLOPS, MAX_BATCH_WORKS, MAX_IN_FLIGHT


class FakeDevice:
    """Runs batches when the test opens the gate; can be lost."""

    profile = None
    name = "fake"

    def __init__(self):
        self.started = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail_with = None
        self.closed = False
        self.graveyard = deque()

    def create_storage(self, size):
        return Storage(size, np.zeros(size, np.uint8), self.graveyard.append)

    def execute(self, works):
        if self.fail_with is not None:
            raise self.fail_with
        self.started.append(len(works))
        batch = Batch(works, value=len(self.started))
        for work in works:
            if isinstance(work, Run):
                batch.completions.append((work, work.function))
            elif isinstance(work, Write):
                work.storage.backing[:] = work.data
            elif isinstance(work, Read):
                data = work.storage.backing.copy()
                batch.completions.append((work, lambda work=work, data=data: work.done(data)))
        return batch

    def wait(self, batch):
        self.gate.wait(30)
        if self.fail_with is not None:
            raise self.fail_with

    def close(self):
        self.closed = True


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def timeline(device):
    timeline = Timeline(device)
    yield timeline
    device.gate.set()
    timeline.close()
    assert device.closed


def failed(error):
    raise error


def test_order_is_the_order_of_the_calls(device, timeline):
    seen, done = [], threading.Event()
    for i in range(500):
        timeline.enqueue(Run(lambda i=i: seen.append(i), failed))
    timeline.enqueue(Run(done.set, failed))
    assert done.wait(10)
    assert seen == list(range(500))


def test_writes_and_reads_in_order(device, timeline):
    storage = device.create_storage(4)
    results, done = [], threading.Event()
    for i in range(5):
        timeline.enqueue(
            Write(storage, np.full(4, i, np.uint8)),
            Read(storage, lambda d: results.append(int(d[0])), failed),
        )
    timeline.enqueue(Run(done.set, failed))
    assert done.wait(10)
    assert results == [0, 1, 2, 3, 4]


def test_batches_in_flight_are_bounded_and_later_calls_join_one(device, timeline):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT):
        before = len(device.started)
        timeline.enqueue(Run(lambda: None, failed))
        while len(device.started) == before:
            pass
    last = threading.Event()
    for _ in range(100):
        timeline.enqueue(Run(lambda: None, failed))
    fence = timeline.fence()
    timeline.enqueue(Run(last.set, failed))
    assert not fence.done and not fence.wait(0.05)
    assert len(device.started) == MAX_IN_FLIGHT
    device.gate.set()
    assert last.wait(10) and fence.wait(10) and fence.done
    assert len(device.started) <= MAX_IN_FLIGHT + 2
    assert sum(device.started) == MAX_IN_FLIGHT + 101


def test_a_batch_is_bounded_in_works_and_in_estimated_cost(device, timeline):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT):
        before = len(device.started)
        timeline.enqueue(Run(lambda: None, failed))
        while len(device.started) == before:
            pass

    def dispatch(flops):
        return RunGraph(SimpleNamespace(flops=flops), {}, {})

    timeline.enqueue(*[Run(lambda: None, failed)] * (2 * MAX_BATCH_WORKS + 1))
    third = MAX_BATCH_FLOPS // 3
    timeline.enqueue(*[dispatch(third)] * 7, dispatch(10 * third), dispatch(third))
    device.gate.set()
    assert timeline.fence().wait(10)
    # One that costs more than a batch may goes alone.
    assert device.started[MAX_IN_FLIGHT:] == [MAX_BATCH_WORKS, MAX_BATCH_WORKS, 4, 3, 1, 1, 1]


def test_loss_fails_what_waits_and_tells_each_user_once(device, timeline):
    told = []
    timeline.join(told.append)
    timeline.join(lambda message: told.append(message.upper()))
    device.gate.clear()
    errors = []
    timeline.enqueue(Run(lambda: None, errors.append))
    while not device.started:
        pass
    device.fail_with = DeviceLostError("it burnt")
    timeline.enqueue(Run(lambda: None, errors.append))
    device.gate.set()
    fence_error = threading.Event()
    while len(errors) < 2:
        pass
    timeline.enqueue(Run(lambda: None, lambda e: (errors.append(e), fence_error.set())))
    assert fence_error.wait(10)
    assert {str(e) for e in errors} == {"the context is lost: it burnt"}
    assert all(isinstance(e, InvalidStateError) for e in errors)
    assert told == ["it burnt", "IT BURNT"]


def test_a_defect_in_execute_fails_the_work_and_not_the_timeline(device, timeline):
    errors, done = [], threading.Event()
    device.fail_with = ValueError("odd")
    timeline.enqueue(Run(lambda: None, errors.append))
    while not errors:
        pass
    assert isinstance(errors[0], UnknownError) and "odd" in str(errors[0])
    device.fail_with = None
    timeline.enqueue(Run(done.set, failed))
    assert done.wait(10)


def test_the_last_user_closes_it(device):
    timeline = Timeline(device)
    a, b = timeline.join(print), timeline.join(print)
    timeline.leave(a)
    timeline.leave(a)
    assert not device.closed
    timeline.leave(b)
    assert device.closed
    errors = []
    timeline.enqueue(Run(lambda: None, errors.append))
    assert isinstance(errors[0], InvalidStateError)


def test_closing_waits_for_builds(device):
    timeline = Timeline(device)
    inside, release = threading.Event(), threading.Event()

    def build():
        with timeline.building():
            inside.set()
            release.wait(10)

    builder = threading.Thread(target=build)
    builder.start()
    assert inside.wait(10)
    closer = threading.Thread(target=timeline.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive() and not device.closed
    release.set()
    closer.join(10)
    assert device.closed
    builder.join(10)


def test_memory_is_held_until_the_last_use(device, timeline):
    storage = device.create_storage(4)
    device.gate.clear()
    done = threading.Event()
    timeline.enqueue(Read(storage, lambda d: None, failed))
    while not device.started:
        pass
    del storage
    gc.collect()
    assert not device.graveyard
    device.gate.set()
    timeline.enqueue(Run(done.set, failed))
    assert done.wait(10)
    while not timeline.idle:
        pass
    gc.collect()
    assert len(device.graveyard) == 1


def test_a_fork_is_refused(timeline, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(InvalidStateError, match="before a fork"):
        timeline.enqueue(Run(lambda: None, failed))


def test_fences_are_numbered_by_what_was_queued(device, timeline):
    device.gate.clear()
    assert timeline.fence().value == 0 and timeline.fence().done
    timeline.enqueue(*[Run(lambda: None, failed)] * 3)
    first = timeline.fence()
    timeline.enqueue(Run(lambda: None, failed))
    second = timeline.fence()
    assert (first.value, second.value) == (3, 4)
    assert not first.done and not first.wait(0)
    device.gate.set()
    assert second.wait(10) and first.done and timeline.completed == 4


def test_a_fence_whose_work_is_dropped_raises(device, timeline):
    device.gate.clear()
    for _ in range(MAX_IN_FLIGHT + 1):
        before = len(device.started)
        timeline.enqueue(Run(lambda: None, lambda error: None))
        while len(device.started) == before < MAX_IN_FLIGHT:
            pass
    running, dropped = timeline.fence(), timeline.fence()
    timeline.enqueue(Run(lambda: None, lambda error: None))
    dropped = timeline.fence()
    timeline.end("it ended")
    device.gate.set()
    for fence in (dropped, running, timeline.fence()):
        with pytest.raises(InvalidStateError, match="it ended"):
            fence.wait(10)
        assert not fence.done
    assert timeline.completed == MAX_IN_FLIGHT


def test_a_completion_that_fails_fails_its_work_alone(device, timeline):
    errors, seen, done = [], [], threading.Event()

    def fail():
        raise ValueError("odd")

    device.gate.clear()
    timeline.enqueue(
        Run(lambda: seen.append(1), failed), Run(fail, errors.append),
        Run(lambda: seen.append(2), failed), Run(done.set, failed),
    )
    device.gate.set()
    assert done.wait(10)
    assert seen == [1, 2] and [str(e) for e in errors] == ["ValueError: odd"]


def test_allocations_wait_for_what_runs_and_awaits_begin_a_batch(device, timeline):
    order = []
    storage = device.create_storage(4)
    device.gate.clear()
    timeline.enqueue(Run(lambda: order.append("first"), failed))
    while not device.started:
        pass
    plain = Run(lambda: order.append("plain"), failed)
    timeline.enqueue(plain, Allocate(storage), plain, Await(lambda: None), plain)
    while len(device.started) < 2:
        pass
    # The allocation is not started before the two batches are over.
    assert device.started == [1, 1]
    device.gate.set()
    assert timeline.fence().wait(10)
    assert device.started == [1, 1, 2, 2]
    assert order == ["first", "plain", "plain", "plain"]


def test_closing_with_a_limit_leaves_a_device_in_use_alone(device):
    timeline = Timeline(device)
    device.gate.clear()
    timeline.enqueue(Run(lambda: None, failed))
    while not device.started:
        pass
    timeline.close(0.05)
    assert not device.closed
    device.gate.set()


def test_in_a_forked_child_ends_are_nobody_s(device, timeline, monkeypatch):
    user = timeline.join(print)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        timeline.leave(user)
        timeline.close()
        assert not device.closed
        for call in (timeline.fence, lambda: timeline.wait(0), timeline.building().__enter__):
            with pytest.raises(InvalidStateError, match="before a fork"):
                call()
    timeline.leave(user)
    assert device.closed
