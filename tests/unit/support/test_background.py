"""Calls on background threads."""

import gc
import signal
import threading
import time
import weakref

import pytest

from webnn_vk import MLPromise
from webnn_vk.support import background
from webnn_vk.support.promise import start_for


def test_a_call_that_fails_rejects_what_it_was_to_settle(monkeypatch):
    """Also one that fails before its first line, as for want of memory."""
    printed = []
    monkeypatch.setattr(threading, "excepthook", lambda about: printed.append(about.exc_type))

    def call(missing):
        raise AssertionError("never called")

    promise = start_for(MLPromise(), call, "test")
    with pytest.raises(TypeError, match="missing"):
        promise.result(60)
    assert printed == [TypeError]


def test_the_result_of_an_interrupted_call_is_dropped():
    """Also while the function that asks whether it is wanted is kept."""

    class Result:
        pass

    kept, made = [], []

    def call():
        result = Result()
        wanted = background.waiting()
        kept.append(wanted)
        made.append(weakref.ref(result))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        while wanted():
            time.sleep(0.001)
        return result

    with pytest.raises(KeyboardInterrupt):
        background.run_on_worker(call)
    deadline = time.monotonic() + 60
    while made[0]() is not None and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    assert made[0]() is None and not kept[0]()
