"""Changes that a test leaves in its process are detected."""

import logging
import os
import signal
import sys
import threading

import numpy as np
import pytest

from tests.support import leftovers
from webnn_vk.codegen import render


@pytest.mark.parametrize(("leave", "named"), [
    (lambda p: p.setenv("WEBNN_VK_LEFT", "1"), "WEBNN_VK_LEFT"),
    (lambda p: p.delenv("PATH"), "PATH"),
    (lambda p: p.chdir("/"), "the working folder"),
    (lambda p: p.syspath_prepend("/left"), "sys.path"),
    (lambda p: p.setitem(sys.modules, "nothing_of_this_name", None), "nothing_of_this_name"),
    (lambda p: p.setitem(sys.modules, "webnn_vk.support.event", os), "webnn_vk.support.event"),
    (lambda p: p.setattr(render._loader, "searchpath", ["/left"]), "searchpath"),
    (lambda p: p.setattr(logging.root, "level", 1), "the level of logging"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_left_is_named(monkeypatch, leave, named):
    before = leftovers.state()
    assert not leftovers.left(before)
    leave(monkeypatch)
    lines = leftovers.left(before)
    monkeypatch.undo()
    assert lines and all(named in line for line in lines)
    assert not leftovers.left(before)


def test_settings_of_others(monkeypatch):
    before = leftovers.state()
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    with np.errstate(divide="ignore" if before["np.geterr()"]["divide"] != "ignore" else "raise"):
        lines = leftovers.left(before)
    signal.signal(signal.SIGUSR1, handler)
    assert len(lines) == 2 and "divide" in lines[0] and "SIGUSR1" in lines[1]


def test_a_thread_that_goes_on(monkeypatch):
    monkeypatch.setattr(leftovers, "_PATIENCE", 0.01)
    before, end = leftovers.state(), threading.Event()
    thread = threading.Thread(target=end.wait, name="goes on", daemon=False)
    thread.start()
    lines = leftovers.left(before)
    end.set()
    thread.join()
    assert lines == ["the thread goes on goes on"]
    assert not leftovers.left(before)
