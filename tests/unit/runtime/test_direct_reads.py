"""Promises of direct reads: who waits for one gets the result itself, until others have to be told.
"""

import asyncio
import gc
import os
import threading
from concurrent import futures

import pytest

from tests.support.direct_world import PATIENCE, World
from webnn_vk import InvalidStateError, Settings, ml

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the null driver"), pytest.mark.usefixtures("never_quiet"),
]


@pytest.fixture
def discrete(monkeypatch):
    """A device whose tensors the host can't see."""
    monkeypatch.setenv("WEBNN_VK_NULL_DEVICES", "1")
    world = World(ml.create_context(settings=Settings(driver="null")).result(PATIENCE))
    yield world
    world.context.destroy()


@pytest.fixture
def pending(discrete, monkeypatch):
    """A read that is over when ``pending.open`` is called."""
    opened = threading.Event()

    def wait(value, timeout=None):
        return opened.wait(PATIENCE if timeout is None else timeout)

    discrete.all(4)
    monkeypatch.setattr(discrete.timeline.device.direct, "wait", wait)
    monkeypatch.setattr(discrete.timeline.direct, "_polls", False)
    promise = discrete.read()
    promise.open = opened.set
    yield promise
    opened.set()


def test_a_promise_that_is_not_over(pending):
    assert not pending.done() and pending.running() and "pending" in repr(pending)
    with pytest.raises(TimeoutError):
        pending.result(0.01)
    with pytest.raises(TimeoutError):
        pending.exception(0)
    pending.open()
    assert pending.done() and not pending.running()
    assert pending.exception() is None
    assert pending.result().tolist() == [4] * 4


def test_an_exception_of_a_signal_handler_is_not_the_promise_s(discrete, pending, monkeypatch):
    direct = discrete.timeline.direct

    def alarm(value, timeout=None):
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(direct, "_polls", False)
    monkeypatch.setattr(direct, "wait", alarm)
    with pytest.raises(ZeroDivisionError):
        pending.result()
    assert pending.result().tolist() == [4] * 4


def test_slow_threads_have_the_bytes_of_the_first(discrete, pending, monkeypatch):
    """Another read has its memory by then."""
    transfers = discrete.timeline.device.transfers
    keep, kept = transfers.keep, []

    def keeping(key, transfer):
        transfer.staged.mapped[:16] = bytes(16)
        kept.append(key)
        keep(key, transfer)

    monkeypatch.setattr(transfers, "keep", keeping)
    pull = pending._source[0]
    pending.open()
    found = [pull(None)[0] for _ in range(3)]
    assert [array.tolist() for array in found] == [[4] * 4] * 3
    assert len(kept) == 1


def test_many_threads_wait_for_one(pending):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(pending.result(PATIENCE))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    pending.open()
    for thread in threads:
        thread.join()
    assert all(array is found[0] for array in found) and found[0].tolist() == [4] * 4


def test_callbacks(pending):
    told, called = [], threading.Event()
    pending.add_done_callback(lambda promise: told.append(promise.result()))
    pending.add_done_callback(lambda promise: called.set())
    assert not called.wait(0.05)
    pending.open()
    assert called.wait(PATIENCE)
    assert told[0] is pending.result()


def test_a_callback_beside_a_thread_that_waits(pending):
    called = threading.Event()
    thread = threading.Thread(target=lambda: pending.result(PATIENCE))
    thread.start()
    pending.add_done_callback(lambda promise: called.set())
    pending.open()
    assert called.wait(PATIENCE)
    thread.join()


def test_an_event_loop(pending):
    async def wait():
        asyncio.get_running_loop().call_later(0.01, pending.open)
        return await asyncio.wait_for(pending, PATIENCE)

    assert asyncio.run(wait()).tolist() == [4] * 4


@pytest.mark.parametrize("early", [True, False])
def test_concurrent_futures(pending, early):
    if early:
        pending.open()
        pending.result(PATIENCE)
    threading.Timer(0.02, pending.open).start()
    done, left = futures.wait([pending], PATIENCE)
    assert done == {pending} and not left
    assert next(futures.as_completed([pending], PATIENCE)) is pending


def test_a_tensor_that_is_destroyed_first(discrete, pending):
    discrete.y.destroy()
    with pytest.raises(InvalidStateError, match="destroyed before it was read"):
        pending.result(PATIENCE)


def test_a_context_that_is_destroyed_first(discrete, pending):
    threading.Timer(0.02, pending.open).start()
    discrete.context.destroy()
    with pytest.raises(InvalidStateError, match="destroy"):
        pending.result(PATIENCE)


def test_a_forked_child_does_not_wait_for_it(pending):
    child = os.fork()
    if not child:
        status = 1
        try:
            assert not pending.done()
            pending.result(1)
        except InvalidStateError as error:
            status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    pending.open()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pending.result(PATIENCE).tolist() == [4] * 4


def test_a_promise_that_nobody_asks_keeps_nothing(discrete, pending):
    before = discrete.timeline.device.memory_in_use()
    discrete.y.destroy()
    del pending
    gc.collect()
    discrete.timeline.catch_up()
    assert discrete.timeline.device.memory_in_use() <= before
