"""Waits of the main thread, which signals end."""

import os
import signal
import sys
import threading
import time

import pytest

from webnn_vk.support.event import Event


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("timeout", [120, None])
def test_a_signal_that_wakes_no_wait_ends_it_nevertheless(timeout):
    """A signal may come after Python has looked for signals and before the wait sleeps: then it
    doesn't end the sleep. Here another thread receives it, since this one blocks it."""
    event, ready, ended, late = Event(), threading.Event(), threading.Event(), []

    def send():
        ready.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        if not ended.wait(60):
            late.append(True)
            event.set()

    sender = threading.Thread(target=send)
    sender.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            ready.set()
            event.wait(timeout)
        assert not late
    finally:
        ended.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.join()


def test_waits_end_with_the_event_or_the_timeout():
    event = Event()
    assert not event.wait(0) and not event.wait(-1) and not event.wait(0.01)
    threading.Timer(0.1, event.set).start()
    assert event.wait(1e30) and event.wait() and event.wait(0)
