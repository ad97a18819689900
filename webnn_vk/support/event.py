"""An event whose wait survives interrupts.

Python runs signal handlers in the main thread between any two steps of Python code, even inside
``threading.Condition`` and the classes based on it, which may then stay locked for ever. Here each
change of state is one call into C, which a signal handler can't split.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Any

#: Interval of polling when there is no memory for a lock to wait on.
_POLL_SECONDS = 0.001
#: Longest sleep in one call into C. A signal that comes right before the sleep doesn't end it:
#: Python sees the signal after it.
_SLICE_SECONDS = 1.0


class Event:
    """Set once; any number of threads may wait for it."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        # A locked lock for each waiting thread. A thread that takes one out of here releases it.
        self._waiting: deque[Any] = deque()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it. Not for the main thread while others wait: an interrupt would leave some of them
        waiting."""
        self._is_set = True
        while True:
            try:
                self._waiting.popleft().release()
            except IndexError:
                return

    def set_despite_oom(self) -> None:
        """``set``, retried while memory is short."""
        while True:
            try:
                return self.set()
            except MemoryError:
                pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most ``timeout`` seconds; returns whether it is set."""
        if self._is_set:
            return True
        try:
            lock = threading.Lock()
        except (RuntimeError, MemoryError):  # there is no memory for one
            return self._poll(timeout)
        lock.acquire()
        # Enqueue first, then check: ``set`` does both in the opposite order.
        self._waiting.append(lock)
        try:
            if not self._is_set:
                end = math.inf if timeout is None else time.monotonic() + timeout
                while (left := end - time.monotonic()) > 0:
                    if lock.acquire(True, min(left, _SLICE_SECONDS)):
                        break
        finally:
            try:
                self._waiting.remove(lock)
            except ValueError:
                pass  # it was released
        return self._is_set

    def _poll(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self._is_set and (end is None or time.monotonic() < end):
            time.sleep(_POLL_SECONDS)
        return self._is_set
