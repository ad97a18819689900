"""Device loss, lack of memory and failing submits, injected through the driver interface."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import selection
from tests.support.contexts import returns_to, settled_bytes
from tests.support.discriminating import assert_allclose
from tests.support.faults import FaultyDriver
from tests.support.loading import stage_constants
from tests.system.lifetimes.conftest import adder, build, ints, make_tensor
from tests.system.lifetimes.test_chains import Counting
from webnn_vk import DOMException, InvalidStateError, OperationError, UnknownError
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.runtime import timeline
from webnn_vk.runtime.reclaim import TRIES

OPTIONS = {"data_type": "float32"}


@pytest.fixture(autouse=True)
def never_quiet(monkeypatch):
    """Idle devices free what the next run would allocate again, at any time."""
    monkeypatch.setattr(timeline, "QUIET_SECONDS", 3600.0)


def scenario(context):
    """Makes every kind of call once; returns the outcome of each by name: an array, None or an
    exception.

    The graph has an intermediate, a constant and a result that depends on the constant tensor.
    """
    results = {}

    def attempt(name, call):
        try:
            value = call()
            results[name] = value.result(60) if hasattr(value, "result") else value
        except DOMException as error:
            results[name] = error
        return None if isinstance(results[name], Exception) else results[name]

    descriptor = {"data_type": "float32", "shape": (4,)}
    constant = attempt("constant", lambda: context.create_constant_tensor(
        descriptor, np.array([1, 2, 3, 4], np.float32)))
    x = attempt("x", lambda: make_tensor(context, **OPTIONS))
    y = attempt("y", lambda: make_tensor(context, **OPTIONS))
    graph = constant and attempt("graph", lambda: build(
        context, lambda b, a: b.mul(b.softmax(b.add(a, b.constant(constant)), 0),
                                    b.constant(np.full(4, 100, np.float32))), "a", **OPTIONS))
    if x:
        attempt("write", lambda: context.write_tensor(x, np.array([3, 2, 1, 0], np.float32)))
    if x and y and graph:
        attempt("dispatch", lambda: context.dispatch(graph, {"a": x}, {"y": y}))
        attempt("read", lambda: context.read_tensor(y))
        attempt("again", lambda: context.read_tensor(x))
    for made in (constant, x, y, graph):
        if made is not None:
            made.destroy()
    return results


def check_success(results):
    assert not [error for error in results.values() if isinstance(error, Exception)]
    assert_allclose(results["read"], [25, 25, 25, 25], rtol=1e-5)
    np.testing.assert_array_equal(results["again"], [3, 2, 1, 0])


def errors_of(results):
    return {name: error for name, error in results.items() if isinstance(error, Exception)}


#: Errors with which each call may reject for lack of memory: §8.3 names UnknownError for creating
#: and reading, OperationError for building; errors of dispatches and writes are reported by the
#: reads.
KINDS = {"constant": UnknownError, "x": UnknownError, "y": UnknownError, "graph": OperationError,
         "read": (OperationError, UnknownError), "again": (OperationError, UnknownError)}


def test_out_of_memory_at_every_allocation(faulty):
    context, driver = faulty
    check_success(scenario(context))
    before, start = settled_bytes(context), driver.calls["allocation"]
    check_success(scenario(context))
    count = driver.calls["allocation"] - start
    assert count >= 8
    failed = set()
    for nth in range(1, count + 1):
        # The first failure: unused memory is freed everywhere, then the allocation succeeds.
        # Repeated failures: earlier work is waited for.
        for times in (1, TRIES):
            driver.fail_allocation(nth, times)
            check_success(scenario(context))
            driver.fail_allocation(1, times=0)
        # From there on exactly the calls that need memory fail, with the errors of the draft.
        driver.fail_allocation(nth, times=1000)
        results = scenario(context)
        driver.fail_allocation(1, times=0)
        for name, error in errors_of(results).items():
            assert isinstance(error, KINDS[name]), (nth, name, error)
            assert "no memory for" in str(error), (nth, name, error)
        failed |= errors_of(results).keys()
        assert not context.lost.done()
        del results, error
        assert returns_to(context, before), nth
    assert failed == KINDS.keys()
    check_success(scenario(context))


@pytest.mark.parametrize("staged", [True, False])
def test_a_failing_submit_at_every_place(faulty, monkeypatch, staged):
    context, driver = faulty
    if staged:
        stage_constants(monkeypatch)
    check_success(scenario(context))
    before, start = settled_bytes(context), driver.calls["submit"]
    check_success(scenario(context))
    count = driver.calls["submit"] - start
    failed = set()
    for nth in range(1, count + 1):
        driver.fail_submit(nth)
        results = scenario(context)
        assert errors_of(results), nth
        for name, error in errors_of(results).items():
            assert isinstance(error, KINDS[name]), (nth, name, error)
            assert "injected: vkQueueSubmit" in str(error)
        failed |= errors_of(results).keys()
        assert not context.lost.done()
        check_success(scenario(context))
        del results, error
        assert returns_to(context, before)
    assert failed >= {"x", "read"}
    # Constants that the host writes in place need no submit.
    assert ("graph" in failed) == ("constant" in failed) == staged


def test_loss_at_every_call(over):
    """Whichever driver call reports that the device is lost: everything rejects, once, and the next
    context works."""
    context, driver = over(FaultyDriver)
    start = driver.calls["lost"]
    check_success(scenario(context))
    count = driver.calls["lost"] - start
    drawn = selection.chance("lost").sample(range(12, count + 1), min(12, count - 11))
    places = sorted({*range(1, 12), *drawn})
    other, _ = over(FaultyDriver)
    lost = 0
    for nth in places:
        context, driver = over(FaultyDriver)
        pending = make_tensor(context).result()
        told = []
        context.lost.add_done_callback(lambda promise, told=told: told.append(promise))
        driver.lose_at(nth)
        results = scenario(context)
        if not driver.injected["lost"]:
            check_success(results)
            continue
        lost += 1
        info = context.lost.result(60)
        assert "VK_ERROR_DEVICE_LOST (injected)" in info.message
        assert len(told) == 1
        for name, error in errors_of(results).items():
            assert isinstance(error, InvalidStateError), (nth, name, error)
        for promise in (context.read_tensor(pending), make_tensor(context)):
            with pytest.raises(InvalidStateError):
                promise.result(60)
        context.destroy()
        assert context.lost.result() is info, "destroy() after the loss tells nothing new"
        assert context._state.timeline._closed.wait(60)
    assert lost > len(places) // 2
    check_success(scenario(other))


def test_loss_rejects_all_that_is_pending(over):
    context, driver = over(lambda driver: FaultyDriver(Counting(driver)))
    graph = adder(context)
    x, y, z = (make_tensor(context).result() for _ in range(3))
    driver.driver.gate.clear()
    context.dispatch(graph, {"a": x, "b": y}, {"y": z})
    fence = context.fence()
    pending = [context.read_tensor(z), make_tensor(context), context.read_tensor(x)]
    driver.lose()
    # Queued behind the work in flight, and those that learn of it while they are made.
    pending += [build(context, lambda b, a: b.abs(a), "a", shape=(7,)), make_tensor(context)]
    driver.driver.gate.set()
    for promise in pending:
        with pytest.raises(InvalidStateError, match="VK_ERROR_DEVICE_LOST"):
            promise.result(60)
    with pytest.raises(InvalidStateError, match="VK_ERROR_DEVICE_LOST"):
        fence.wait(60)
    assert "injected" in context.lost.result(60).message
    with pytest.raises(InvalidStateError):
        context.dispatch(graph, {"a": x, "b": y}, {"y": z})
    with pytest.raises(InvalidStateError):
        context.write_tensor(x, ints(1, 2, 3, 4))


def test_errors_of_a_dispatch_come_out_at_reads_of_what_depends_on_it(faulty, monkeypatch):
    context, driver = faulty
    graph = adder(context)
    one, other, bad, worse = (make_tensor(context).result() for _ in range(4))
    context.write_tensor(one, ints(1, 1, 1, 1))
    context.fence().wait(60)

    def refuse(*arguments):
        raise ValueError("this dispatch fails")

    # The next recording fails: the one for this set of tensors.
    monkeypatch.setattr(graph._executable, "_record", refuse)
    context.dispatch(graph, {"a": one, "b": other}, {"y": bad})
    context.fence().wait(60)
    monkeypatch.undo()
    context.dispatch(graph, {"a": one, "b": bad}, {"y": worse})
    errors = []
    for tensor in (bad, worse, bad):
        with pytest.raises(OperationError, match="this dispatch fails") as caught:
            context.read_tensor(tensor).result(60)
        errors.append(caught.value)
    assert len(set(map(id, errors))) == 3, "one exception object per reader"
    assert context.read_tensor(one).result(60).tolist() == [1] * 4
    # New contents end it.
    context.write_tensor(bad, ints(4, 4, 4, 4))
    context.dispatch(graph, {"a": one, "b": bad}, {"y": worse})
    assert context.read_tensor(worse).result(60).tolist() == [5] * 4
    assert not context.lost.done()


def test_the_shaders_of_a_build_fail(faulty, monkeypatch):
    context, _ = faulty

    def fail(*arguments):
        raise RuntimeError("no shader")

    monkeypatch.setattr(ShaderStore, "get", fail)
    with pytest.raises(OperationError, match="build: RuntimeError: no shader"):
        build(context, lambda b, a: b.abs(a), "a").result(60)
    monkeypatch.undo()
    assert build(context, lambda b, a: b.abs(a), "a").result(60)
