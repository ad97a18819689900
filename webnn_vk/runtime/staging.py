"""Limits the data that waits for a busy device: beyond the limit, callers wait for the device."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Event

#: Limit in bytes of data that was passed to a timeline (writes, constants, inputs of
#: ``compute_async``) and is not on the device yet. A single call may be larger.
STAGING_BYTES = 256 << 20
#: Data up to this size counts as this size, without a lock.
SMALL_BYTES = 1 << 14


T = TypeVar("T")


def _nothing() -> None:
    pass


class Reservation:
    """Staging space for data, given back when the object is collected, together with the record
    that has the data."""

    __slots__ = ("__weakref__",)


class _Returned(weakref.ref[Reservation]):
    """Queued among the returned reservations when one is collected, by one call into C. Unlike a
    destructor, this can't be interrupted by a signal handler."""

    __slots__ = ("size",)
    size: int


class Staging:
    """The data that waits for one device. ``ended`` says why no more is accepted, or None."""

    def __init__(self, ended: Callable[[], str | None]) -> None:
        self._ended = ended
        # Not for the main thread.
        self._lock = threading.Lock()
        self._total = 0
        self._live: set[_Returned] = set()
        self._returned: deque[_Returned] = deque()
        self._small: set[weakref.ref[Reservation]] = set()
        self._waiting: deque[Event] = deque()

    @property
    def bytes(self) -> int:
        """Bytes waiting at present."""
        returned = sum(item.size for item in self._returned.copy())
        return self._total - returned + len(self._small) * SMALL_BYTES

    def reserve(self, size: int, what: str) -> Reservation:
        """A reservation for ``size`` bytes. Waits while more than ``STAGING_BYTES`` would be held;
        an interrupt ends the wait. InvalidStateError in a callback on the timeline, which would
        wait for itself, and at the end of the timeline; ``what`` names the call."""
        return self.reserve_and(size, what, _nothing)[0]

    def reserve_and(
        self, size: int, what: str, function: Callable[[], T]
    ) -> tuple[Reservation, T | None]:
        """Like ``reserve``, and also the result of ``function``, which is called once there is
        space: in the same ``run_on_worker``, as each one costs the main thread two thread switches.
        None for data that needs no worker (``SMALL_BYTES``)."""
        while True:
            if size <= SMALL_BYTES:
                held, result = self._take_small(), None
            else:
                held, result = background.run_on_worker(self._take_and, size, function)
            if held is not None:
                return held, result
            reason = self._ended()
            if reason is not None:
                raise InvalidStateError(reason)
            if background.on_timeline():
                raise InvalidStateError(
                    f"{what}: {self.bytes} bytes wait for the device already, at most "
                    f"{STAGING_BYTES} may; a callback can't wait for it: call from another thread, "
                    "or read the results of earlier work first"
                )
            event = Event()
            self._waiting.append(event)
            # Poll as well: space may be given back without the timeline.
            event.wait(0.1)

    def wake(self) -> None:
        """Space may have been given back. Not for the main thread."""
        while self._waiting:
            try:
                self._waiting.popleft().set()
            except IndexError:
                return

    def _take_small(self) -> Reservation | None:
        if self._small and self.bytes + SMALL_BYTES > STAGING_BYTES:
            return None
        held = Reservation()
        self._small.add(weakref.ref(held, self._small.discard))
        return held

    def _take_and(
        self, size: int, function: Callable[[], T]
    ) -> tuple[Reservation | None, T | None]:
        held = self._take(size)
        return held, None if held is None else function()

    def _take(self, size: int) -> Reservation | None:
        with self._lock:
            while self._returned:
                item = self._returned.popleft()
                self._live.discard(item)
                self._total -= item.size
            waiting = self._total + len(self._small) * SMALL_BYTES
            if waiting and waiting + size > STAGING_BYTES:
                return None
            held = Reservation()
            watch = _Returned(held, self._returned.append)
            watch.size = size
            self._live.add(watch)
            self._total += size
            return held
