"""`tensor.to_numpy()`: in place, exclusive, ordered with the timeline."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from tests.device.api.interop.conftest import doubling, floats, make_tensor, read
from tests.support.contexts import open_over, returns_to, settled_bytes
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk import InvalidStateError, OperationError
from webnn_vk.api.interop.numpy import TensorArray
from webnn_vk.compiler.types.data_types import ALL_TYPES
from webnn_vk.runtime.reclaim import TRIES


def memory_of(tensor):
    backing = tensor._state.storage.backing
    return backing if isinstance(backing, np.ndarray) else np.frombuffer(backing.mapped, np.uint8)


@pytest.mark.parametrize("data_type", ALL_TYPES)
def test_contents_type_and_shape(shared, data_type):
    data = np.arange(15).reshape(3, 5).astype(data_type)
    tensor = make_tensor(shared, data)
    with tensor.to_numpy() as array:
        assert array.dtype == data.dtype and array.shape == (3, 5)
        assert np.array_equal(array, data)
        array[1] = 7
    data[1] = 7
    assert np.array_equal(read(shared, tensor), data)


def test_scalar(shared):
    tensor = make_tensor(shared, np.array(3, np.int64))
    with tensor.to_numpy() as array:
        assert array.shape == () and array == 3
        array[...] = 2**40
    assert read(shared, tensor) == 2**40


def test_it_is_the_tensors_own_memory(mapped):
    tensor = make_tensor(mapped, [1, 2, 3, 4])
    with tensor.to_numpy() as array:
        assert np.shares_memory(array, memory_of(tensor))


def test_pending_work_is_seen_and_writes_are(shared):
    x, y = make_tensor(shared, [1, 2, 3, 4]), make_tensor(shared)
    graph = doubling(shared)
    for _ in range(3):
        shared.dispatch(graph, {"x": x}, {"y": y})
        with y.to_numpy() as result, x.to_numpy() as source:
            source[...] = result
    assert read(shared, x).tolist() == [8, 16, 24, 32]
    shared.dispatch(graph, {"x": x}, {"y": y})
    assert read(shared, y).tolist() == [16, 32, 48, 64]


def test_while_held_everything_else_is_refused(shared):
    x, y = make_tensor(shared, [1, 2, 3, 4]), make_tensor(shared)
    graph = doubling(shared)
    array = x.to_numpy()
    for call in (
        lambda: shared.write_tensor(x, floats(0, 0, 0, 0)),
        lambda: shared.read_tensor(x).result(),
        lambda: shared.dispatch(graph, {"x": x}, {"y": y}),
        lambda: shared.dispatch(graph, {"x": y}, {"y": x}),
        x.to_numpy,
    ):
        with pytest.raises(TypeError, match=r"float32\[4\] is held by a NumPy view"):
            call()
    array.release()
    array.release()
    shared.dispatch(graph, {"x": x}, {"y": y})
    assert read(shared, y).tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("view", [
    lambda a: a[1:],
    lambda a: a.reshape(2, 2).T,
    np.asarray,
    lambda a: a.view(np.ndarray)[::2],
    memoryview,
    lambda a: a.view(np.uint32),
    lambda a: iter(a[1:]),
], ids=["slice", "transposed", "asarray", "plain slice", "memoryview", "reinterpreted", "iterator"])
def test_the_last_view_releases(shared, view):
    tensor = make_tensor(shared, [1, 2, 3, 4])
    array = tensor.to_numpy()
    held = view(array)
    del array
    with pytest.raises(TypeError, match="held"):
        shared.write_tensor(tensor, floats(0, 0, 0, 0))
    del held
    assert read(shared, tensor).tolist() == [1, 2, 3, 4]


def test_collected_in_a_cycle(shared):
    tensor = make_tensor(shared, [1, 2, 3, 4])
    cycle = [tensor.to_numpy()]
    cycle[0][0] = 5
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert read(shared, tensor).tolist() == [5, 2, 3, 4]


def test_copies_and_results_do_not_hold(shared):
    tensor = make_tensor(shared, [1, 2, 3, 4])
    with tensor.to_numpy() as array:
        assert isinstance(array[1:], TensorArray)
        total, masked, copied = array + 1, array[[0, 2]], array.copy()
        assert type(total) is np.ndarray and type(masked) is np.ndarray
        assert isinstance(array.sum(), np.float32) and isinstance(array[0], np.float32)
        array += 1
        assert isinstance(array, TensorArray)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 9
    del array
    read(shared, tensor)
    copied.release()  # it is empty: nothing happens
    assert total.tolist() == [2, 3, 4, 5] and masked.tolist() == [1, 3]
    assert read(shared, tensor).tolist() == [2, 3, 4, 5]


def test_readable_and_writable_are_obeyed(shared):
    with pytest.raises(TypeError, match="readable=True"):
        make_tensor(shared, [1, 2, 3, 4], readable=False).to_numpy()
    x, y = make_tensor(shared, [1, 2, 3, 4]), make_tensor(shared, writable=False)
    shared.dispatch(doubling(shared), {"x": x}, {"y": y})
    with y.to_numpy() as array:
        assert array.tolist() == [2, 4, 6, 8]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError):
            array.flags.writeable = True


def test_destroyed_under_a_view(shared):
    tensor, other = make_tensor(shared, [1, 2, 3, 4]), make_tensor(shared, [5, 6, 7, 8])
    array, second = tensor.to_numpy(), other.to_numpy()
    tensor.destroy()
    with pytest.raises(InvalidStateError):
        tensor.to_numpy()
    assert array.tolist() == [1, 2, 3, 4]
    array[0] = 9
    timeline = shared._state.timeline
    shared.destroy()
    # Both memories exist until the last view is gone.
    assert not timeline._closed.wait(0.2)
    assert array.tolist() == [9, 2, 3, 4] and second.tolist() == [5, 6, 7, 8]
    array.release()
    del array
    assert not timeline._closed.wait(0.2)
    del second
    assert timeline._closed.wait(60)


def test_the_context_lives_as_long_as_a_view(open_kind):
    context = open_kind("cpu")
    array = make_tensor(context, [1, 2, 3, 4]).to_numpy()
    gc.collect()
    array[0] = 3
    assert array.tolist() == [3, 2, 3, 4]


def test_nothing_leaks(shared):
    tensor = make_tensor(shared, np.zeros(1000, np.float32))
    with tensor.to_numpy():
        pass
    del tensor
    before = settled_bytes(shared)
    for i in range(100):
        tensor = make_tensor(shared, shape=(1000,))
        array = tensor.to_numpy()
        array[0] = i
        if i % 2:
            array.release()
        del array
        assert read(shared, tensor)[0] == i
    del tensor
    assert returns_to(shared, before)
    assert shared._state.timeline._on_lost.keys() == {1}


def test_one_of_many_threads_wins(shared):
    tensor = make_tensor(shared, [0, 0, 0, 0])
    graph, y = doubling(shared), make_tensor(shared)
    for round_ in range(1, 11):
        won, refused, start = [], [], threading.Barrier(5)

        def ask(won=won, refused=refused, start=start):
            start.wait()
            try:
                won.append(tensor.to_numpy())
            except TypeError as error:
                refused.append(error)

        def dispatch(start=start):
            start.wait()
            for _ in range(5):
                try:
                    shared.dispatch(graph, {"x": tensor}, {"y": y})
                except TypeError:
                    return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        threads.append(threading.Thread(target=dispatch))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (len(won), len(refused)) == (1, 3)
        won[0][...] += 1
        won[0].release()
        assert read(shared, tensor).tolist() == [round_] * 4


@pytest.fixture
def faulty():
    require_vulkan()
    context, driver = open_over(FaultyDriver)
    yield context, driver
    context.destroy()


def test_failed_work_is_told_and_the_tensor_stays_usable(faulty):
    context, driver = faulty
    x, y = make_tensor(context, [1, 2, 3, 4]), make_tensor(context)
    graph = doubling(context)
    read(context, x)
    driver.fail_submit()
    context.dispatch(graph, {"x": x}, {"y": y})
    with pytest.raises(OperationError, match="injected"):
        y.to_numpy()
    context.dispatch(graph, {"x": x}, {"y": y})
    with y.to_numpy() as array:
        assert array.tolist() == [2, 4, 6, 8]


def test_loss_is_told(faulty):
    context, driver = faulty
    tensor = make_tensor(context, [1, 2, 3, 4])
    read(context, tensor)
    driver.lose()
    context.write_tensor(tensor, floats(0, 0, 0, 0))
    context.lost.result(60)
    with pytest.raises(InvalidStateError):
        tensor.to_numpy()


def test_no_staging_memory(open_kind, monkeypatch):
    context = open_kind("hidden")
    tensor = make_tensor(context, [1, 2, 3, 4])
    read(context, tensor)
    faulty = FaultyDriver(context._state.device.driver)
    monkeypatch.setattr(context._state.device, "driver", faulty)
    faulty.fail_allocation(times=TRIES)
    with pytest.raises(OperationError, match="injected"):
        tensor.to_numpy()
    assert read(context, tensor).tolist() == [1, 2, 3, 4]


def test_staged_views_that_fail(open_kind, monkeypatch):
    context = open_kind("hidden")
    tensor = make_tensor(context, [1, 2, 3, 4])
    read(context, tensor)
    faulty = FaultyDriver(context._state.device.driver)
    monkeypatch.setattr(context._state.device, "driver", faulty)
    faulty.fail_submit()
    with pytest.raises(OperationError, match="injected"):
        tensor.to_numpy()
    with tensor.to_numpy() as array:
        array[0] = 9
        faulty.fail_submit()
    context.fence().wait(60)
    with pytest.raises(OperationError, match="injected"):
        read(context, tensor)


@pytest.mark.parametrize("mapped", ["vulkan"], indirect=True)
def test_memory_that_is_not_coherent(mapped, monkeypatch):
    tensor = make_tensor(mapped, [1, 2, 3, 4])
    allocator = mapped._state.device.driver._memory
    seen = []
    synchronise = allocator.synchronise

    def watched(held, *, to_device):
        if held is tensor._state.storage.backing.held:
            seen.append("flush" if to_device else "invalidate")
        synchronise(held, to_device=to_device)

    monkeypatch.setattr(allocator, "synchronise", watched)
    for pool in allocator._all_pools:
        monkeypatch.setattr(pool, "coherent", False)
    with tensor.to_numpy() as array:
        assert seen == ["invalidate"]
        array[0] = 4
    assert seen == ["invalidate", "flush"]
    assert read(mapped, tensor).tolist() == [4, 2, 3, 4]
