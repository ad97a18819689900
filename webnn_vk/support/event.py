"""Waiting that an interrupt can't break.

Python runs signal handlers in the main thread between any two steps of Python code, also inside of
``threading.Condition`` and what is made of it, which may then stay locked for ever. Here every step
that changes anything is one call into C: it happens or it doesn't.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

#: Between two looks of who has no lock to wait on.
_POLL_SECONDS = 0.001


class Gate:
    """Opens once (``set``); any number of threads wait for that."""

    __slots__ = ("_open", "_waiting")

    def __init__(self) -> None:
        self._open = False
        # A held lock of each waiting thread. Who takes one out of here releases it.
        self._waiting: deque[Any] = deque()

    def is_set(self) -> bool:
        """Whether it is open."""
        return self._open

    def set(self) -> None:
        """Open it. Not for the main thread while others wait: an interrupt would leave some of
        them behind."""
        self._open = True
        while True:
            try:
                self._waiting.popleft().release()
            except IndexError:
                return

    def insist(self) -> None:
        """``set``, though there was no memory for it at first."""
        while True:
            try:
                return self.set()
            except MemoryError:
                pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most ``timeout`` seconds; whether it is open."""
        if self._open:
            return True
        try:
            lock = threading.Lock()
        except (RuntimeError, MemoryError):  # there is no memory for one
            return self._poll(timeout)
        lock.acquire()
        # First in the row, then a look: who opens it does both the other way round.
        self._waiting.append(lock)
        try:
            if not self._open:
                if timeout is None:
                    lock.acquire()
                elif timeout > 0:
                    lock.acquire(True, min(timeout, threading.TIMEOUT_MAX))
        finally:
            try:
                self._waiting.remove(lock)
            except ValueError:
                pass  # it was released
        return self._open

    def _poll(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self._open and (end is None or time.monotonic() < end):
            time.sleep(_POLL_SECONDS)
        return self._open
