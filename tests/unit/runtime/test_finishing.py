"""Which thread of a timeline finishes a run: on the host's cores, and on a GPU."""

import threading
import time
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from tests.support.gated_device import failed
from webnn_vk.runtime import timeline as timeline_module
from webnn_vk.runtime.storage import DeviceLostError
from webnn_vk.runtime.throttle import Cost
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.runtime.work import Read, Run, RunGraph


def _finishes_on(device, stream, *, alone):
    """The name of the thread that finishes a run and its read."""
    names, storage = SimpleQueue(), device.create_storage(4)
    executable = SimpleNamespace(cost=Cost(seconds=0.0), on_host=False)
    stream.enqueue(
        RunGraph(executable, {}, {}),
        Read(storage, lambda data: names.put(threading.current_thread().name), failed, last=alone),
    )
    return names.get(timeout=60)


@pytest.mark.parametrize("device_type", [None, "cpu"])
def test_the_thread_that_starts_a_run_on_the_hosts_cores_waits_for_it(device, device_type):
    if device_type is not None:
        device.profile = SimpleNamespace(device_type=device_type)
    stream = Timeline(device).stream()
    for _ in range(3):
        assert _finishes_on(device, stream, alone=False) == "webnn_vk-finish"
        assert stream.fence().wait(60)
        assert _finishes_on(device, stream, alone=True) == "webnn_vk-submit"
        assert stream.fence().wait(60)
    stream.timeline.close()
    assert device.closed


@pytest.fixture
def gpu_stream(device, monkeypatch):
    """The one stream of a timeline on a GPU whose work ends soon if the gate is open, and else
    when the test opens it: threads poll that long."""
    monkeypatch.setattr(timeline_module, "POLL_SECONDS", 600.0)
    device.profile = SimpleNamespace(device_type="discrete")
    timeline = Timeline(device)
    yield timeline.stream()
    device.gate.set()
    timeline.close()
    assert device.closed


@pytest.mark.parametrize("alone", [False, True])
def test_the_thread_that_starts_a_short_run_on_a_gpu_waits_for_it(device, gpu_stream, alone):
    for _ in range(3):
        assert _finishes_on(device, gpu_stream, alone=alone) == "webnn_vk-submit"
        assert gpu_stream.fence().wait(60)


def test_a_longer_run_on_a_gpu_is_waited_for_on_the_other_thread(device, gpu_stream, monkeypatch):
    monkeypatch.setattr(timeline_module, "POLL_SECONDS", 0.01)
    device.gate.clear()
    wait = device.wait
    device.wait = lambda batch: (device.gate.set(), wait(batch))  # it lasts until then
    assert _finishes_on(device, gpu_stream, alone=True) == "webnn_vk-finish"


def test_a_gpu_gets_more_work_while_a_run_is_waited_for(device, gpu_stream):
    """The thread that polls goes on at once. If it didn't, this would take longer than it may."""
    device.gate.clear()
    names = SimpleQueue()
    waiter = threading.Thread(
        target=lambda: names.put(_finishes_on(device, gpu_stream, alone=True)), daemon=True
    )
    waiter.start()
    while not device.started:
        pass
    behind = threading.Event()
    gpu_stream.enqueue(Run(behind.set, failed))
    while len(device.started) < 2:
        time.sleep(0.001)
    assert names.empty() and not behind.is_set()
    device.gate.set()
    assert names.get(timeout=60) == "webnn_vk-finish" and behind.wait(60)
    waiter.join(60)


def test_a_gpu_s_runs_are_measured_though_they_are_polled(device, gpu_stream):
    cost = Cost(seconds=0.005)
    executable = SimpleNamespace(cost=cost, on_host=False)
    storage, names = device.create_storage(4), SimpleQueue()
    gpu_stream.enqueue(
        RunGraph(executable, {}, {}),
        Read(storage, lambda data: names.put(threading.current_thread().name), failed, last=True),
    )
    assert names.get(timeout=60) == "webnn_vk-submit"
    assert gpu_stream.fence().wait(60)
    assert cost.seconds != 0.005 and gpu_stream.timeline._scheduler.schedule.throttle.measured


def test_calls_during_a_run_that_its_caller_waits_for(device, stream):
    """They are ordered behind it, a fence that is reached says so, and the end drops them."""
    device.gate.clear()
    names = []
    waiter = threading.Thread(
        target=lambda: names.append(_finishes_on(device, stream, alone=True)), daemon=True
    )
    waiter.start()
    while not device.started:
        pass
    behind, errors = threading.Event(), SimpleQueue()
    fence = stream.fence()
    stream.enqueue(Run(behind.set, errors.put))
    assert fence.value == 2 and not fence.done and not behind.wait(0.05)
    stream.timeline.end("enough")
    assert "enough" in str(errors.get(timeout=60))
    device.gate.set()
    waiter.join(60)
    assert names == ["webnn_vk-submit"] and fence.wait(60) and not behind.is_set()


@pytest.mark.parametrize("kind", ["stream", "gpu_stream"])
def test_a_run_that_its_caller_waits_for_fails_with_the_device(device, request, kind):
    stream = request.getfixturevalue(kind)
    storage, errors = device.create_storage(4), SimpleQueue()
    device.gate.clear()
    executable = SimpleNamespace(cost=Cost(seconds=0.0), on_host=False)
    stream.enqueue(
        RunGraph(executable, {}, {}), Read(storage, failed, errors.put, last=True)
    )
    while not device.started:
        pass
    device.fail_with = DeviceLostError("unplugged")
    device.gate.set()
    assert "unplugged" in str(errors.get(timeout=60))
    device.fail_with = None
