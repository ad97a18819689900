"""The order of work on one device: of a context's own, or of a GPUDevice and its contexts.

Calls put small records into an inbox and return. A thread starts them on the device in batches (one
submit for all that is waiting), a second one waits for their ends and resolves promises. At most
``schedule.MAX_IN_FLIGHT`` batches are on the device; records beyond them wait in the queue, where
the next batch takes them together. What the host has to do in between (CPU steps of a graph, waits
for another timeline) runs on a thread of its lane's own where there are other lanes, which go on.

A call changes nothing but the inbox, by one call into C: a signal handler may interrupt it
anywhere, raise, or call in itself. The schedule belongs to whichever of the library's threads has
the turn: the starting thread keeps it while it waits for messages, and while that one is busy on
the device, who has put a message that matters (a batch is over, the end) takes it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from .. import background, forks
from ..errors import InvalidStateError
from ..gate import Gate
from .device import Batch, Device
from .inbox import Departure, Message, Question
from .lane import Fence, Lane
from .observer import Observer
from .pace import Span, pace_of
from .schedule import Follow, PlannedBatch, Schedule
from .staging import Staging
from .storage import DeviceLostError
from .work import Work

T = TypeVar("T")

FORKED = "this context was made before a fork; make a new one in the child process"
FORKED_ON_VULKAN = (
    "this context was made before a fork, which Vulkan devices don't survive; make one on the CPU "
    f"device in the child process, or {forks.SPAWN}"
)
#: After so many seconds without a call the device may give back what nobody uses any more.
QUIET_SECONDS = 0.5
_live: set[Timeline] = set()
forks.renew(globals(), _live=set)


class _Call:
    """A call on the device under way (see ``Timeline.building``)."""


class Timeline:
    """Orders work on ``device``; released by the last of its users (lanes, views of tensors)."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pid = os.getpid()
        self._on_lost: dict[int, Callable[[str], None]] = {}
        self._users = itertools.count(1)
        self._calls: set[weakref.ref[_Call]] = set()
        self._departures: set[Departure] = set()
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        #: The data that waits for the device.
        self.staging = Staging(lambda: self._end)
        #: Who looks on; None: nobody.
        self.observer: Observer | None = None
        #: Batches handed to the device so far.
        self.submits = 0
        # -- what belongs to who has the turn, a thread of the library's own
        self._turn = threading.Lock()
        self._turn_of: int | None = None
        self._schedule = Schedule(pace_of(device.profile))
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        self._fences: dict[Lane, deque[Fence]] = {}
        self._end: str | None = None
        self._lost = False
        # How often an update of all this has failed midway.
        self._breaks = 0
        self._closing = False
        # -- the ends
        self._claims: dict[str, object] = {}
        self._closed = Gate()
        # What the device has been given, with its part of the schedule; a gate to be opened when
        # all before it is over; None at the end.
        self._in_flight: SimpleQueue[tuple[Batch, PlannedBatch, Span] | Gate | None] = SimpleQueue()
        # The span of the one that ended last; the finishing thread's.
        self._last: Span | None = None
        # Threads that lanes have work on the host on.
        self._hosts: set[threading.Thread] = set()
        device.settle = self._settle
        self._threads = [
            background.TimelineThread(target=target, name=f"webnn_vk-{name}", daemon=True)
            for target, name in ((self._start_batches, "submit"), (self._finish_batches, "finish"))
        ]
        self._start_threads()
        _live.add(self)
        background.watch_exit()

    def _start_threads(self) -> None:
        """Both or none; OperationError where the system has no thread left. The device is closed
        then: there is nothing that would."""
        started = []
        try:
            for thread in self._threads:
                thread.start()
                started.append(thread)
        except BaseException as error:
            self._closing = True
            self._inbox.put(_nothing)
            self._in_flight.put(None)
            for thread in started:
                thread.join()
            self.device.close()
            if isinstance(error, RuntimeError):
                raise background.no_threads(error) from error
            raise

    # -- users ---------------------------------------------------------------------------------
    def lane(self, on_lost: Callable[[str], None] = lambda message: None) -> Lane:
        """A strict order of work of the caller's own, who is a user from now on."""
        lane = Lane(self, self.join(on_lost))

        def enter() -> None:
            self._schedule.lanes += 1
            self._lanes.add(lane)

        background.shielded(self._ask, enter)
        return lane

    def join(self, on_lost: Callable[[str], None]) -> int:
        """One more user, told when the device is lost; the number that ``leave`` takes."""
        user = next(self._users)
        self._on_lost[user] = on_lost
        return user

    def leave(self, user: int) -> None:
        """One user less; the last one closes the timeline. Calling it again does nothing."""
        if self.forked:
            return
        self._on_lost.pop(user, None)
        if not self._on_lost:
            self.close()

    def close_unused(self) -> None:
        """Close it when nobody has come to use it."""
        if not self._on_lost:
            self.close()

    def watch(self, owner: Any, user: int) -> None:
        """``leave`` in the background when ``owner`` is collected."""
        departure = Departure(owner, self._inbox.put)
        departure.user = user
        self._departures.add(departure)

    @contextmanager
    def building(self) -> Iterator[None]:
        """While inside, the device stays: closing waits for the calls that use it elsewhere."""
        self.check_fork()
        call = _Call()
        # It goes with its object: also when an interrupt comes before the block below.
        self._calls.add(weakref.ref(call, self._calls.discard))
        if self._end is not None:
            raise InvalidStateError(self._end)
        try:
            yield
        finally:
            del call

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the timeline."""
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """InvalidStateError in a forked child: neither threads nor devices survive a fork."""
        if os.getpid() != self._pid:
            raise InvalidStateError(FORKED_ON_VULKAN if self.device.profile else FORKED)

    # -- calls from any thread -----------------------------------------------------------------
    def put(self, message: tuple[Lane, Any]) -> None:
        """Queue work or a fence on a lane."""
        self.check_fork()
        if self.observer is not None:
            self.observer.queued(message[1])
        # One step: nothing of it happens, or all.
        self._inbox.put(message)
        if self._end is not None:
            # Maybe nobody listens any more.
            background.shielded(self._process)

    def catch_up(self) -> None:
        """Wait until all calls so far have their places, which takes no device."""
        self.check_fork()
        background.shielded(self._ask, _nothing)

    def completed(self, lane: Lane) -> int:
        """See ``Lane.completed``."""
        self.check_fork()
        return background.shielded(self._ask, partial(self._completed, lane))

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return background.shielded(self._ask, lambda: self._schedule.at_rest)

    def end(self, reason: str) -> None:
        """Take no more work; what waits fails with InvalidStateError, what runs goes on."""
        background.shielded(self._end_with, reason)

    def lose(self, message: str) -> None:
        """The device is lost: end, and tell the users, each once."""
        background.shielded(self._lose, message)

    def close(self, seconds: float | None = None) -> None:
        """End, let what is on the device finish (for at most so long), and release the device."""
        if self.forked:
            return
        if background.on_timeline():
            # The last reference went away on a thread of ours: another one has to wait.
            background.eventually(self.close, "close", seconds)
            return
        background.shielded(self._close, seconds)

    # -- ends: on the library's threads ----------------------------------------------------------
    def _end_with(self, reason: str) -> None:
        def drop() -> list[Work | Follow]:
            if self._end is not None:
                return []
            self._end = reason
            return self._schedule.drop()

        for work in self._ask(drop):
            work.fail(InvalidStateError(reason))
        self.staging.wake()

    def _lose(self, message: str) -> None:
        def mark() -> None:
            for lane in self._lanes:
                self._completed(lane)  # from now on no more is over
            self._lost = True

        self._ask(mark)
        self._end_with(f"the context is lost: {message}")
        if not self._claim("loss"):
            return
        for on_lost in list(self._on_lost.values()):
            on_lost(message)

    def _close(self, seconds: float | None) -> None:
        limit = None if seconds is None else time.monotonic() + seconds

        def left() -> float | None:
            return None if limit is None else max(limit - time.monotonic(), 0)

        self._end_with("the context was closed")
        if not self._claim("close"):
            self._closed.wait(left())
            return

        def close() -> None:
            self._closing = True

        self._ask(close)
        starting, finishing = self._threads
        starting.join(left())
        for thread in self._hosts.copy():
            thread.join(left())
        if starting.is_alive() or any(thread.is_alive() for thread in self._hosts.copy()):
            return
        self._in_flight.put(None)
        finishing.join(left())
        while self._calls and (limit is None or time.monotonic() < limit):
            time.sleep(0.001)
        if not self._calls and not finishing.is_alive():
            try:
                self.device.close()
            finally:
                _live.discard(self)
                self._closed.set()

    def _claim(self, what: str) -> bool:
        """Whether the caller is the first to want it."""
        claim = object()
        return self._claims.setdefault(what, claim) is claim

    # -- the turn ------------------------------------------------------------------------------
    def _ask(self, function: Callable[[], T]) -> T:
        """What ``function`` returns, called by who has the turn. Not for the main thread."""
        if self._turn_of == threading.get_ident():
            # A destructor that the collector runs amid an update.
            raise InvalidStateError("a destructor on the timeline can't wait for the timeline")
        question, breaks = Question(function), self._breaks
        self._inbox.put(question)
        while True:
            self._process()
            if question.answered.wait(0.01):
                if question.error is not None:
                    raise question.error
                answer: T = question.answer
                return answer
            if breaks != self._breaks:
                raise InvalidStateError(self._end or "the timeline failed")

    def _process(self) -> None:
        """Take what has come in, unless another thread does so now. Not for the main thread."""
        while not self._inbox.empty() and self._turn.acquire(blocking=False):
            self._turn_of = threading.get_ident()
            failed, effects = None, []
            try:
                effects = self._take_in()
            except BaseException as error:
                failed = error
            finally:
                self._turn_of = None
                self._turn.release()
            if failed is not None:
                self._break(failed)
            _call(effects)
            # Once more: who failed to get the turn relies on who had it.

    def _take_in(self, message: Message | None = None) -> list[Callable[[], Any]]:
        """Bring the schedule up to date with ``message`` and all that came after it; what has to be
        called then, without the turn."""
        effects: list[Callable[[], Any]] = []
        while True:
            if message is None:
                try:
                    message = self._inbox.get_nowait()
                except Empty:
                    break
            if type(message) is tuple:
                lane, what = message
                if type(what) is Fence:
                    # After the end one more, which is never over.
                    what.place(self._schedule.queued + (self._end is not None))
                    self._fences.setdefault(lane, deque()).append(what)
                elif self._end is None:
                    self._schedule.append(lane, what)
                else:
                    error = InvalidStateError(self._end)
                    effects += [partial(work.fail, error) for work in what]
            elif type(message) is Departure:
                self._departures.discard(message)
                effects.append(partial(background.eventually, self.leave, "close", message.user))
            else:
                message()
            message = None
        if self._fences:
            self._reach_fences()
        return effects

    def _reach_fences(self) -> None:
        for lane, fences in list(self._fences.items()):
            reached = self._completed(lane)
            while fences and fences[0].value <= reached:
                fences[0].reach()  # it stays there if that fails
                fences.popleft()
            if fences and self._end is not None and self._schedule.at_rest:
                for fence in fences:
                    fence.reach(InvalidStateError(self._end))
                fences.clear()
            if not fences:
                del self._fences[lane]

    def _completed(self, lane: Lane) -> int:
        # What was on a device that is lost is not over.
        return lane.reached if self._lost else self._schedule.completed(lane)

    # -- the two threads, and those of work on the host ----------------------------------------
    def _start_batches(self) -> None:
        while not (self._closing or self.forked):
            try:
                self._start_next()
            except BaseException as error:
                self._break(error)

    def _start_next(self) -> None:
        planned, effects = self._next()
        _call(effects)
        if planned is not None:
            if planned.lane is None:
                self._start(planned)
            else:
                self._start_on_host(planned)
        del planned, effects
        self._process()

    def _break(self, error: BaseException) -> None:
        """An update failed midway, for want of memory or by a defect, and nothing can be said of
        what is queued: the context is lost, with the reason. Without the turn."""
        self._breaks += 1
        reason = f"the order of work failed with {type(error).__name__}: {error}"
        for last in (False, True):
            try:
                self._lose(reason)
                self._ask(self._schedule.abandon)
                return
            except Exception:
                if last:
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))

    def _next(self) -> tuple[PlannedBatch | None, list[Callable[[], Any]]]:
        """The next batch, when there is one; what has to be called before it."""
        with self._turn:
            self._turn_of = threading.get_ident()
            try:
                effects = self._take_in()
                while not effects and not self._closing:
                    planned = self._schedule.next()
                    if planned is not None:
                        return planned, effects
                    if self._fences:
                        self._reach_fences()  # what only orders is over when it has its place
                    try:
                        message = self._inbox.get(timeout=QUIET_SECONDS)
                    except Empty:
                        effects.append(self._rest)
                    else:
                        effects = self._take_in(message)
                        del message
                return None, effects
            finally:
                self._turn_of = None

    def _start_on_host(self, planned: PlannedBatch) -> None:
        """Have a lane's own thread start a batch: it takes a while on the host."""

        def run() -> None:
            try:
                self._start(planned)
            finally:
                self._hosts.discard(thread)

        thread = background.TimelineThread(target=run, name="webnn_vk-host", daemon=True)
        self._hosts.add(thread)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread left. Late for the other lanes, but in order.
            self._hosts.discard(thread)
            self._start(planned)

    def _start(self, planned: PlannedBatch) -> None:
        works, planned.works = planned.works, []
        batch, span = Batch(works), Span()
        try:
            batch = self.device.execute(works)
        except DeviceLostError as error:
            self._lost_with(batch, error)
        except Exception as error:  # a defect must not stop the thread: the work fails
            batch.failed = True
            for work in works:
                work.fail(error)
                del work
        # From here on only the batch holds its works: they are gone when it is over.
        del works
        if batch.value is None:
            span.end()
        self._inbox.put(partial(self._started, planned, batch.value is not None))
        self._in_flight.put((batch, planned, span))
        del batch
        self._process()

    def _started(self, planned: PlannedBatch, submitted: bool) -> None:
        self.submits += submitted
        if planned.lane is not None:
            self._schedule.host_done(planned)

    def _finish_batches(self) -> None:
        # A callback may have forked: in the child this thread has nothing more to do.
        while not self.forked:
            item = self._in_flight.get()
            if item is None:
                return
            try:
                if isinstance(item, Gate):
                    item.set()
                else:
                    batch, planned, span = item
                    del item
                    self._finish(batch, planned, span)
                    del batch, planned
            except BaseException as error:
                item = batch = planned = None
                self._break(error)

    def _finish(self, batch: Batch, planned: PlannedBatch, span: Span) -> None:
        try:
            span.wait(partial(self.device.wait, batch), self._last)
        except DeviceLostError as error:
            self._lost_with(batch, error)
        except Exception as error:
            for work in batch.works:
                work.fail(error)
                del work
            batch.completions.clear()
            batch.failed = True
        self._last = span
        batch.complete()
        if self.forked:
            return
        # The batch's memory is free before anyone can see its end.
        batch.works = ()
        self.staging.wake()
        self._inbox.put(
            partial(self._schedule.over, planned, None if batch.failed else span.taken)
        )
        self._process()

    def _lost_with(self, batch: Batch, error: DeviceLostError) -> None:
        batch.failed = True
        batch.completions.clear()
        for work in batch.works:
            work.fail(InvalidStateError(f"the context is lost: {error}"))
        batch.works = ()
        self.lose(str(error))

    def _rest(self) -> None:
        try:
            self.device.rest()
        except DeviceLostError as error:
            self.lose(str(error))

    def _settle(self) -> None:
        """Wait, on a thread that starts batches, until those on the device are over."""
        over = Gate()
        self._in_flight.put(over)
        over.wait()


def _nothing() -> None:
    pass


def _call(effects: list[Callable[[], Any]]) -> None:
    while effects:
        effect = effects.pop(0)
        try:
            effect()
        except BaseException:
            # A defect must not stop the thread.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))


def _close_all(seconds: float) -> None:
    end = time.monotonic() + seconds
    # First none of them submits any more: they share the device, or the cores.
    for timeline in _live.copy():
        if not timeline.forked:
            timeline.end("the context was closed")
    for timeline in _live.copy():
        timeline.close(max(end - time.monotonic(), 0))


background.closers.append(_close_all)
