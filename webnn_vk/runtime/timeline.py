"""One strict order of work per device: of a context's own, or of a GPUDevice and its contexts.

Calls append small records and return. A worker starts them on the device in batches (one submit for
all that is waiting), a second thread waits for their ends and resolves promises. At most
``MAX_IN_FLIGHT`` batches are on the device; records beyond them wait in the queue, where the next
batch takes them together.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import InvalidStateError, OperationError
from .device import Batch, Device, DeviceLostError
from .work import Dispatch, Run, Work

#: Batches on the device at the same time.
MAX_IN_FLIGHT = 4
#: Estimated work per submit, so that a driver's watchdog does not take a long queue for a hang.
MAX_BATCH_FLOPS = 20 * 10**9
MAX_BATCH_WORKS = 256

_live: weakref.WeakSet[Timeline] = weakref.WeakSet()


class Fence:
    """A point on a timeline: ``done`` once all work queued before it is over."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done; False after ``timeout`` seconds. Raises what ended the timeline."""
        reached = self._event.wait(timeout)
        if self._error is not None:
            raise self._error
        return reached

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._event.set()


class Timeline:
    """Orders work on ``device``; released by the last of its users (contexts, a GPUDevice)."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._on_lost: dict[int, Callable[[str], None]] = {}
        self._users = 0
        self._builds = 0
        self._pid = os.getpid()
        self._condition = threading.Condition()
        self._queue: deque[Work] = deque()
        self._in_flight: deque[Batch] = deque()
        self._starting = False
        self._end: str | None = None
        self._closing = False
        self._closed = threading.Event()
        #: Batches handed to the device so far.
        self.submits = 0
        self._threads = [
            threading.Thread(target=self._start_batches, name="webnn_vk-submit", daemon=True),
            threading.Thread(target=self._finish_batches, name="webnn_vk-finish", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        _live.add(self)

    # -- users ---------------------------------------------------------------------------------
    def join(self, on_lost: Callable[[str], None]) -> int:
        """One more user, told when the device is lost; the number that ``leave`` takes."""
        with self._condition:
            self._users += 1
            self._on_lost[self._users] = on_lost
            return self._users

    def leave(self, user: int) -> None:
        """One user less; the last one closes the timeline. Calling it again does nothing."""
        with self._condition:
            self._on_lost.pop(user, None)
            if self._on_lost:
                return
        self.close()

    @contextmanager
    def building(self) -> Iterator[None]:
        """While inside, the device stays: closing waits for the builds on other threads."""
        with self._condition:
            if self._end is not None:
                raise InvalidStateError(self._end)
            self._builds += 1
        try:
            yield
        finally:
            with self._condition:
                self._builds -= 1
                self._condition.notify_all()

    # -- calls from any thread -----------------------------------------------------------------
    def fence(self) -> Fence:
        """The point after everything queued so far."""
        fence = Fence()
        self.enqueue(Run(fence._event.set, fence._fail))
        return fence

    def enqueue(self, *works: Work) -> None:
        """Append work in order; after the end of the timeline it fails at once."""
        if os.getpid() != self._pid:
            raise InvalidStateError(
                "this context was made before a fork; make a new one in the child process"
            )
        with self._condition:
            if self._end is None:
                self._queue.extend(works)
                self._condition.notify_all()
                return
            reason = self._end
        for work in works:
            work.fail(InvalidStateError(reason))

    def end(self, reason: str) -> None:
        """Take no more work; what waits fails with InvalidStateError, what runs goes on."""
        with self._condition:
            if self._end is not None:
                return
            self._end = reason
            dropped = list(self._queue)
            self._queue.clear()
            self._condition.notify_all()
        for work in dropped:
            work.fail(InvalidStateError(reason))

    def close(self) -> None:
        """End, let what is on the device finish, and release the device."""
        self.end("the context was closed")
        with self._condition:
            first = not self._closing
            self._closing = True
            self._condition.notify_all()
        if not first:
            if threading.current_thread() not in self._threads:
                self._closed.wait()
            return
        if threading.current_thread() in self._threads:
            # The last reference went away in a callback of ours: another thread has to wait.
            threading.Thread(target=self._shut_down, name="webnn_vk-close", daemon=True).start()
        else:
            self._shut_down()

    def _shut_down(self) -> None:
        for thread in self._threads:
            thread.join()
        with self._condition:
            while self._builds:
                self._condition.wait()
        self.device.close()
        self._closed.set()

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        with self._condition:
            return not (self._queue or self._in_flight or self._starting)

    # -- the two threads -----------------------------------------------------------------------
    def _start_batches(self) -> None:
        while True:
            with self._condition:
                self._starting = False
                self._condition.notify_all()
                while not self._closing and (
                    not self._queue or len(self._in_flight) >= MAX_IN_FLIGHT
                ):
                    self._condition.wait()
                if self._closing:
                    return
                works = self._take()
                self._starting = True
            try:
                batch = self.device.execute(works)
            except DeviceLostError as error:
                self._lose(str(error), works)
                continue
            except Exception as error:  # a defect must not stop the thread: the work fails
                for work in works:
                    work.fail(OperationError(f"{type(error).__name__}: {error}"))
                continue
            self.submits += batch.value is not None
            with self._condition:
                self._in_flight.append(batch)
                self._condition.notify_all()
            del works, batch

    def _take(self) -> list[Work]:
        works: list[Work] = []
        flops = 0
        while self._queue and len(works) < MAX_BATCH_WORKS:
            work = self._queue[0]
            cost = work.executable.flops if isinstance(work, Dispatch) else 0
            if works and flops + cost > MAX_BATCH_FLOPS:
                break
            flops += cost
            works.append(self._queue.popleft())
        return works

    def _finish_batches(self) -> None:
        while True:
            with self._condition:
                while not self._in_flight:
                    if self._closing and not self._starting:
                        return
                    self._condition.wait()
                batch = self._in_flight[0]
            try:
                self.device.wait(batch)
                # Popped, so that none of them is kept alive by this loop until the next batch.
                while batch.completions:
                    batch.completions.pop(0)()
            except DeviceLostError as error:
                self._lose(str(error), batch.works)
            except Exception as error:
                for work in batch.works:
                    work.fail(OperationError(f"{type(error).__name__}: {error}"))
            # The batch's memory is free before anyone can see the timeline idle.
            batch.works, batch.completions = (), []
            with self._condition:
                self._in_flight.popleft()
                self._condition.notify_all()
            del batch

    def _lose(self, message: str, works: list[Work]) -> None:
        self.end(f"the context is lost: {message}")
        for work in works:
            work.fail(InvalidStateError(f"the context is lost: {message}"))
        with self._condition:
            users, self._on_lost = list(self._on_lost.values()), dict.fromkeys(
                self._on_lost, lambda message: None
            )
        for on_lost in users:
            on_lost(message)


@atexit.register
def _close_all() -> None:
    # Daemon threads inside a driver call while the interpreter goes away would crash it.
    for timeline in list(_live):
        timeline.close()
