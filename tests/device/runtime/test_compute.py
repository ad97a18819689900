"""``context.compute``: its copies, and its behaviour if the host can't access tensors' memory."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.contexts import open_over
from tests.support.discriminating import assert_allclose
from tests.support.faults import FaultyDriver
from tests.support.watched_driver import Watched
from webnn_vk import MLGraph, UnknownError
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.driver import CopyCommand
from webnn_vk.runtime import driver_memory, timeline
from webnn_vk.runtime.work import Await, Run
from webnn_vk.support import background

pytestmark = pytest.mark.usefixtures("never_quiet")
SHAPE = [64, 300]


def _graph(context: Any, shape: list[int] = SHAPE) -> MLGraph:
    b = webnn_vk.MLGraphBuilder(context)
    x, y = (b.input(name, {"data_type": "float32", "shape": shape}) for name in "xy")
    return b.build({"sum": b.add(x, y), "max": b.max(x, y)}).result(120)


def _feeds(seed: int, shape: list[int] = SHAPE) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, np.float32) for name in "xy"}


@pytest.mark.parametrize(
    ("kind", "copies"),
    [
        ({}, 0),
        ({"uncached": True}, 2),  # both outputs are copied out
        ({"hidden": True}, 4),  # and both inputs in
    ],
)
def test_one_submit_and_no_copy_that_is_not_needed(vulkan, kind, copies):
    context, driver = open_over(lambda driver: Watched(driver, **kind))
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
            kinds = [kind for kind, _ in driver.transfers]
            assert kinds == [CopyCommand] * (4 if driver.hidden else copies)


def test_small_arrays_are_not_copied_on_a_gpu(vulkan, monkeypatch):
    """The host writes inputs into the device's memory, and kernels outputs into the host's."""
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        b = webnn_vk.MLGraphBuilder(context)
        x, y = (b.input(name, {"data_type": "float32", "shape": [64, 64]}) for name in "xy")
        graph = b.build({"sum": b.add(x, y), "max": b.max(x, y)}).result(120)
        feeds = [{name: values[:, :64] for name, values in _feeds(seed).items()} for seed in (0, 1)]
        context.compute(graph, feeds[0])
        driver.transfers.clear()
        recorded = driver.recorded
        with monkeypatch.context() as patched:
            patched.setattr(background, "run_on_worker", None)  # no call of it
            outputs = context.compute(graph, feeds[1])
        x, y = feeds[1].values()
        np.testing.assert_array_equal(outputs["sum"], x + y)
        np.testing.assert_array_equal(outputs["max"], np.maximum(x, y))
        assert not driver.transfers and driver.recorded == recorded


def test_which_outputs_kernels_write_into_the_host_s_memory(vulkan):
    """Those that no step reads, with elements that need no atomics."""
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        b = webnn_vk.MLGraphBuilder(context)
        x = b.input("x", {"data_type": "float32", "shape": [48, 48]})
        w = np.random.default_rng(0).standard_normal((48, 48), np.float32)
        weights = b.constant({"data_type": "float32", "shape": [48, 48]}, w)
        first = b.matmul(x, weights)
        second = b.matmul(first, weights)
        bytes_ = b.cast(b.greater(x, x), "uint8")
        graph = b.build({"first": first, "second": second, "bytes": bytes_}).result(120)
        assert executable_of(graph).written_only == {"second"}
        feed = np.random.default_rng(1).standard_normal((48, 48), np.float32)
        for _ in range(2):
            driver.transfers.clear()
            outputs = context.compute(graph, {"x": feed})
            assert_allclose(outputs["first"], feed @ w, rtol=1e-4, atol=1e-4)
            assert_allclose(outputs["second"], feed @ w @ w, rtol=1e-4, atol=1e-3)
            assert not outputs["bytes"].any()
            # The others are copied to their twins.
            assert sorted(size for _, size in driver.transfers) == [48 * 48, 4 * 48 * 48]


def test_recordings_with_copies_end_with_their_memory(vulkan):
    """The twins' memory goes with the storages', and a run without copies has its own recording."""
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        graph, device = _graph(context), context._state.device
        executable = executable_of(graph)
        context.fence().wait(60)
        before = device.memory_in_use()
        context.compute(graph, _feeds(0))
        kept = device.memory_in_use() - before
        assert 8 * 64 * 300 * 4 <= kept <= 8 * (64 * 300 * 4 + 256), "four storages and their twins"
        ((inputs, outputs),) = executable.workspace._kept
        plain = executable.recordings(inputs, outputs)
        assert plain is executable.recordings(inputs, outputs)
        copying = executable.recordings(inputs, outputs, copying=True)
        assert plain is not copying and len(executable.kept) == 2
        del inputs, outputs, plain, copying
        executable.workspace.clear()
        assert device.memory_in_use() == before
        assert not executable.kept and not executable.kept._keys


def test_twins_of_a_graph_with_steps_on_the_cpu(vulkan):
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        context._state.target = replace(context._state.target, force_cpu=("softmax",))
        b = webnn_vk.MLGraphBuilder(context)
        x = b.input("x", {"data_type": "float32", "shape": SHAPE})
        rates = b.softmax(b.add(x, x), 1)
        graph = b.build({"rates": rates, "sum": b.add(rates, x)}).result(120)
        assert executable_of(graph).on_host
        for seed in range(3):
            x = _feeds(seed)["x"]
            outputs = context.compute(graph, {"x": x})
            powers = np.exp(2 * x - 2 * x.max(1, keepdims=True))
            expected = powers / powers.sum(1, keepdims=True)
            assert_allclose(outputs["rates"], expected, rtol=1e-4, atol=1e-6)
            assert_allclose(outputs["sum"], expected + x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("access", ["write", "read"])
def test_sizes_in_place_and_with_twins(vulkan, access):
    context, _ = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        device = context._state.device
        places = []
        for limit in (driver_memory.IN_PLACE_BYTES, driver_memory.TWIN_BYTES):
            for size in (limit, limit + 4):
                storage = device.create_storage(size, host_access=access)
                places.append((storage.backing.mapped is not None, storage.twin is not None))
        assert places == [(True, False), (False, True), (False, True), (False, False)]


def test_large_arrays_have_no_twins(vulkan, monkeypatch):
    monkeypatch.setattr(driver_memory, "TWIN_BYTES", 64 * 300 * 4 - 1)
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        graph = _graph(context)
        for seed in range(2):
            feeds = _feeds(seed)
            driver.transfers.clear()
            total = context.compute(graph, feeds)["sum"]
            np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
            assert [kind for kind, _ in driver.transfers] == [CopyCommand] * 4
        ((inputs, outputs),) = executable_of(graph).workspace._kept
        assert all(s.twin is None for s in (*inputs.values(), *outputs.values()))


def test_a_profile_sees_the_copies_from_and_to_twins(vulkan):
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        graph = _graph(context)
        context.compute(graph, _feeds(0))
        with context.profile() as profile:
            driver.transfers.clear()
            feeds = _feeds(1)
            total = context.compute(graph, feeds)["sum"]
        np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
        assert [kind for kind, _ in driver.transfers] == [CopyCommand] * 4
        moved = {t.kind: (t.count, t.bytes) for t in profile.report.transfers}
        assert moved == {"upload": (2, 2 * 64 * 300 * 4), "download": (2, 2 * 64 * 300 * 4)}


def test_inputs_that_wait_are_counted_until_their_run_is_over(vulkan):
    """Also if the host wrote them to their memory at once."""
    context, driver = open_over(lambda driver: Watched(driver, hidden=True))
    with context:
        graph, staging = _graph(context), context._state.timeline.staging
        context.compute(graph, _feeds(0))
        gate, before = threading.Event(), driver.allocated
        context._state.stream.enqueue(Await(lambda: gate.wait(60)))
        promises = [context.compute_async(graph, _feeds(seed)) for seed in range(3)]
        deadline = time.monotonic() + 60
        # The first run has the memory of the one before.
        while driver.allocated - before < 2 * 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert staging.bytes == 3 * 2 * 64 * 300 * 4
        gate.set()
        for promise in promises:
            promise.result(60)
        context.fence().wait(60)
        assert staging.bytes == 0


@pytest.mark.parametrize("hidden", [False, True])
def test_later_runs_need_no_worker_and_no_recording(vulkan, monkeypatch, hidden):
    context, driver = open_over(lambda driver: Watched(driver, hidden))
    run_on_worker, calls = background.run_on_worker, []

    def counted(function: Any, *arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            calls.append(function.__name__)
        return run_on_worker(function, *arguments)

    with context:
        graph, feeds = _graph(context), _feeds(1)
        context.compute(graph, _feeds(0))
        recorded = driver.recorded
        monkeypatch.setattr(background, "run_on_worker", counted)
        total = context.compute(graph, feeds)["sum"]
        np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
        assert calls == [] and driver.recorded == recorded


def test_the_memory_of_a_run_serves_the_next_and_goes_when_nothing_is_called(vulkan, monkeypatch):
    context, driver = open_over(Watched)
    with context:
        graph, device = _graph(context), context._state.device
        context.fence().wait(60)
        before = device.memory_in_use()
        context.compute(graph, _feeds(0))
        kept, recorded = device.memory_in_use() - before, driver.recorded
        # Hidden memory has twins.
        assert 0 < kept <= (1 + driver.hidden) * 4 * (64 * 300 * 4 + 256)
        for seed in (1, 2, 3):
            feeds = _feeds(seed)
            total = context.compute(graph, feeds)["sum"]
            np.testing.assert_array_equal(total, feeds["x"] + feeds["y"])
        assert driver.recorded == recorded, "recorded again"
        monkeypatch.setattr(timeline, "QUIET_SECONDS", 0.05)
        done = threading.Event()
        context._state.stream.enqueue(Run(done.set, print))  # wakes the thread that waits
        assert done.wait(60)
        deadline = time.monotonic() + 60
        while device.memory_in_use() > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert device.memory_in_use() == before
        # Several concurrent calls have separate memory.
        feeds = [_feeds(seed) for seed in range(6)]
        promises = [context.compute_async(graph, f) for f in feeds]
        for f, promise in zip(feeds, promises, strict=True):
            np.testing.assert_array_equal(promise.result(60)["sum"], f["x"] + f["y"])


@pytest.mark.parametrize("shape", [[7, 9], SHAPE])
def test_calls_of_several_threads_on_a_gpu(vulkan, shape):
    """Ends are polled for, arrays lie in shared memory or have twins; each call has its values."""
    context, _ = open_over(lambda driver: Watched(driver, hidden=True))
    context._state.timeline._shares_cores = False
    failed: list[BaseException] = []
    with context:
        graph = _graph(context, shape)

        def call(seed: int) -> None:
            try:
                for number in range(40):
                    feeds = _feeds(100 * seed + number, shape)
                    if number % 4 == 3:
                        outputs = context.compute_async(graph, feeds).result(60)
                    else:
                        outputs = context.compute(graph, feeds)
                    np.testing.assert_array_equal(outputs["sum"], feeds["x"] + feeds["y"])
                    np.testing.assert_array_equal(outputs["max"], np.maximum(*feeds.values()))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=call, args=(seed,)) for seed in range(1, 4)]
        for thread in threads:
            thread.start()
        call(0)
        for thread in threads:
            thread.join(120)
        assert not failed and not any(thread.is_alive() for thread in threads)


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
