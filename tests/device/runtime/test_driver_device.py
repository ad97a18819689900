"""Batches on a Vulkan device: which jobs a failure affects."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk import OperationError, UnknownError
from webnn_vk.runtime import batch_assembly
from webnn_vk.runtime.reclaim import TRIES
from webnn_vk.runtime.storage import DeviceLostError
from webnn_vk.runtime.throttle import Cost
from webnn_vk.runtime.work import Read, Run, RunGraph, Write


@pytest.fixture
def faulty(monkeypatch):
    """(device, driver) on which a transfer takes many pieces and a batch several submits."""
    require_vulkan()
    monkeypatch.setattr(batch_assembly, "PIECE_BYTES", 256)
    monkeypatch.setattr(batch_assembly, "STAGED_BYTES", 512)
    monkeypatch.setattr(batch_assembly, "KEPT_BYTES", 256)  # one piece
    context, driver = open_over(FaultyDriver)
    with context:
        yield context._state.device, driver


def run(device, *works):
    """Runs jobs as one batch; returns the driver's submits for it."""
    before = device.driver.submitted()
    batch = device.execute(works)
    device.wait(batch)
    batch.complete()
    return device.driver.submitted() - before


def read(storage, into):
    def done(data):
        into.append(data)

    return Read(storage, done, into.append)


def test_transfers_in_pieces(faulty):
    device, _ = faulty
    storage, result = device.create_storage(2000), []
    data = np.random.default_rng(0).integers(0, 256, 2000, np.uint8)
    assert run(device, Write(storage, data), read(storage, result)) > 4
    np.testing.assert_array_equal(result[0], data)


def test_a_batch_is_over_when_its_submits_are_or_the_device_is_lost(faulty):
    device, driver = faulty
    storage, result = device.create_storage(100), []
    assert device.is_over(device.execute([Run(print, print)])), "nothing was submitted"
    batch = device.execute([Write(storage, np.ones(100, np.uint8)), read(storage, result)])
    driver.completed = lambda: batch.value - 1
    assert not device.is_over(batch)
    del driver.completed
    device.wait(batch)
    assert device.is_over(batch)
    batch.complete()
    assert result[0].all()
    batch = device.execute([read(storage, result)])
    driver.lose()
    assert device.is_over(batch)
    with pytest.raises(DeviceLostError, match="injected"):
        device.wait(batch)


def test_a_failing_submit_fails_what_is_in_it(faulty):
    """One of several submits of a batch fails, each with a piece of a transfer."""
    device, driver = faulty
    early, late = device.create_storage(500), device.create_storage(1000)
    zeros, ones = np.zeros(500, np.uint8), np.ones(1000, np.uint8)

    def works():
        return Write(early, zeros), Write(late, ones)

    count = run(device, *works())
    assert count == 6
    for nth in range(1, count + 1):
        driver.fail_submit(nth)
        first, second, told = [], [], []
        run(device, *works(), Run(lambda told=told: told.append("ran"), told.append))
        run(device, read(early, first), read(late, second))
        # The submit for its second piece comes with the first piece of the other one. The rest of
        # a submit that failed between others is submitted with the next.
        if nth == 1:
            assert isinstance(first[0], OperationError)
            assert isinstance(second[0], np.ndarray) and second[0].all()
        else:
            assert isinstance(first[0], np.ndarray) and not first[0].any(), nth
            assert isinstance(second[0], OperationError), nth
        assert isinstance(told[0], UnknownError) if nth == count else told == ["ran"]


def test_promises_keep_the_order_of_the_calls(faulty):
    """Also after jobs that were submitted, and waited for, in the middle of a batch."""
    device, _ = faulty
    storage, order = device.create_storage(1000), []
    run(
        device,
        Run(lambda: order.append("a"), order.append),
        Read(storage, lambda data: order.append("b"), order.append),
        Run(lambda: order.append("c"), order.append),
        Write(storage, np.zeros(1000, np.uint8)),
        Read(storage, lambda data: order.append("d"), order.append),
    )
    assert order == ["a", "b", "c", "d"]


def test_staging_memory_that_runs_out_is_waited_for(faulty):
    device, driver = faulty
    storage, result = device.create_storage(2000), []
    data = np.full(2000, 7, np.uint8)
    # One failure is retried at once; after repeated failures the device's work is waited for.
    for times in (1, TRIES):
        driver.injected["allocation"] = 0
        driver.fail_allocation(3, times=times)
        run(device, Write(storage, data), read(storage, result))
        assert driver.injected["allocation"] == times
    result.pop()
    np.testing.assert_array_equal(result[0], data)
    driver.fail_allocation(3, times=2 * TRIES)
    run(device, Write(storage, data), read(storage, result))
    assert isinstance(result[1], OperationError) and "no memory" in str(result[1])


class Recorded:
    """An executable without steps that counts its runs."""

    def __init__(self):
        self.cost, self.program = Cost(), SimpleNamespace(donated={})
        self.parameters, self.runs = (), 0

    def recordings(self, inputs, outputs, copying):
        self.runs += 1
        return []


def test_what_failed_inputs_make_has_their_error(faulty):
    device, _ = faulty
    x, y = device.create_storage(16), device.create_storage(16)
    executable, result = Recorded(), []
    x.error = OperationError("the first one failed")
    run(device, RunGraph(executable, {"x": x}, {"y": y}), read(y, result))
    assert executable.runs == 0 and str(result[0]) == "the first one failed"
    x.error = None
    run(device, RunGraph(executable, {"x": x}, {"y": y}), read(y, result))
    assert executable.runs == 1 and isinstance(result[1], np.ndarray) and y.error is None


def test_an_allocation_on_the_timeline(faulty):
    from webnn_vk.runtime.work import Allocate

    device, driver = faulty
    storage, result = device.promise_storage(100), []
    assert storage.backing is None
    driver.fail_allocation(times=TRIES)
    run(device, Allocate(storage), Write(storage, None), read(storage, result))
    assert isinstance(storage.error, UnknownError) and isinstance(result[0], UnknownError)
    storage = device.promise_storage(100)
    run(device, Allocate(storage), Write(storage, None), read(storage, result))
    assert storage.error is None and not result[1].any()
