"""Runs of graphs that their caller submits and waits for itself, because nothing else is queued or
running: no other thread has to wake.

Between ``open`` and ``close``, which the holder of the scheduler lock calls, any thread may submit,
without a lock (``driver.direct`` says how). A message stays in the inbox until direct runs are
closed; so a caller that finds the inbox empty comes after all calls that have returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from webnn_vk.driver import DeviceLost

from .inbox import Inbox
from .schedule import SHORT_SECONDS, Schedule
from .storage import DeviceLostError, Storage


class DirectRuns:
    """The direct runs on one device; ``submits`` is the driver's facet, or None."""

    def __init__(self, submits: Any, schedule: Schedule, inbox: Inbox[Any]) -> None:
        self.submits = submits
        self._schedule, self._inbox = schedule, inbox
        # -- of the lock's holder
        # The last submission before them, while they are open.
        self._opened: int | None = None
        #: Called with the last one's value if it is not over when they are closed.
        self.adopt: Callable[[int], Any] = lambda value: None
        # -- of callers
        # The records of work before them, and the submission that this counts from.
        self._counted: tuple[int, int] | None = None

    # -- for the holder of the scheduler lock ----------------------------------------------------
    def open(self) -> None:
        """Allow them if nothing is queued or running."""
        if self.submits is None or self._opened is not None:
            return
        if self._schedule.at_rest and self._inbox.empty():
            self._opened = self.submits.open()
            self._counted = self._schedule.queued, self._opened

    def close(self) -> None:
        """No more of them; those that are running become a batch of the schedule."""
        if self._opened is None:
            return
        opened, self._opened = self._opened, None
        self._counted = None
        last = self.submits.close()
        self._schedule.queued += last - opened
        if last > opened:
            self.adopt(last)

    # -- for callers -----------------------------------------------------------------------------
    def prepared(
        self, executable: Any, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> Any:
        """A run on these storages (``DriverExecutable.take_direct``), if it can be direct: it has
        run before, and doesn't take long. None otherwise."""
        if self.submits is None or self.submits.turn() is None:
            return None
        seconds = executable.cost.seconds
        if seconds is None or seconds >= SHORT_SECONDS:
            return None
        return executable.take_direct(inputs, outputs)

    def submit(self, prepared: Any) -> int | None:
        """Submit a run; the value that marks its end. None: other work is queued or running.
        DeviceLostError."""
        turn = self.submits.turn()
        # In this order: see above.
        if turn is None or not self._inbox.empty():
            return None
        try:
            if self.submits.over(turn.value - 1) and self.submits.submit(turn, prepared[1]):
                value: int = turn.value
                return value
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
        return None

    def fence(self) -> tuple[int, int] | None:
        """The value that marks the end of all work so far, and the number of its records; None if
        other work is queued or running."""
        if (counted := self._counted) is None:
            return None
        turn = self.submits.turn()
        if turn is None or not self._inbox.empty() or self._counted is not counted:
            return None
        last, (records, opened) = turn.value - 1, counted
        return last, records + last - opened

    def over(self, value: int) -> bool:
        """Whether the run is over. DeviceLostError."""
        try:
            over: bool = self.submits.over(value)
            return over
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Wait for its end for at most that many seconds; whether it came. DeviceLostError."""
        try:
            over: bool = self.submits.wait(value, timeout)
            return over
        except DeviceLost as error:
            raise DeviceLostError(str(error)) from error
