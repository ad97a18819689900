"""Tensors that are written and read again and again: their transfers are kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.faults import FaultyDriver
from tests.support.watched_driver import Watched
from webnn_vk import (
    MLContext,
    MLDynamicDimension,
    MLGraphBuilder,
    MLTensor,
    OperationError,
    from_dlpack,
)
from webnn_vk.runtime import transfers
from webnn_vk.runtime.transfers import KEPT_BYTES
from webnn_vk.runtime.work import Await

SMALL = 1000


def _tensor(context: MLContext, count: int = SMALL) -> MLTensor:
    descriptor = {"data_type": "int32", "shape": [count], "readable": True, "writable": True}
    return context.create_tensor(descriptor).result(60)


def _data(seed: int, count: int = SMALL) -> np.ndarray:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, count, np.int32)


@pytest.mark.usefixtures("never_quiet")
def test_the_third_transfer_of_a_tensor_allocates_and_records_nothing(watched):
    """The first one of each kind is only remembered, the second one is kept."""
    context, driver = watched
    b = MLGraphBuilder(context)
    graph = b.build({"y": b.neg(b.input("x", {"data_type": "int32", "shape": [SMALL]}))}).result(60)
    x, y = _tensor(context), _tensor(context)
    for turn in range(6):
        if turn == 2:
            before = driver.allocated, driver.recorded
        driver.submits = 0
        data = _data(turn)
        with np.errstate(over="ignore"):
            context.write_tensor(x, data)
            context.dispatch(graph, {"x": x}, {"y": y})
            np.testing.assert_array_equal(context.read_tensor(y).result(60), -data)
    assert (driver.allocated, driver.recorded) == before


@pytest.mark.usefixtures("never_quiet")
@pytest.mark.parametrize(("count", "kept"), [(KEPT_BYTES // 4, True), (KEPT_BYTES // 4 + 1, False)])
def test_large_tensors_are_not_kept(watched, count, kept):
    context, driver = watched
    tensor = _tensor(context, count)
    for seed in range(4):
        recorded = driver.recorded
        context.write_tensor(tensor, _data(seed, count))
        context.fence().wait(60)
        written = driver.recorded
        np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(seed, count))
    assert (driver.recorded == written) == kept
    assert bool(context._state.device.transfers._kept) == kept
    assert written - recorded == 1, "more than SMALL_BYTES is staged by the caller"


@pytest.mark.parametrize("hidden", [False, True])
def test_tensors_without_elements(vulkan, hidden):
    drafts = ["dynamic-shapes"]
    context, _ = open_over(lambda driver: Watched(driver, hidden=hidden), experimental=drafts)
    nothing = np.zeros((0, 3), np.int32)
    with context:
        described = {"data_type": "int32", "shape": [0, 3], "readable": True, "writable": True}
        tensor = context.create_tensor(described).result(60)
        for _ in range(3):
            context.write_tensor(tensor, nothing)
            assert context.read_tensor(tensor).result(60).shape == (0, 3)
        with tensor.to_numpy() as view:
            assert view.shape == (0, 3)
        np.testing.assert_array_equal(from_dlpack(nothing, context), nothing)
        b = MLGraphBuilder(context)
        x = b.input("x", {"data_type": "int32", "shape": [MLDynamicDimension("n", 8, 0), 3]})
        graph = b.build({"y": b.neg(x)}).result(60)
        for rows in (0, 2, 0, 0, 2):
            data = _data(rows, 3 * rows).reshape(rows, 3)
            for call in (lambda *a: context.compute_async(*a).result(60), context.compute):
                np.testing.assert_array_equal(call(graph, {"x": data})["y"], -data)


def test_transfers_in_flight_don_t_share_memory(watched):
    context, _ = watched
    tensors = [_tensor(context) for _ in range(3)]
    for first in (0, 1000, 2000, 3000):
        opened = threading.Event()
        context._state.stream.enqueue(Await(lambda opened=opened: opened.wait(60)))
        reads = []
        for n in range(first, first + 12):
            context.write_tensor(tensors[n % 3], _data(n))
            reads.append((context.read_tensor(tensors[n % 3]), n))
        opened.set()
        for read, n in reads:
            np.testing.assert_array_equal(read.result(60), _data(n))
        # And one after the other, without a wait between a read and the next write.
        last = None
        for n in range(first + 100, first + 110):
            context.write_tensor(tensors[0], _data(n))
            read = context.read_tensor(tensors[0])
            if last is not None:
                np.testing.assert_array_equal(last.result(60), _data(n - 1))
            last = read


def test_the_last_ones_are_kept(watched, monkeypatch):
    monkeypatch.setattr(transfers, "MAX_KEPT", 4)
    context, _ = watched
    tensors = [_tensor(context) for _ in range(5)]
    for turn in range(3):
        for number, tensor in enumerate(tensors[: 2 + turn]):
            for again in range(3):
                data = _data(100 * turn + 10 * number + again)
                context.write_tensor(tensor, data)
                np.testing.assert_array_equal(context.read_tensor(tensor).result(60), data)
        context.fence().wait(60)
        kept = context._state.device.transfers._kept
        assert len(kept) == 4 and None not in kept.values()
        serials = [t._state.storage.serial for t in tensors[turn : 2 + turn]]
        assert {serial for serial, _ in kept} == set(serials)


def test_their_memory_goes_with_the_tensor_and_when_nothing_is_called(watched):
    context, _ = watched
    kept = context._state.device.transfers._kept
    context.fence().wait(60)
    without = settled_bytes(context)
    tensor = _tensor(context)
    context.fence().wait(60)
    before = settled_bytes(context)

    def use() -> None:
        for seed in range(3):
            context.write_tensor(tensor, _data(seed))
            np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(seed))

    use()
    assert returns_to(context, before) and not kept
    use()
    tensor.destroy()
    context.fence().wait(60)
    assert settled_bytes(context) == without
    assert not kept


def test_a_submit_that_fails_and_memory_that_is_missing(vulkan):
    context, driver = open_over(FaultyDriver)
    with context:
        tensor = _tensor(context)
        for seed in range(3):
            context.write_tensor(tensor, _data(seed))
            np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(seed))
        driver.fail_submit(1, times=2)
        context.write_tensor(tensor, _data(3))
        with pytest.raises(OperationError, match="injected: vkQueueSubmit"):
            context.read_tensor(tensor).result(60)
        driver.fail_submit(1, times=0)
        for seed in range(4, 7):
            context.write_tensor(tensor, _data(seed))
            np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(seed))
        other = _tensor(context)
        for seed in range(4):
            if seed == 1:  # no memory for transfers that are kept: one by one, after a wait
                driver.fail_allocation(1, times=3)
            context.write_tensor(other, _data(seed))
            np.testing.assert_array_equal(context.read_tensor(other).result(60), _data(seed))
        assert driver.injected["allocation"] == 3


def test_a_profile_sees_transfers_that_are_kept(watched):
    context, _ = watched
    tensor = _tensor(context)
    for seed in range(3):
        context.write_tensor(tensor, _data(seed))
        context.read_tensor(tensor).result(60)
    with context.profile(roofline=False) as profile:
        for seed in range(3, 5):
            context.write_tensor(tensor, _data(seed))
            np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(seed))
    moved = {t.kind: (t.count, t.bytes) for t in profile.report.transfers}
    assert moved == {"upload": (2, 2 * 4 * SMALL), "download": (2, 2 * 4 * SMALL)}
    context.write_tensor(tensor, _data(5))
    np.testing.assert_array_equal(context.read_tensor(tensor).result(60), _data(5))
