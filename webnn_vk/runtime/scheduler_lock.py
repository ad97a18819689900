"""A timeline's schedule and its lock: messages come from any thread; one thread at a time handles
them.

A call changes only the inbox, by one call into C: a signal handler may interrupt it anywhere,
raise, or make calls itself. The schedule belongs to the library thread that holds the lock. The
starting thread keeps it while it waits for messages (``next``). While that thread is busy on the
device, a thread that puts an important message (a batch is over, the end) takes the lock
(``process``).
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Event

from .direct import DirectWork
from .inbox import Inbox
from .schedule import Follow, PlannedBatch, Schedule
from .stream import Fence, Stream
from .work import Work

T = TypeVar("T")

#: After this many seconds without a message, direct work is possible in any case.
_PAUSE = 0.001

#: Types of messages: work or a fence on a stream, or a call for the holder of the scheduler lock.
Message = tuple[Stream, "tuple[Work | Follow, ...] | Fence"] | Callable[[], Any]

#: Functions to call after an update, without the scheduler lock.
Effects = list[Callable[[], Any]]


class Request:
    """A call made by the holder of the scheduler lock, for a thread that waits for the answer."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.answer: Any = None
        self.error: Exception | None = None
        self.answered = Event()

    def __call__(self) -> None:
        try:
            self.answer = self._function()
        except Exception as error:
            self.error = error
        self.answered.set()


class SchedulerLock:
    """See the module's docstring.

    broken: called, without the lock, when an update failed midway. direct: makes the direct work
    that an inbox closes.
    """

    def __init__(
        self, schedule: Schedule, broken: Callable[[BaseException], None],
        direct: Callable[[Inbox[Message]], DirectWork],
    ) -> None:
        self._broken = broken
        #: Messages from any thread.
        self.inbox: Inbox[Message] = Inbox()
        #: How many updates have failed midway.
        self.breaks = 0
        #: No more is started.
        self.closing = False
        #: Why no more work is accepted; None while it is.
        self.end: str | None = None
        self._lock = threading.Lock()
        self._holder: int | None = None
        # -- state of the lock's holder
        self.schedule = schedule
        #: Work of callers that is not in the schedule.
        self.direct = direct(self.inbox)
        # The message that is being handled.
        self._message: Message | None = None
        # Messages whose updates failed. They are handled again after the end, which tells their
        # senders.
        self._failed: list[Message] = []
        self._lost = False
        self._fences: dict[Stream, deque[Fence]] = {}

    # -- on the library's threads ----------------------------------------------------------------
    def ask(self, function: Callable[[], T]) -> T:
        """``function()``, called by the holder of the lock. Not for the main thread."""
        if self._holder == threading.get_ident():
            # Called in a destructor that the collector runs during an update.
            raise InvalidStateError("a destructor on the timeline can't wait for the timeline")
        request, breaks = Request(function), self.breaks
        self.inbox.put(request)
        while True:
            self.process()
            if request.answered.wait(0.01):
                if request.error is not None:
                    raise request.error
                answer: T = request.answer
                return answer
            if breaks != self.breaks:
                raise InvalidStateError(self.end or "the timeline failed")

    def process(self) -> None:
        """Handle new messages, unless another thread is doing so. Not for the main thread."""
        while not self.inbox.empty() and self._lock.acquire(blocking=False):
            self._holder = threading.get_ident()
            failed, effects = None, []
            try:
                effects = self._take_in()
            except BaseException as error:
                failed = error
                self._put_aside(error)
            finally:
                self._holder = None
                self._lock.release()
            if failed is not None:
                self._broken(failed)
            call(effects)
            # Once more: a thread that failed to get the lock relies on the thread that had it.

    def close(self) -> None:
        """Start no more."""
        self.closing = True
        self.inbox.put(nothing)

    def next(
        self, seconds: float, quiet: Callable[[], Any]
    ) -> tuple[PlannedBatch | None, Effects]:
        """The next batch, if there is one, with the functions to call before it. ``quiet`` is
        called after this many seconds without messages and direct work. The thread that starts
        batches holds the lock meanwhile."""
        with self._lock:
            self._holder = threading.get_ident()
            try:
                effects = self._take_in()
                while not effects and not self.closing:
                    planned = self.schedule.next(bool(self._fences))
                    if planned is not None:
                        return planned, effects
                    if self._fences:
                        self._reach_fences()  # a fence is over when it has its place
                    if self.end is None and not self._fences:
                        if not self.direct.pays() and self.inbox.wait(_PAUSE):
                            effects = self._take_in()
                            continue
                        self.direct.open()
                    if self.inbox.wait(seconds):
                        effects = self._take_in()
                    elif self.direct.quiet():
                        effects.append(quiet)
                return None, effects
            except BaseException as error:
                self._put_aside(error)
                raise
            finally:
                self._holder = None

    # -- with the lock, as messages ----------------------------------------------------------------
    def enter(self) -> None:
        """One more stream."""
        self.schedule.streams += 1

    def drop(self, reason: str, lost: bool) -> list[Work | Follow]:
        """Accept no more work; waiting work is returned, for the caller to fail. Empty the second
        time. ``lost``: from now on no more work is over."""
        if lost:
            self._reach_fences()
            self._lost = True
        first, self.end = self.end is None, self.end or reason
        while self._failed:
            self.inbox.put(self._failed.pop())
        return self.schedule.drop() if first else []

    def await_direct(self, stream: Stream, fence: Fence) -> None:
        """A fence among direct runs, which has its place."""
        self._fences.setdefault(stream, deque()).append(fence)

    # -- updates -----------------------------------------------------------------------------------
    def _take_in(self) -> Effects:
        """Update the schedule with all messages."""
        effects: Effects = []
        while (message := self.inbox.first()) is not None:
            self._message = message
            self.direct.close()
            if type(message) is tuple:
                stream, what = message
                if type(what) is Fence:
                    # After the end there is one more record, which is never over.
                    what.place(self.schedule.queued + (self.end is not None))
                    self._fences.setdefault(stream, deque()).append(what)
                elif self.end is None:
                    self.schedule.append(stream, what)
                else:
                    error = InvalidStateError(self.end)
                    effects += [partial(work.fail, error) for work in what]
            else:
                message()
            # Not before its effect, and not kept until the next one comes.
            self.inbox.remove_first()
            self._message = message = None
        if self._fences:
            self._reach_fences()
        return effects

    def _put_aside(self, error: BaseException) -> None:
        """Keep the message whose update failed, unless that was a defect after the end."""
        message, self._message = self._message, None
        if message is None:
            return
        self.inbox.remove_first()
        if type(message) is tuple and (self.end is None or isinstance(error, MemoryError)):
            self._failed.append(message)

    def _reach_fences(self) -> None:
        for stream, fences in list(self._fences.items()):
            reached = self.schedule.completed(stream) if not self._lost else -1
            while fences and fences[0].value <= reached:
                fences[0].reach()  # it stays there if that fails
                fences.popleft()
            if fences and self.end is not None and self.schedule.at_rest:
                for fence in fences:
                    fence.reach(InvalidStateError(self.end))
                fences.clear()
            if not fences:
                del self._fences[stream]


def nothing() -> None:
    """A message that only has the inbox handled."""


def call(effects: Effects) -> None:
    """Call them all; an exception in one must not stop the thread."""
    while effects:
        effect = effects.pop(0)
        try:
            effect()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
