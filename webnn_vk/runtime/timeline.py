"""One strict order of work per device: of a context's own, or of a GPUDevice and its contexts.

Calls append small records and return. A worker starts them on the device in batches (one submit for
all that is waiting), a second thread waits for their ends and resolves promises. At most
``MAX_IN_FLIGHT`` batches are on the device; records beyond them wait in the queue, where the next
batch takes them together.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import background
from ..errors import InvalidStateError
from .device import Batch, Device
from .storage import DeviceLostError
from .work import Allocate, Await, RunGraph, Submit, Work

#: Batches on the device at the same time.
MAX_IN_FLIGHT = 4
#: Estimated work per submit, so that a driver's watchdog does not take a long queue for a hang.
MAX_BATCH_FLOPS = 20 * 10**9
MAX_BATCH_WORKS = 256

FORKED = "this context was made before a fork; make a new one in the child process"
_live: set[Timeline] = set()


class Fence:
    """A point on a timeline. ``value`` is its place: the number of records queued before it."""

    __slots__ = ("_timeline", "value")

    def __init__(self, timeline: Timeline, value: int) -> None:
        self._timeline = timeline
        self.value = value

    @property
    def done(self) -> bool:
        """Whether all work queued before it is over."""
        return self._timeline.completed >= self.value

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done; False after ``timeout`` seconds. InvalidStateError when the timeline
        ended first."""
        return self._timeline.wait(self.value, timeout)

    def __repr__(self) -> str:
        return f"<Fence {self.value}{' done' if self.done else ''}>"


class Timeline:
    """Orders work on ``device``; released by the last of its users (contexts, a GPUDevice)."""

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
        self._queue: deque[Work] = deque()
        self._queued = 0
        self._completed = 0
        self._in_flight: deque[tuple[Batch, int]] = deque()
        self._starting = False
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
        _live.add(self)
        background.watch_exit()

    # -- users ---------------------------------------------------------------------------------
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
            raise InvalidStateError(FORKED)

    # -- calls from any thread -----------------------------------------------------------------
    def fence(self) -> Fence:
        """The point after everything queued so far."""
        self.check_fork()
        with self._changed:
            # After the end nothing more completes.
            return Fence(self, self._queued + (self._end is not None))

    @property
    def completed(self) -> int:
        """How many of the records queued are over: what fences compare their values with."""
        return self._completed

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Block until ``completed`` reaches ``value``; see ``Fence.wait``."""
        self.check_fork()
        with self._changed:
            if self._completed < value and background.on_timeline():
                raise InvalidStateError("a callback on the timeline can't wait for the timeline")
            self._changed.wait_for(
                lambda: self._completed >= value or (self._end is not None and self._at_rest()),
                timeout,
            )
            if self._completed >= value:
                return True
            if self._end is not None and self._at_rest():
                raise InvalidStateError(self._end)
            return False

    def enqueue(self, *works: Work) -> None:
        """Append work in order; after the end of the timeline it fails at once."""
        self.check_fork()
        with self._startable:
            if self._end is None:
                self._queue.extend(works)
                self._queued += len(works)
                self._startable.notify()
                if threading.get_ident() == self._threads[0].ident:
                    # Maybe a destructor inside of that thread's wait, which doesn't listen yet.
                    background.start(self._wake, "wake")
                return
            reason = self._end
        for work in works:
            work.fail(InvalidStateError(reason))

    def end(self, reason: str) -> None:
        """Take no more work; what waits fails with InvalidStateError, what runs goes on."""
        with self._changed:
            if self._end is not None:
                return
            self._end = reason
            dropped = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for work in dropped:
            work.fail(InvalidStateError(reason))

    def lose(self, message: str) -> None:
        """The device is lost: end, and tell the users, each once."""
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
        for thread in self._threads:
            thread.join(None if limit is None else max(limit - time.monotonic(), 0))
        with self._changed:
            at_rest = self._changed.wait_for(
                lambda: not self._calls, None if limit is None else max(limit - time.monotonic(), 0)
            )
        if at_rest and not any(thread.is_alive() for thread in self._threads):
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
        return not (self._queue or self._in_flight or self._starting)

    # -- the two threads -----------------------------------------------------------------------
    def _start_batches(self) -> None:
        while True:
            with self._startable:
                self._starting = False
                self._finishable.notify()
                self._changed.notify_all()
                while not self._closing and not self._can_start():
                    self._startable.wait()
                if self._closing:
                    return
                works = self._take()
                position = self._queued - len(self._queue)
                self._starting = True
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
                self._in_flight.append((batch, position))
                self._finishable.notify()
            del batch

    def _can_start(self) -> bool:
        if not self._queue or len(self._in_flight) >= MAX_IN_FLIGHT:
            return False
        # What was destroyed before has to be given back first.
        return not (self._in_flight and isinstance(self._queue[0], Allocate))

    def _take(self) -> list[Work]:
        works: list[Work] = []
        flops = 0
        while self._queue and len(works) < MAX_BATCH_WORKS:
            work = self._queue[0]
            cost = work.executable.flops if isinstance(work, RunGraph) else 0
            # Waits for another side begin a batch: that side may need what was queued before done,
            # and a caller its results.
            if works and (
                flops + cost > MAX_BATCH_FLOPS
                or isinstance(work, (Allocate, Await))
                or (isinstance(work, Submit) and work.wait)
            ):
                break
            flops += cost
            works.append(self._queue.popleft())
        return works

    def _finish_batches(self) -> None:
        while True:
            with self._finishable:
                while not self._in_flight:
                    if self._closing and not self._starting:
                        return
                    self._finishable.wait()
                batch, position = self._in_flight[0]
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
                if not self._lost:
                    self._completed = position
                self._startable.notify()
                self._changed.notify_all()
            del batch

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
