"""Calls on background threads."""

import threading

import pytest

from webnn_vk import MLPromise
from webnn_vk.support.promise import start_for


def test_a_call_that_fails_rejects_what_it_was_to_settle(monkeypatch):
    """Also one that fails before its first line, as for want of memory."""
    printed = []
    monkeypatch.setattr(threading, "excepthook", lambda about: printed.append(about.exc_type))

    def call(missing):
        raise AssertionError("never called")

    promise = start_for(MLPromise(), call, "test")
    with pytest.raises(TypeError, match="missing"):
        promise.result(10)
    assert printed == [TypeError]
