"""The order of work on one device: a context's own device, or one of a GPUDevice and its contexts.

Calls put small records into an inbox and return. A thread starts them on the device in batches (one
submit for all waiting records), a second one waits for their ends and resolves promises. The first
does both for a short batch that a caller waits for, if there is no other work. At most
``schedule.MAX_IN_FLIGHT`` batches are on the device; further records wait in the queue, where the
next batch takes them together. Work for the host in between (CPU steps of a graph, waits for
another timeline) runs on a separate thread per stream if there are other streams, which go on.

Calls may come from anywhere, signal handlers included; ``scheduler_lock`` explains how, and which
thread holds the schedule when.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any

from webnn_vk.support import background, forks
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Event

from .device import Batch, Device
from .direct import POLL_SECONDS, DirectWork
from .observer import Observer
from .schedule import PlannedBatch, Schedule
from .scheduler_lock import SchedulerLock, call, nothing
from .staging import Staging
from .storage import DeviceLostError
from .stream import Fence, Stream
from .throttle import Span, throttle_of

FORKED = "this context was made before a fork; make a new one in the child process"
FORKED_ON_VULKAN = (
    "this context was made before a fork, which Vulkan devices don't survive; make one on the CPU "
    f"device in the child process, or {forks.SPAWN}"
)
#: After this many seconds without a call the device may free unused memory.
QUIET_SECONDS = 0.5
_live: set[Timeline] = set()
forks.renew(globals(), _live=set)


class _RunningCall:
    """A running call on the device (see ``Timeline.building``)."""


class Timeline:
    """Orders work on ``device``; released by the last of its users (streams, views of tensors)."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._pid = os.getpid()
        self._on_lost: dict[int, Callable[[str], None]] = {}
        self._users = itertools.count(1)
        self._calls: set[weakref.ref[_RunningCall]] = set()
        schedule = Schedule(throttle_of(device.profile))
        self._scheduler = SchedulerLock(
            schedule, self._break,
            lambda inbox: DirectWork(device, schedule, inbox, self.call, self.lose, self._adopt),
        )
        #: Work that callers start themselves.
        self.direct = self._scheduler.direct
        #: The data that waits for the device.
        self.staging = Staging(lambda: self._scheduler.end)
        #: Observes the work; None: no observer.
        self.observer: Observer | None = None
        # -- the ends
        self._claims: dict[str, object] = {}
        self._closed = Event()
        # Work that the device has been given, with its part of the schedule; an event to set when
        # all work before it is over; None at the end.
        self._in_flight: SimpleQueue[tuple[Batch, PlannedBatch, Span] | Event | None]
        self._in_flight = SimpleQueue()
        # Whether the device computes on the host's cores. Then the thread that starts a batch alone
        # also finishes it, as waking the other one would take time from the kernels. On other
        # devices it does so if the batch ends soon.
        self._shares_cores = device.profile is None or device.profile.device_type == "cpu"
        # The span of the batch that ended last; used by the thread that finishes batches.
        self._last: Span | None = None
        # Threads on which streams have work on the host.
        self._hosts: set[threading.Thread] = set()
        device.wait_idle = self._wait_idle
        self._threads = [
            background.TimelineThread(target=target, name=f"webnn_vk-{name}", daemon=True)
            for target, name in ((self._start_batches, "submit"), (self._finish_batches, "finish"))
        ]
        self._start_threads()
        _live.add(self)
        background.register_exit()

    def _start_threads(self) -> None:
        """Starts both or none; OperationError if the system has no thread left. Then the device is
        closed, as nothing else would close it."""
        started = []
        try:
            for thread in self._threads:
                thread.start()
                started.append(thread)
        except BaseException as error:
            self._scheduler.close()
            self._in_flight.put(None)
            for thread in started:
                thread.join()
            self.device.close()
            if isinstance(error, RuntimeError):
                raise background.no_threads(error) from error
            raise

    # -- users ---------------------------------------------------------------------------------
    def stream(self, on_lost: Callable[[str], None] | None = None) -> Stream:
        """A new strict order of work, which is a user. ``on_lost``: a method to call when the
        device is lost; once the method's object is collected, the stream leaves after its
        work, in the background."""
        method = None if on_lost is None else weakref.WeakMethod(on_lost)

        def lost(message: str) -> None:
            if method is not None and (alive := method()) is not None:
                alive(message)

        stream = Stream(self, self.join(lost))
        self._scheduler.inbox.put(self._scheduler.enter)
        if on_lost is not None:
            gone_with = on_lost.__self__  # type: ignore[attr-defined]
            background.when_gone(gone_with, stream.leave_after_work)
        return stream

    def join(self, on_lost: Callable[[str], None]) -> int:
        """Adds a user, which is notified when the device is lost; returns the number that ``leave``
        takes."""
        user = next(self._users)
        self._on_lost[user] = on_lost
        return user

    def leave(self, user: int) -> None:
        """Removes a user; the last one closes the timeline. Calling it again does nothing."""
        if self.forked:
            return
        self._on_lost.pop(user, None)
        self.close_unused()

    def close_unused(self) -> None:
        """Close it if it is unused."""
        if not self._on_lost:
            self.close()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Inside the block the device stays open: closing waits for calls that use it on other
        threads."""
        self.check_fork()
        call = self.call()
        try:
            if self._scheduler.end is not None:
                raise InvalidStateError(self._scheduler.end)
            yield
        finally:
            # A caller may keep the error, whose traceback has this frame.
            del call

    def call(self) -> object:
        """As long as this object lives, the device stays open, unless it is closed already."""
        call = _RunningCall()
        self._calls.add(weakref.ref(call, self._calls.discard))
        return call

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or running now, nor observed. InvalidStateError if the device
        is lost."""
        return self.observer is None and self.direct.idle

    @property
    def ended(self) -> bool:
        """Whether no more work is accepted."""
        return self._scheduler.end is not None

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the timeline."""
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """InvalidStateError in a forked child: neither threads nor devices survive a fork."""
        if os.getpid() != self._pid:
            raise InvalidStateError(FORKED_ON_VULKAN if self.device.profile else FORKED)

    # -- calls from any thread -----------------------------------------------------------------
    def put(self, message: tuple[Stream, Any]) -> None:
        """Queue work or a fence on a stream."""
        self.check_fork()
        if self.observer is not None:
            self.observer.queued(message[1])
        # One step: either nothing of it happens, or all.
        self._scheduler.inbox.put(message)
        if self._scheduler.end is not None:
            # The receiver may be gone.
            background.run_on_worker(self._scheduler.process)

    def await_direct(self, stream: Stream, fence: Fence) -> None:
        """From now on the timeline tells the fence of its end."""
        message = partial(self._scheduler.await_direct, stream, fence)
        background.run_on_worker(self._scheduler.ask, message)

    def catch_up(self) -> None:
        """Wait until all calls so far have their places, which does not involve the device."""
        self.check_fork()
        background.run_on_worker(self._scheduler.ask, nothing)

    def end(self, reason: str) -> None:
        """Accept no more work; waiting work fails with InvalidStateError, running work goes on."""
        background.run_on_worker(self._end_with, reason)

    def lose(self, message: str) -> None:
        """The device is lost: end, and notify the users, each once."""
        background.run_on_worker(self._lose, message)

    def close(self, seconds: float | None = None) -> None:
        """End, let work on the device finish (for at most this long), and release the device."""
        if self.forked:
            return
        if background.on_timeline():
            # The last reference was dropped on a thread of this timeline: another thread has to
            # wait.
            background.retry(self.close, "close", seconds)
            return
        background.run_on_worker(self._close, seconds)

    # -- ends: on the library's threads ----------------------------------------------------------
    def _end_with(self, reason: str, lost: bool = False) -> None:
        for work in self._scheduler.ask(partial(self._scheduler.drop, reason, lost)):
            work.fail(InvalidStateError(reason))
        self.staging.wake()

    def _lose(self, message: str) -> None:
        self._end_with(f"the context is lost: {message}", lost=True)
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

        self._scheduler.close()
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
        """Whether the caller is the first to claim it."""
        claim = object()
        return self._claims.setdefault(what, claim) is claim

    # -- the two threads, and the threads of work on the host --------------------------------------
    def _start_batches(self) -> None:
        while True:
            try:
                if self._scheduler.closing or self.forked:
                    return
                self._start_next()
            except BaseException as error:
                self._break(error)

    def _start_next(self) -> None:
        planned, effects = self._scheduler.next(QUIET_SECONDS, self._trim)
        call(effects)
        if planned is not None:
            if planned.stream is None:
                self._start(planned)
            else:
                self._start_on_host(planned)
        del planned, effects
        self._scheduler.process()

    def _break(self, error: BaseException) -> None:
        """An update failed midway, for lack of memory or because of a defect, so the state of the
        queue is unknown: the context is lost, with the reason. Called without the lock."""
        self._scheduler.breaks += 1
        reason = f"the order of work failed with {type(error).__name__}: {error}"
        for last in (False, True):
            try:
                self._lose(reason)
                self._scheduler.ask(self._scheduler.schedule.abandon)
                return
            except Exception:
                if last:
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))

    def _start_on_host(self, planned: PlannedBatch) -> None:
        """Start a batch on its stream's own thread: it needs the host for a while."""

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
            # The system has no thread left: run it here. Other streams are delayed, but the order
            # holds.
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
        # From here on only the batch holds its works: they are freed when it is over.
        del works
        if batch.value is None:
            span.end()
        if self._shares_cores:
            here = planned.alone
        else:
            here = planned.expected and self._ends_soon(batch, span)
        if here:
            self._finish(batch, planned, span)
        else:
            self._in_flight.put((batch, planned, span))
        if planned.stream is not None:
            # Not before: later batches of its stream end after it.
            self._scheduler.inbox.put(partial(self._scheduler.schedule.host_done, planned))
        del batch
        self._scheduler.process()

    def _adopt(self, value: int) -> None:
        """Direct runs are not over: wait for them like for a batch."""
        planned = self._scheduler.schedule.adopted()
        self._in_flight.put((Batch([], value), planned, Span()))

    def _ends_soon(self, batch: Batch, span: Span) -> bool:
        """Whether the batch is over before the next message comes, and within ``POLL_SECONDS``."""
        end = time.monotonic() + POLL_SECONDS
        while self._scheduler.inbox.empty() and time.monotonic() < end:
            if self.device.is_over(batch):
                span.end()
                return True
        return False

    def _finish_batches(self) -> None:
        item: tuple[Batch, PlannedBatch, Span] | Event | None
        batch: Batch | None
        planned: PlannedBatch | None
        while True:
            try:
                # A callback may have forked: in the child this thread has nothing more to do.
                if self.forked:
                    return
                item = self._in_flight.get()
                if item is None:
                    return
                if isinstance(item, Event):
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
        # The batch's memory is freed before its end becomes visible.
        batch.works = ()
        self.staging.wake()
        self._scheduler.inbox.put(
            partial(self._scheduler.schedule.over, planned, None if batch.failed else span.duration)
        )
        self._scheduler.process()

    def _lost_with(self, batch: Batch, error: DeviceLostError) -> None:
        batch.failed = True
        batch.completions.clear()
        for work in batch.works:
            work.fail(InvalidStateError(f"the context is lost: {error}"))
        batch.works = ()
        self.lose(str(error))

    def _trim(self) -> None:
        try:
            self.device.trim()
        except DeviceLostError as error:
            self.lose(str(error))

    def _wait_idle(self) -> None:
        """Wait, on a thread that starts batches, until the batches on the device are over."""
        over = Event()
        self._in_flight.put(over)
        over.wait()


def _close_all(seconds: float) -> None:
    end = time.monotonic() + seconds
    # First, none of them submits any more: they share the device, or the cores.
    for timeline in _live.copy():
        if not timeline.forked:
            timeline.end("the context was closed")
    for timeline in _live.copy():
        timeline.close(max(end - time.monotonic(), 0))


background.closers.append(_close_all)
