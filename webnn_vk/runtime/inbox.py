"""Messages from any thread to the thread that handles them, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import chain
from operator import call
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

M = TypeVar("M")


class Inbox(Generic[M]):
    """A message stays first until it is handled: if the inbox is empty, all messages so far have
    had their effect."""

    def __init__(self) -> None:
        self._messages: deque[M] = deque()
        self._awake: SimpleQueue[None] = SimpleQueue()
        # The function that wakes the thread that waits, while it does.
        self._waiting: deque[Callable[[], None]] = deque()

    def put(self, message: M) -> None:
        """Append a message. One call into C, which no signal handler can split."""
        any(map(call, chain((partial(self._messages.append, message),), self._waiting)))

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
        """Wait until there is a message, for at most that long; False: none came. For one thread at
        a time."""
        self._waiting.append(partial(self._awake.put, None))
        try:
            if not self._messages:  # in this order: see ``put``
                self._awake.get(timeout=seconds)
            return True
        except Empty:
            return False
        finally:
            self._waiting.clear()
            while not self._awake.empty():
                self._awake.get()
