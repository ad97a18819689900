"""Threads of the library's own, and the end of the interpreter, which waits for them."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import Any

from . import forks

#: How long the exit of the interpreter waits for work in flight, in seconds.
EXIT_SECONDS = 20.0

#: Called at exit with the seconds left, before and after the threads of ``start`` were joined.
closers: list[Callable[[float], Any]] = []
_running: set[threading.Thread] = set()
forks.renew(globals(), _running=set)
_ended = False


class TimelineThread(threading.Thread):
    """A timeline's own thread: it must not wait for the timeline."""


def on_timeline() -> bool:
    """Whether the caller is a callback on a timeline's thread, where waiting would never end."""
    thread = threading.current_thread()
    # In the child of a fork in a callback it is the main thread.
    return isinstance(thread, TimelineThread) and thread is not threading.main_thread()


def start(function: Callable[..., Any], name: str, *arguments: Any) -> bool:
    """Run ``function`` on a thread of its own; False when the interpreter is past its exit, where
    a new thread would never run (and destructors may still come here)."""
    if _ended:
        return False

    def run() -> None:
        try:
            function(*arguments)
        finally:
            _running.discard(thread)

    # Daemonic: threading would otherwise wait without limit, and before our own end.
    thread = threading.Thread(target=run, name=f"webnn_vk-{name}", daemon=True)
    watch_exit()
    _running.add(thread)
    try:
        thread.start()
    except BaseException:
        _running.discard(thread)
        raise
    return True


def watch_exit() -> None:
    """Have our end come before that of everything registered with atexit so far (the driver's)."""
    atexit.unregister(_exit)
    atexit.register(_exit)


def _exit() -> None:
    # A daemon thread inside a driver call while the interpreter goes away would crash it.
    end = time.monotonic() + EXIT_SECONDS
    for closer in closers:
        closer(max(end - time.monotonic(), 0))
    for thread in _running.copy():
        thread.join(max(end - time.monotonic(), 0))
    for closer in closers:  # what those threads have made
        closer(max(end - time.monotonic(), 0))
    global _ended
    _ended = True
