import asyncio
import gc
import threading
import weakref

import pytest

from webnn_vk import InvalidStateError, MLPromise, background


def test_result_and_await_give_the_value():
    promise = MLPromise()
    threading.Timer(0.01, promise.resolve, [42]).start()
    assert promise.result(timeout=10) == 42

    async def later():
        other = MLPromise()
        threading.Timer(0.01, other.resolve, ["x"]).start()
        return await other, await promise

    assert asyncio.run(later()) == ("x", 42)


def test_rejection_raises_in_both():
    promise = MLPromise.rejected(TypeError("no"))
    with pytest.raises(TypeError, match="no"):
        promise.result()

    async def later():
        await promise

    with pytest.raises(TypeError, match="no"):
        asyncio.run(later())


def test_it_settles_once():
    promise = MLPromise()
    assert promise.resolve(1)
    assert not promise.resolve(2)
    assert not promise.reject(ValueError())
    assert promise.result() == 1


def test_cancelling_the_waiter_leaves_the_promise_alone():
    promise = MLPromise()
    assert not promise.cancel()

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(_await(promise)), 0.01)

    asyncio.run(give_up())
    assert promise.resolve(7) and promise.result() == 7


def test_two_event_loops_and_a_closed_one():
    promise = MLPromise()
    closed = asyncio.new_event_loop()
    left = closed.create_task(_await(promise))
    closed.run_until_complete(asyncio.sleep(0))
    left.cancel()
    closed.run_until_complete(asyncio.gather(left, return_exceptions=True))
    closed.close()
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(asyncio.run(_await(promise)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    threading.Timer(0.05, promise.resolve, [5]).start()
    for thread in threads:
        thread.join(20)
    assert got == [5, 5]
    assert asyncio.run(_await(promise)) == promise.result() == 5


def test_an_await_left_in_a_closed_loop_disturbs_nobody(caplog):
    promise = MLPromise()
    seen = []
    closed = asyncio.new_event_loop()
    left = closed.create_task(_await(promise))
    closed.run_until_complete(asyncio.sleep(0))
    closed.close()
    promise.add_done_callback(lambda p: seen.append(p.result()))
    assert promise.resolve(5)
    assert seen == [5] and promise.result() == 5
    assert caplog.records == []
    left._log_destroy_pending = False  # this test's own neglect


def test_awaiting_in_a_forked_child_is_refused():
    promise = MLPromise()
    promise._pid = 0  # as a child sees it
    with pytest.raises(InvalidStateError, match="before a fork"):
        asyncio.run(_await(promise))
    promise.resolve(5)
    assert asyncio.run(_await(promise)) == 5


async def _await(promise):
    return await promise


def test_waits_that_would_never_end_are_refused(monkeypatch):
    pending, settled = MLPromise(), MLPromise.resolved(3)
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: -1)
        for wait in (pending.result, pending.exception):
            with pytest.raises(InvalidStateError, match="before a fork"):
                wait(0)
        assert settled.result() == 3
    errors = []

    def on_timeline():
        for wait in (pending.result, pending.exception):
            try:
                wait(0)
            except Exception as error:
                errors.append(error)
        errors.append(settled.result())

    thread = background.TimelineThread(target=on_timeline)
    thread.start()
    thread.join(10)
    assert [type(e) for e in errors[:2]] == [InvalidStateError] * 2 and errors[2] == 3


def test_a_callback_that_exits_ends_nothing(monkeypatch):
    hooked = []
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.append(args.exc_type))

    def leave(_):
        raise SystemExit

    for settle in (lambda p: p.resolve(1), lambda p: p.reject(ValueError())):
        promise = MLPromise()
        promise.add_done_callback(leave)
        assert settle(promise) and promise.done()
    assert hooked == [SystemExit] * 2


def test_awaiting_does_not_block_the_loop():
    async def both():
        promise = MLPromise()
        task = asyncio.ensure_future(_await(promise))
        await asyncio.sleep(0)
        promise.resolve("done")
        return await task

    assert asyncio.run(both()) == "done"


def test_an_error_keeps_nobodys_frames():
    """What who waited had in hand goes with the error, not only when the collector comes."""
    class Thing:
        pass

    def wait():
        thing = Thing()
        held.append(weakref.ref(thing))
        MLPromise.rejected(ValueError()).result(0)

    held = []
    gc.disable()
    try:
        wait()
    except ValueError:
        pass
    finally:
        gc.enable()
    assert held[0]() is None
