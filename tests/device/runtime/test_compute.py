"""``context.compute``: its copies, and its behaviour if the host can't access tensors' memory."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_over
from tests.support.driver_proxy import DriverProxy
from tests.support.faults import FaultyDriver
from webnn_vk import MLGraph, UnknownError
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.driver import CopyCommand, Driver, FillCommand
from webnn_vk.support import background

SHAPE = [64, 300]


class Watched(DriverProxy):
    """Counts transfers and submits. ``hidden``: the host sees transfer memory only."""

    def __init__(self, driver: Driver, hidden: bool = False) -> None:
        super().__init__(driver)
        self.hidden = hidden
        self.transfers: list[Any] = []
        self.submits = self.recorded = 0

    def allocate(self, size: int, **options: Any) -> Any:
        allocation = self.driver.allocate(size, **options)
        if self.hidden and not options.get("host"):
            allocation.mapped = None
        return allocation

    def record(self, commands: Any) -> Any:
        self.recorded += 1
        self.transfers += [c for c in commands if isinstance(c, (CopyCommand, FillCommand))]
        return self.driver.record(commands)

    def submit(self, *arguments: Any, **options: Any) -> int:
        self.submits += 1
        return self.driver.submit(*arguments, **options)


def _graph(context: Any) -> MLGraph:
    import webnn_vk

    b = webnn_vk.MLGraphBuilder(context)
    x, y = (b.input(name, {"data_type": "float32", "shape": SHAPE}) for name in "xy")
    return b.build({"sum": b.add(x, y), "max": b.max(x, y)}).result(120)


def _feeds(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(SHAPE, np.float32) for name in "xy"}


@pytest.mark.parametrize("hidden", [False, True])
def test_one_submit_and_no_copy_that_is_not_needed(vulkan, hidden):
    context, driver = open_over(lambda driver: Watched(driver, hidden))
    with context:
        graph = _graph(context)
        context.fence().wait(60)
        for seed in range(3):
            driver.transfers.clear()
            driver.submits = 0
            feeds = _feeds(seed)
            outputs = context.compute(graph, feeds)
            np.testing.assert_array_equal(outputs["sum"], feeds["x"] + feeds["y"])
            np.testing.assert_array_equal(outputs["max"], np.maximum(feeds["x"], feeds["y"]))
            assert driver.submits == 1
            # Hidden memory: two inputs are copied in, two outputs out.
            kinds = [type(transfer) for transfer in driver.transfers]
            assert kinds == ([CopyCommand] * 4 if hidden else [])


@pytest.mark.parametrize("hidden", [False, True])
def test_later_runs_need_no_worker_where_the_host_sees_the_memory(vulkan, monkeypatch, hidden):
    context, _ = open_over(lambda driver: Watched(driver, hidden))
    run_on_worker, calls = background.run_on_worker, []

    def counted(function: Any, *arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            calls.append(function.__name__)
        return run_on_worker(function, *arguments)

    with context:
        graph, feeds = _graph(context), _feeds(1)
        context.compute(graph, _feeds(0))
        monkeypatch.setattr(background, "run_on_worker", counted)
        total = context.compute(graph, feeds)["sum"]
        np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
        # Hidden memory: one thread switch, to stage both inputs.
        assert calls == (["_provide"] if hidden else [])


def test_the_memory_of_a_run_serves_the_next_and_goes_when_nothing_is_called(vulkan):
    context, driver = open_over(Watched)
    with context:
        graph, device = _graph(context), context._state.device
        context.fence().wait(60)
        before = device.memory_in_use()
        context.compute(graph, _feeds(0))
        kept, recorded = device.memory_in_use() - before, driver.recorded
        assert 0 < kept <= 4 * (64 * 300 * 4 + 256)
        for seed in (1, 2, 3):
            feeds = _feeds(seed)
            total = context.compute(graph, feeds)["sum"]
            np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
        assert driver.recorded == recorded, "recorded again"
        deadline = time.monotonic() + 30
        while device.memory_in_use() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert device.memory_in_use() == before
        # Several concurrent calls have separate memory.
        feeds = [_feeds(seed) for seed in range(6)]
        promises = [context.compute_async(graph, f) for f in feeds]
        for f, promise in zip(feeds, promises, strict=True):
            np.testing.assert_array_equal(promise.result(60)["sum"], f["x"] + f["y"])


def test_results_are_the_callers_own(vulkan_context):
    graph = _graph(vulkan_context)
    first = vulkan_context.compute(graph, _feeds(0))["sum"]
    kept = first.copy()
    second = vulkan_context.compute(graph, _feeds(1))["sum"]
    np.testing.assert_array_equal(first, kept)
    assert not np.array_equal(first, second)
    assert first.flags.writeable


def test_memory_that_is_found_later_or_never(vulkan):
    context, driver = open_over(FaultyDriver)
    with context:
        graph, feeds = _graph(context), _feeds(0)
        expected = feeds["x"] + feeds["y"]
        for nth in (1, 3):
            # Each is retried after all unused memory of the process was freed.
            executable_of(graph).workspace.clear()
            driver.fail_allocation(nth, times=2)
            outputs = context.compute(graph, feeds)
            np.testing.assert_array_equal(outputs["sum"], expected)
        for nth in (1, 3):
            executable_of(graph).workspace.clear()
            driver.fail_allocation(nth, times=1000)
            with pytest.raises(UnknownError, match="injected: no memory"):
                context.compute(graph, feeds)
            driver.fail_allocation(1, times=0)
        np.testing.assert_array_equal(context.compute(graph, feeds)["sum"], expected)
