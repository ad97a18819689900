import asyncio
import copy
import gc
import pickle
import threading
import weakref
from concurrent import futures

import anyio
import numpy as np
import pytest

from webnn_vk import InvalidStateError, MLPromise
from webnn_vk.support import background


def test_result_and_await_give_the_value():
    promise = MLPromise()
    threading.Timer(0.01, promise.resolve, [42]).start()
    assert promise.result(timeout=60) == 42

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


def test_an_exit_in_a_callback_drops_none_after_it(monkeypatch):
    promise, said, called = MLPromise(), [], []
    monkeypatch.setattr(threading, "excepthook", lambda given: said.append(given.exc_type))

    def leave(_):
        raise SystemExit

    promise.add_done_callback(leave)
    promise.add_done_callback(lambda done: called.append(done.result()))

    async def wait():
        threading.Timer(0.05, promise.resolve, [5]).start()
        return await asyncio.wait_for(promise, 60)

    assert asyncio.run(wait()) == 5
    assert called == [5] and said == [SystemExit]


def test_a_failing_callback_is_logged(caplog):
    promise, called = MLPromise("a thing"), []
    promise.add_done_callback(lambda done: 1 / 0)
    promise.add_done_callback(called.append)
    promise.resolve(1)
    assert called == [promise]
    promise.add_done_callback(lambda done: 1 / 0)
    assert caplog.messages == ["a callback of an MLPromise of a thing failed"] * 2


def test_an_event_loop_on_the_timeline_is_refused():
    """It would wait for the thread that it runs on."""
    pending, settled, seen = MLPromise(), MLPromise.resolved(3), []

    async def wait(promise):
        return await promise

    def callback():
        seen.append(asyncio.run(wait(settled)))
        for awaitable in (wait(pending), pending):
            with pytest.raises(InvalidStateError, match="can't wait for another"):
                asyncio.run(awaitable)
            seen.append("refused")

    thread = background.TimelineThread(target=callback, daemon=True)
    thread.start()
    thread.join(60)
    assert seen == [3, "refused", "refused"]


def test_futures_wait_and_as_completed():
    promises = [MLPromise() for _ in range(20)]
    for i, promise in enumerate(promises[:5]):
        promise.resolve(i)

    def settle():
        for i, promise in list(enumerate(promises))[5:]:
            promise.resolve(i) if i % 2 else promise.reject(InvalidStateError(str(i)))

    thread = threading.Timer(0.02, settle)
    thread.start()
    assert {id(p) for p in futures.as_completed(promises, 60)} == set(map(id, promises))
    done, pending = futures.wait(promises, 60)
    assert len(done) == 20 and not pending
    first = MLPromise()
    threading.Timer(0.02, first.reject, [InvalidStateError("x")]).start()
    done, pending = futures.wait([first, MLPromise()], 60, futures.FIRST_EXCEPTION)
    assert done == {first} and len(pending) == 1


def test_a_future_s_lock_left_locked_holds_up_nobody():
    """The state that an interrupt in the main thread's ``concurrent.futures.wait`` leaves behind.
    """
    promise, seen = MLPromise(), threading.Event()
    promise._condition.acquire()
    promise.add_done_callback(lambda done: seen.set())
    thread = threading.Thread(target=promise.resolve, args=[4])
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and seen.is_set() and promise.result() == 4
    assert futures.wait([promise], 60).done == {promise}


def test_promises_are_not_copied():
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="an MLPromise of a thing can't be"):
            call(MLPromise("a thing"))


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
        thread.join(60)
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
    left._log_destroy_pending = False  # this test's own omission


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
    thread.join(60)
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
    """The waiter's objects are freed with the error, not only when the collector runs."""
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


def later(value=7, seconds=0.02):
    promise = MLPromise("a number")
    threading.Timer(seconds, promise.resolve, [value]).start()
    return promise


def never():
    return MLPromise("a number")


# -- one test for each of asyncio's primitives -----------------------------------------------------
async def by_gather():
    return await asyncio.gather(later(), later(8))


async def by_wait_for():
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(never(), 0.02)
    return await asyncio.wait_for(later(), 60)


async def by_shield():
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(never()), 0.02)
    return await asyncio.shield(later())


async def by_timeout():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await never()
    async with asyncio.timeout(60):
        return await later()


async def by_task_group():
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(later()), group.create_task(later(8))]
    return [task.result() for task in tasks]


async def by_create_task():
    task, cancelled = asyncio.create_task(later()), asyncio.create_task(never())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    return await task


async def by_ensure_future():
    return await asyncio.ensure_future(later())


async def by_as_completed():
    first, second = later(), MLPromise()
    first.add_done_callback(lambda done: threading.Timer(0.05, second.resolve, [8]).start())
    return [await one for one in asyncio.as_completed([first, second], timeout=60)]


async def by_wait_with_tasks():
    done, pending = await asyncio.wait(
        [asyncio.ensure_future(later()), asyncio.ensure_future(never())], timeout=60,
        return_when=asyncio.FIRST_COMPLETED,
    )
    (task,), (left,) = done, pending
    left.cancel()
    return task.result()


async def by_two_tasks_of_one_promise():
    promise = later()
    return await asyncio.gather(asyncio.create_task(promise), asyncio.create_task(promise))


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (by_gather, [7, 8]), (by_wait_for, 7), (by_shield, 7), (by_timeout, 7),
        (by_task_group, [7, 8]), (by_create_task, 7), (by_ensure_future, 7),
        (by_as_completed, [7, 8]), (by_wait_with_tasks, 7), (by_two_tasks_of_one_promise, [7, 7]),
    ],
)
def test_asyncio_takes_promises(use, expected):
    assert asyncio.run(asyncio.wait_for(use(), 120)) == expected


@pytest.mark.parametrize("timeout", [None, 0.1])
def test_asyncio_wait_refuses_promises_at_once(timeout):
    async def use():
        await asyncio.wait([never()], timeout=timeout)

    with pytest.raises(TypeError, match="use tasks explicitly"):
        asyncio.run(asyncio.wait_for(use(), 60))


def test_asyncio_runs_promises():
    assert asyncio.run(later()) == 7
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert asyncio.run_coroutine_threadsafe(later(), loop).result(60) == 7
    failing = asyncio.run_coroutine_threadsafe(MLPromise.rejected(ValueError("no")), loop)
    with pytest.raises(ValueError, match="no"):
        failing.result(60)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_a_failing_promise_in_a_task_group():
    async def use():
        async with asyncio.TaskGroup() as group:
            group.create_task(MLPromise.rejected(ValueError("no")))
            group.create_task(never())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(asyncio.wait_for(use(), 60))
    assert [str(error) for error in caught.value.exceptions] == ["no"]


def test_anyio_takes_promises():
    async def use():
        values = []

        async def collect(promise):
            values.append(await promise)

        async with anyio.create_task_group() as group:
            group.start_soon(collect, later())
            group.start_soon(later)  # a function that returns an awaitable
        with anyio.move_on_after(0.02) as scope:
            await never()
        return values, scope.cancelled_caught

    assert anyio.run(use) == ([7], True)


def test_a_promise_is_no_coroutine_outside_a_task():
    with pytest.raises(RuntimeError, match="no running event loop"):
        never().send(None)


# -- rejections whose errors were never retrieved --------------------------------------------------
def test_a_rejection_that_nobody_saw_is_logged_once(caplog):
    MLPromise.rejected(ValueError("lost"))
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("webnn_vk", "ERROR")
    assert record.getMessage() == "an MLPromise was rejected, and its error was never retrieved"
    assert str(record.exc_info[1]) == "lost"


def test_the_end_of_a_context_is_not_logged_for_what_was_pending(caplog):
    promise = MLPromise()
    promise.reject(InvalidStateError("the context is lost"))
    del promise
    assert caplog.records == []
    MLPromise.rejected(InvalidStateError("the driver was closed"))
    twice = MLPromise()
    twice.reject(ValueError("first"))
    twice.reject(InvalidStateError("too late"))
    del twice
    assert [str(record.exc_info[1]) for record in caplog.records] == ["first"]


def test_what_was_looked_at_is_not_logged(caplog):
    async def waited(promise):
        with pytest.raises(ValueError):
            await promise

    for look in (
        lambda promise: promise.exception(),
        lambda promise: pytest.raises(ValueError, promise.result),
        lambda promise: asyncio.run(waited(promise)),
    ):
        look(MLPromise.rejected(ValueError("seen")))
    late = MLPromise()
    with pytest.raises(TimeoutError):
        late.result(0)
    late.resolve(1)
    del late
    gc.collect()
    assert caplog.records == []
    late = MLPromise()
    with pytest.raises(TimeoutError):
        late.result(0)
    late.reject(ValueError())
    del late
    assert len(caplog.records) == 1


# -- used for its result ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("use", "error"),
    [
        (lambda p: p.shape, AttributeError),
        (lambda p: p.compute({}), AttributeError),
        (lambda p: p["y"], TypeError),
        (lambda p: list(p), TypeError),
        (lambda p: np.asarray(p), TypeError),
        (lambda p: np.asarray(p, np.float32), TypeError),
        (lambda p: p.__enter__(), TypeError),
    ],
)
def test_a_promise_in_place_of_its_result(use, error):
    with pytest.raises(error, match=r"an MLPromise of an MLGraph: call .result\(\) or await it fi"):
        use(MLPromise("an MLGraph"))


def test_async_with_needs_await():
    async def use():
        async with MLPromise("an MLContext"):
            pass

    with pytest.raises(TypeError, match="`async with await …`"):
        asyncio.run(use())


def test_what_a_promise_looks_like():
    promise = MLPromise("an MLGraph")
    assert repr(promise) == "<MLPromise of an MLGraph: pending>"
    assert not hasattr(promise, "shape") and not hasattr(promise, "_repr_html_")
    promise.resolve(5)
    assert repr(promise) == "<MLPromise: 5>"
    assert repr(MLPromise.resolved(np.zeros(1000))) == "<MLPromise: ndarray>"
    rejected = MLPromise.rejected(ValueError("no"))
    assert repr(rejected) == "<MLPromise: rejected with ValueError: no>"
    rejected.exception()
