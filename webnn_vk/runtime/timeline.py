"""The order of work on one device: of a context's own, or of a GPUDevice and its contexts.

Calls append small records to a lane and return. A thread starts them on the device in batches (one
submit for all that is waiting), a second one waits for their ends and resolves promises. At most
``schedule.MAX_IN_FLIGHT`` batches are on the device; records beyond them wait in the queue, where
the next batch takes them together. What the host has to do in between (CPU steps of a graph, waits
for another timeline) runs on a thread of its lane's own where there are other lanes, which go on.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from .. import background, forks
from ..errors import InvalidStateError
from .device import Batch, Device
from .pace import batch_flops
from .schedule import Follow, LaneState, PlannedBatch, Schedule
from .storage import DeviceLostError
from .work import Work

FORKED = "this context was made before a fork; make a new one in the child process"
FORKED_ON_VULKAN = (
    "this context was made before a fork, which Vulkan devices don't survive; make one on the CPU "
    f"device in the child process, or {forks.SPAWN}"
)
_live: set[Timeline] = set()
forks.renew(globals(), _live=set)


class Fence:
    """A point on a lane. ``value`` is its place: the number of records queued before it."""

    __slots__ = ("_lane", "value")

    def __init__(self, lane: Lane, value: int) -> None:
        self._lane = lane
        self.value = value

    @property
    def done(self) -> bool:
        """Whether all work queued before it is over."""
        return self._lane.completed >= self.value

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done; False after ``timeout`` seconds. InvalidStateError when the timeline
        ended first."""
        return self._lane.wait(self.value, timeout)

    def __repr__(self) -> str:
        return f"<Fence {self.value}{' done' if self.done else ''}>"


class Lane(LaneState):
    """One user's strict order of work on a timeline's device; made by ``Timeline.lane``.

    Work of several lanes reaches the device in the order of the calls. Only where the host has to
    work in between does a lane stand still for itself.
    """

    def __init__(self, timeline: Timeline, user: int) -> None:
        super().__init__()
        self.timeline = timeline
        self._user = user

    @property
    def device(self) -> Device:
        """The device that the work runs on."""
        return self.timeline.device

    def enqueue(self, *works: Work | Follow) -> None:
        """Append work in order; after the end of the timeline it fails at once."""
        timeline = self.timeline
        timeline.check_fork()
        reason = timeline._append(self, works)
        if reason is not None:
            for work in works:
                work.fail(InvalidStateError(reason))

    def follow(self, other: Lane) -> None:
        """Have what is queued here from now on come after all that ``other`` has queued."""
        self.enqueue(Follow(other))

    def fence(self) -> Fence:
        """The point after everything queued so far, on other lanes too unless it is held back
        there behind work on the host."""
        return Fence(self, self.timeline.queued())

    @property
    def completed(self) -> int:
        """How many of the records queued are over: what fences compare their values with."""
        return self.timeline.completed(self)

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Block until ``completed`` reaches ``value``; see ``Fence.wait``."""
        return self.timeline.wait(self, value, timeout)

    def leave(self) -> None:
        """Let go of the timeline: see ``Timeline.leave``. What is queued goes on."""
        self.timeline.leave(self._user)


class Timeline:
    """Orders work on ``device``; released by the last of its users (lanes, views of tensors)."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._on_lost: dict[int, Callable[[str], None]] = {}
        self._users = 0
        self._calls = 0
        self._pid = os.getpid()
        # Reentrant: the collector may run a destructor that ends here while a call holds it.
        lock = threading.RLock()
        self._startable = threading.Condition(lock)
        self._finishable = threading.Condition(lock)
        self._changed = threading.Condition(lock)
        self._schedule = Schedule(batch_flops(device.profile))
        self._lanes: weakref.WeakSet[Lane] = weakref.WeakSet()
        # What the device has been given, with its part of the schedule; what is about to be given.
        self._in_flight: deque[tuple[Batch, PlannedBatch]] = deque()
        self._starting = 0
        # Threads that lanes have work on the host on.
        self._hosts: set[threading.Thread] = set()
        self._end: str | None = None
        self._lost = False
        self._closing = False
        self._closed = threading.Event()
        #: Batches handed to the device so far.
        self.submits = 0
        device.settle = self._settle
        self._threads = [
            background.TimelineThread(target=target, name=f"webnn_vk-{name}", daemon=True)
            for target, name in ((self._start_batches, "submit"), (self._finish_batches, "finish"))
        ]
        for thread in self._threads:
            thread.start()
        self._submitting = self._threads[0].ident
        _live.add(self)
        background.watch_exit()

    # -- users ---------------------------------------------------------------------------------
    def lane(self, on_lost: Callable[[str], None] = lambda message: None) -> Lane:
        """A strict order of work of the caller's own, who is a user from now on."""
        lane = Lane(self, self.join(on_lost))
        with self._changed:
            self._schedule.lanes += 1
            self._lanes.add(lane)
        return lane

    def join(self, on_lost: Callable[[str], None]) -> int:
        """One more user, told when the device is lost; the number that ``leave`` takes."""
        with self._changed:
            self._users += 1
            self._on_lost[self._users] = on_lost
            return self._users

    def leave(self, user: int) -> None:
        """One user less; the last one closes the timeline. Calling it again does nothing."""
        if self.forked:
            return
        with self._changed:
            self._on_lost.pop(user, None)
            if self._on_lost:
                return
        self.close()

    @contextmanager
    def building(self) -> Iterator[None]:
        """While inside, the device stays: closing waits for the calls that use it elsewhere."""
        self.check_fork()
        with self._changed:
            if self._end is not None:
                raise InvalidStateError(self._end)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the timeline."""
        return os.getpid() != self._pid

    def check_fork(self) -> None:
        """InvalidStateError in a forked child: neither threads nor devices survive a fork."""
        if os.getpid() != self._pid:
            raise InvalidStateError(FORKED_ON_VULKAN if self.device.profile else FORKED)

    # -- calls from any thread -----------------------------------------------------------------
    def queued(self) -> int:
        """The number of records queued so far; after the end one more, which is never over."""
        self.check_fork()
        with self._changed:
            return self._schedule.queued + (self._end is not None)

    def completed(self, lane: Lane) -> int:
        """See ``Lane.completed``."""
        with self._changed:
            # What was on a device that is lost is not over.
            return lane.reached if self._lost else self._schedule.completed(lane)

    def wait(self, lane: Lane, value: int, timeout: float | None = None) -> bool:
        """See ``Fence.wait``."""
        self.check_fork()
        with self._changed:
            if self.completed(lane) < value and background.on_timeline():
                raise InvalidStateError("a callback on the timeline can't wait for the timeline")
            self._changed.wait_for(
                lambda: self.completed(lane) >= value
                or (self._end is not None and self._at_rest()),
                timeout,
            )
            if self.completed(lane) >= value:
                return True
            if self._end is not None and self._at_rest():
                raise InvalidStateError(self._end)
            return False

    def _append(self, lane: Lane, works: Sequence[Work | Follow]) -> str | None:
        """Queue work, or say why no more is taken."""
        with self._startable:
            if self._end is None:
                self._schedule.append(lane, works)
                self._startable.notify()
                if threading.get_ident() == self._submitting:
                    # Maybe a destructor inside of that thread's wait, which doesn't listen yet.
                    background.start(self._wake, "wake")
            return self._end

    def end(self, reason: str) -> None:
        """Take no more work; what waits fails with InvalidStateError, what runs goes on."""
        with self._changed:
            if self._end is not None:
                return
            self._end = reason
            dropped = self._schedule.drop()
            self._changed.notify_all()
        for work in dropped:
            work.fail(InvalidStateError(reason))

    def lose(self, message: str) -> None:
        """The device is lost: end, and tell the users, each once."""
        with self._changed:
            for lane in self._lanes:
                self.completed(lane)  # from now on no more is over
            self._lost = True
        self.end(f"the context is lost: {message}")
        with self._changed:
            users, self._on_lost = list(self._on_lost.values()), dict.fromkeys(
                self._on_lost, lambda message: None
            )
        for on_lost in users:
            on_lost(message)

    def close(self, seconds: float | None = None) -> None:
        """End, let what is on the device finish (for at most so long), and release the device."""
        if self.forked:
            return
        self.end("the context was closed")
        with self._changed:
            first = not self._closing
            self._closing = True
        if not first:
            if not background.on_timeline():
                self._closed.wait(seconds)
        elif background.on_timeline():
            # The last reference went away in a callback of ours: another thread has to wait.
            background.start(self._shut_down, "close")
        else:
            self._shut_down(seconds)

    def _shut_down(self, seconds: float | None = None) -> None:
        limit = None if seconds is None else time.monotonic() + seconds
        self._wake()
        starting, finishing = self._threads
        threads = [starting, finishing]
        starting.join(None if limit is None else max(limit - time.monotonic(), 0))
        with self._changed:
            threads += self._hosts
        for thread in threads:
            thread.join(None if limit is None else max(limit - time.monotonic(), 0))
        with self._changed:
            at_rest = self._changed.wait_for(
                lambda: not self._calls, None if limit is None else max(limit - time.monotonic(), 0)
            )
        if at_rest and not any(thread.is_alive() for thread in threads):
            try:
                self.device.close()
            finally:
                _live.discard(self)
                self._closed.set()

    def _wake(self) -> None:
        with self._changed:
            self._startable.notify_all()
            self._finishable.notify_all()

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        with self._changed:
            return self._at_rest()

    def _at_rest(self) -> bool:
        return self._schedule.at_rest

    # -- the two threads, and those of work on the host ----------------------------------------
    def _start_batches(self) -> None:
        while True:
            with self._startable:
                planned = None
                while not self._closing and (planned := self._schedule.next()) is None:
                    self._changed.notify_all()  # what only orders is over when it has its place
                    self._startable.wait()
                if planned is None:
                    return
                self._starting += 1
            if planned.lane is None:
                self._start(planned)
            else:
                self._start_on_host(planned)
            del planned

    def _start_on_host(self, planned: PlannedBatch) -> None:
        """Have a lane's own thread start a batch: it takes a while on the host."""

        def run() -> None:
            try:
                self._start(planned)
            finally:
                with self._changed:
                    self._hosts.discard(thread)

        thread = background.TimelineThread(target=run, name="webnn_vk-host", daemon=True)
        try:
            with self._changed:
                thread.start()
                self._hosts.add(thread)
        except RuntimeError:
            # The system has no thread left. Late for the other lanes, but in order.
            self._start(planned)

    def _start(self, planned: PlannedBatch) -> None:
        works, planned.works = planned.works, []
        batch = Batch(works)
        try:
            batch = self.device.execute(works)
        except DeviceLostError as error:
            self._lost_with(batch, error)
        except Exception as error:  # a defect must not stop the thread: the work fails
            for work in works:
                work.fail(error)
                del work
        # From here on only the batch holds its works: they are gone when it is over.
        del works
        with self._finishable:
            self.submits += batch.value is not None
            self._in_flight.append((batch, planned))
            self._starting -= 1
            if planned.lane is not None:
                self._schedule.host_done(planned)
                self._startable.notify()
            self._finishable.notify()
            self._changed.notify_all()

    def _finish_batches(self) -> None:
        while True:
            with self._finishable:
                while not self._in_flight:
                    if self._closing and not self._starting:
                        return
                    self._finishable.wait()
                batch, planned = self._in_flight[0]
            try:
                self.device.wait(batch)
            except DeviceLostError as error:
                self._lost_with(batch, error)
            except Exception as error:
                for work in batch.works:
                    work.fail(error)
                    del work
                batch.completions.clear()
            batch.complete()
            # The batch's memory is free before anyone can see its end.
            batch.works = ()
            with self._changed:
                self._in_flight.popleft()
                self._schedule.over(planned)
                self._startable.notify()
                self._changed.notify_all()
            del batch, planned

    def _lost_with(self, batch: Batch, error: DeviceLostError) -> None:
        batch.completions.clear()
        for work in batch.works:
            work.fail(InvalidStateError(f"the context is lost: {error}"))
        batch.works = ()
        self.lose(str(error))

    def _settle(self) -> None:
        """Wait, on the thread that starts batches, until those on the device are over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight)


def _close_all(seconds: float) -> None:
    end = time.monotonic() + seconds
    for timeline in _live.copy():
        timeline.close(max(end - time.monotonic(), 0))


background.closers.append(_close_all)
