"""Messages from any thread to the thread that handles them, in order."""

from __future__ import annotations

from collections import deque
from functools import partial
from operator import call
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

M = TypeVar("M")


class Inbox(Generic[M]):
    """A message stays first until it is handled, so that whoever finds the inbox empty knows that
    all messages so far have had their effect."""

    def __init__(self) -> None:
        self._messages: deque[M] = deque()
        self._awake: SimpleQueue[None] = SimpleQueue()
        self._wake = partial(self._awake.put, None)

    def put(self, message: M) -> None:
        """Append a message. One call into C, which no signal handler can split."""
        any(map(call, (partial(self._messages.append, message), self._wake)))

    def empty(self) -> bool:
        """Whether all messages so far were handled."""
        return not self._messages

    def first(self) -> M | None:
        """The message to be handled next; None if there is none."""
        try:
            return self._messages[0]
        except IndexError:
            return None

    def remove_first(self) -> None:
        """It was handled."""
        self._messages.popleft()

    def wait(self, seconds: float) -> bool:
        """Wait for a message for at most that long; False: none was put meanwhile."""
        try:
            self._awake.get(timeout=seconds)
        except Empty:
            return False
        while not self._awake.empty():
            try:
                self._awake.get_nowait()
            except Empty:
                break
        return True
