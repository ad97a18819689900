"""Many ``compute_async`` in flight: their memory, their order, and their ends."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.faults import FaultyDriver
from webnn_vk import (
    InvalidStateError,
    MLContext,
    MLGraph,
    MLGraphBuilder,
    OperationError,
    UnknownError,
)
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.runtime import workspace
from webnn_vk.runtime.kept_recordings import MAX_RECORDINGS
from webnn_vk.runtime.work import Await
from webnn_vk.support import background

#: Data of one call that is counted without a lock.
SHAPE = [32, 64]


def _graph(context: MLContext, factor: int = 2, shape: list[int] = SHAPE) -> MLGraph:
    b = MLGraphBuilder(context)
    x, y = (b.input(name, {"data_type": "float32", "shape": shape}) for name in "xy")
    total = b.add(x, y)
    return b.build({"sum": total, "scaled": b.mul(total, b.constant("float32", factor))}).result(60)


def _feeds(seed: int, shape: list[int] = SHAPE) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name in "xy"}


def _check(outputs: dict[str, np.ndarray], feeds: dict[str, np.ndarray], factor: int = 2) -> None:
    total = feeds["x"] + feeds["y"]
    np.testing.assert_array_equal(outputs["sum"], total)
    np.testing.assert_array_equal(outputs["scaled"], total * np.float32(factor))


class Gate:
    """Holds back everything that is queued inside the ``with`` statement until its end."""

    def __init__(self, context: MLContext) -> None:
        self._context = context

    def __enter__(self) -> None:
        begun, self._open = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            self._open.wait(60)

        self._context._state.stream.enqueue(Await(wait))
        assert begun.wait(60), "no later work is in its batch"

    def __exit__(self, *_: object) -> None:
        self._open.set()


@pytest.mark.usefixtures("never_quiet")
def test_later_calls_allocate_and_record_nothing_and_need_no_thread(watched, monkeypatch):
    context, driver = watched
    graphs = {factor: _graph(context, factor) for factor in (2, 3)}

    def calls(first: int) -> list[tuple[Any, ...]]:
        made = []
        for seed in range(first, first + 10):
            factor, feeds = 2 + seed % 2, _feeds(seed)
            promise = context.compute_async(graphs[factor], feeds)
            made.append((promise, {n: a.copy() for n, a in feeds.items()}, factor))
            for array in feeds.values():
                array.fill(np.nan)  # they were copied
        return made

    with Gate(context):
        made = calls(0)
    for promise, *expected in made:
        _check(promise.result(60), *expected)
    before = driver.allocated, driver.recorded
    submits = driver.submits
    with Gate(context), monkeypatch.context() as patched:
        # No call of them.
        patched.setattr(background, "run_on_worker", None)
        patched.setattr(background, "start", None)
        made = calls(10)
        for graph in graphs.values():  # as measured on any machine: short runs share a batch
            executable_of(graph).cost.seconds = 1e-5
    for promise, *expected in made:
        _check(promise.result(60), *expected)
    assert (driver.allocated, driver.recorded) == before
    assert driver.submits == submits + 1
    for first in (20, 30, 40):
        for promise, *expected in calls(first):
            _check(promise.result(60), *expected)
    assert (driver.allocated, driver.recorded) == before


@pytest.mark.parametrize("limit", ["MAX_SETS", "MAX_BYTES"])
def test_a_graph_keeps_so_many_sets_of_memory(watched, monkeypatch, limit):
    context, _ = watched
    size = 4 * int(np.prod(SHAPE)) * 4
    monkeypatch.setattr(workspace, limit, {"MAX_SETS": 3, "MAX_BYTES": 4 * size - 1}[limit])
    graph = _graph(context)
    before = settled_bytes(context)
    for number in (1, 5, 5):
        with Gate(context):
            made = [(context.compute_async(graph, _feeds(n)), _feeds(n)) for n in range(number)]
        for promise, feeds in made:
            _check(promise.result(60), feeds)
        del promise, made
        assert len(executable_of(graph).workspace._kept) == min(number, 3)
    context.fence().wait(60)
    assert len(executable_of(graph).kept) <= MAX_RECORDINGS
    assert returns_to(context, before)


def test_a_set_larger_than_the_limit_is_kept(watched, monkeypatch):
    context, _ = watched
    monkeypatch.setattr(workspace, "MAX_BYTES", 1)
    graph = _graph(context)
    for seed in range(3):
        _check(context.compute(graph, _feeds(seed)), _feeds(seed))
        assert len(executable_of(graph).workspace._kept) == 1


def test_more_in_flight_than_sets_are_kept(watched):
    context, _ = watched
    graph, count = _graph(context), workspace.MAX_SETS + 20
    for first in (0, count):
        made = [(context.compute_async(graph, _feeds(n)), _feeds(n))
                for n in range(first, first + count)]
        for promise, feeds in made:
            _check(promise.result(60), feeds)


def test_a_promise_is_settled_when_the_fence_behind_it_is_reached(watched):
    context, _ = watched
    graph = _graph(context)
    for first in (0, 5, 10):
        made = [(context.compute_async(graph, _feeds(n)), _feeds(n))
                for n in range(first, first + 5)]
        assert context.fence().wait(60)
        assert all(promise.done() for promise, _ in made)
        for promise, feeds in made:
            _check(promise.result(), feeds)


def test_dropped_promises_and_destroyed_graphs(watched):
    context, _ = watched
    kept = _graph(context, 5)
    _check(context.compute(kept, _feeds(0)), _feeds(0), 5)
    before = settled_bytes(context)
    for first in range(0, 60, 12):
        graph = _graph(context, 7)
        with Gate(context):
            made = []
            for n in range(first, first + 12):
                which, factor = ((graph, 7), (kept, 5))[n % 2]
                made.append((context.compute_async(which, _feeds(n)), _feeds(n), factor))
            del made[::3], which
            graph.destroy()
            with pytest.raises(InvalidStateError, match="destroyed"):
                context.compute_async(graph, _feeds(0)).result(60)
        for promise, feeds, factor in made:
            _check(promise.result(60), feeds, factor)
    del graph, made, promise
    assert returns_to(context, before)


def test_the_end_of_the_context_rejects_what_waits(watched):
    context, _ = watched
    graph = _graph(context)
    _check(context.compute(graph, _feeds(0)), _feeds(0))
    with Gate(context):
        promises = [context.compute_async(graph, _feeds(n)) for n in range(20)]
        context.destroy()
        for promise in promises:
            assert isinstance(promise.exception(60), InvalidStateError)
    with pytest.raises(InvalidStateError, match="lost"):
        context.compute_async(graph, _feeds(0)).result(60)


def test_from_several_threads_while_others_compute(watched):
    context, _ = watched
    graphs = {factor: _graph(context, factor) for factor in (2, 3)}
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(12):
                factor, first = 2 + (number + turn) % 2, 1000 * number + 8 * turn
                made = [(context.compute_async(graphs[factor], _feeds(n)), _feeds(n))
                        for n in range(first, first + 1 + turn % 8)]
                _check(context.compute(graphs[2], _feeds(first)), _feeds(first))
                for promise, feeds in made:
                    _check(promise.result(60), feeds, factor)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join(120)
    assert not failed and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("shape", [SHAPE, [300, 700]], ids=["small", "large"])
def test_a_submit_that_fails_fails_its_calls(vulkan, shape):
    """Their memory serves no later call."""
    context, driver = open_over(FaultyDriver)
    with context:
        graph, feeds = _graph(context, shape=shape), _feeds(1, shape)
        _check(context.compute(graph, feeds), feeds)
        with Gate(context):
            promises = [context.compute_async(graph, _feeds(n, shape)) for n in range(4)]
            driver.fail_submit(1, times=10)
        for promise in promises:
            assert isinstance(promise.exception(60), OperationError)
        with pytest.raises(OperationError, match="injected: vkQueueSubmit"):
            context.compute(graph, feeds)
        driver.fail_submit(1, times=0)
        assert not executable_of(graph).workspace._kept
        _check(context.compute_async(graph, feeds).result(60), feeds)


def test_memory_that_is_found_later_or_never(vulkan):
    context, driver = open_over(FaultyDriver)
    with context:
        graph, feeds = _graph(context), _feeds(0)
        for nth in (1, 3):
            # Each is retried after all unused memory of the process was freed.
            driver.fail_allocation(nth, times=2)
            _check(context.compute_async(graph, feeds).result(60), feeds)
            executable_of(graph).workspace.clear()
            driver.fail_allocation(nth, times=1000)
            promise = context.compute_async(graph, feeds)
            with pytest.raises(UnknownError, match="injected: no memory"):
                promise.result(60)
            driver.fail_allocation(1, times=0)
        _check(context.compute_async(graph, feeds).result(60), feeds)
