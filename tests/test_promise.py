import asyncio
import threading

import pytest

from webnn_vk import MLPromise


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


async def _await(promise):
    return await promise


def test_awaiting_does_not_block_the_loop():
    async def both():
        promise = MLPromise()
        task = asyncio.ensure_future(_await(promise))
        await asyncio.sleep(0)
        promise.resolve("done")
        return await task

    assert asyncio.run(both()) == "done"
