"""The thread that runs submissions: Kompute's calls hold the GIL and wait for the device."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from webnn_vk.driver.errors import DeviceLost
from webnn_vk.driver.kompute.recording import Part


class Worker:
    """Runs submissions one after the other and counts them. It starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[tuple[Part, ...]] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.submitted = self.done = 0
        #: why nothing runs any more
        self.failure: str | None = None

    def submit(self, work: Iterable[Part]) -> int:
        """Queues work; its number."""
        with self._changed:
            self._queue.append(tuple(work))
            self.submitted += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="webnn_vk-kompute",
                                                daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return self.submitted

    def wait(self, number: int, timeout: float | None = None) -> bool:
        """Waits until that submission is done; False after `timeout` s. DeviceLost if it never
        will be."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.done >= number or self.failure is not None, timeout)
            if self.done < number and self.failure is not None:
                raise DeviceLost(self.failure)
            return self.done >= number

    def stop(self, timeout: float) -> bool:
        """Ends the thread after the queued work; returns whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def queued(self) -> list[tuple[Part, ...]]:
        """The unfinished parts."""
        return list(self._queue)

    def clear(self) -> None:
        """Releases the parts that will never run."""
        self._queue.clear()

    def _run(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        with self._changed:
            while not self._queue and not self._stopping:
                self._changed.wait()
            if not self._queue:
                return False
            work = self._queue[0]
        failure = None
        try:
            for part in work:
                part()
        except Exception as error:
            failure = f"{self._name}: Kompute failed: {type(error).__name__}: {error}"
        with self._changed:
            self.failure = failure
            if failure is None:
                self._queue.popleft()
                self.done += 1
            self._changed.notify_all()
        return failure is None
