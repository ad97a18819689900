"""Submits by the calling thread, without a lock.

Signal handlers run in the main thread between any two steps of Python code, may raise, and may make
calls themselves. So the main thread must neither hold a lock nor change in several steps what
others read. A `Turn` is a place in the order of submissions, with the timeline value that its
submit signals. A thread takes its token and submits in one call into C: afterwards either nothing
has happened, or the turn holds the result, whatever happens to that thread. The next turn is made
when a thread asks for it.

There are turns between `Turns.open` and `Turns.close`, which the driver calls with its lock held;
its other submits close them meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import call
from typing import Any


class Turn:
    """One submission. `value`: what it signals; `number`: how many turns came before it."""

    __slots__ = ("_following", "_results", "_token", "number", "value")

    def __init__(self, value: int, number: int) -> None:
        self.value, self.number = value, number
        self._token = deque((None,))
        # Of the calls of the submit, beginning with the token; the last is the submit's result.
        self._results: deque[Any] = deque()
        # The turn after it, or `_END`: the first one stored here.
        self._following: dict[int, Turn] = {}

    def take(self, calls: Sequence[Callable[[], Any]]) -> int | None:
        """Calls functions of C, of which only the last returns a number, the VkResult of the
        submit, which is returned. None, and nothing was called, if another thread has the turn."""
        try:
            # One call into C: no Python code runs in between.
            self._results.extend(map(call, (self._token.popleft, *calls)))
        except IndexError as error:
            traceback = error.__traceback__
            if traceback is not None and traceback.tb_next is not None:
                raise  # from Python code, which is a signal handler's
            return None
        result: int = self._results[-1]
        return result

    @property
    def result(self) -> int | None:
        """The result of the submit; None while there is none."""
        results = self._results
        return results[-1] if results and type(results[-1]) is int else None

    @property
    def submitted(self) -> int:
        """The value of the last submission, once the turn has a result."""
        return self.value - ((self.result or 0) < 0)

    def after(self, following: Turn | None = None) -> Turn:
        """The next turn, which is made now, or `following`, if none was yet; the submit is over."""
        if (known := self._following.get(0)) is not None:
            return known
        if following is None:
            following = Turn(self.submitted + 1, self.number + 1)
        return self._following.setdefault(0, following)

    def end(self) -> bool:
        """Close it; whether no thread had taken it."""
        try:
            self._token.popleft()
        except IndexError:
            while self._results and self.result is None:
                time.sleep(0)  # another thread's call into C
            return self.result is None
        return True


# No thread can take it.
_END = Turn(0, 0)
_END.end()


class Turns:
    """The turns of one driver."""

    def __init__(self) -> None:
        # A list of the last turn that a caller saw, while there are turns.
        self._line: list[Turn] | None = None
        #: How many were taken until they were closed last.
        self.taken = 0

    def next(self) -> Turn | None:
        """The turn to take; None if there is none now."""
        line = self._line
        if line is None:
            return None
        turn = line[0]
        while turn.result is not None:
            turn = line[0] = turn.after()
        return None if turn is _END else turn

    def open(self, submitted: int) -> None:
        """`submitted`: the value of the last submission."""
        self._line = [Turn(submitted + 1, self.taken)]

    def close(self) -> int | None:
        """No turn can be taken any more. The value of the last submission; None if there were no
        turns."""
        line, self._line = self._line, None
        if line is None:
            return None
        turn = line[0]
        while not turn.end():
            before, turn = turn, turn.after(_END)
            if turn is _END:
                self.taken = before.number + 1
                return before.submitted
        self.taken = turn.number
        return turn.value - 1
