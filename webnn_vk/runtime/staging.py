"""Limits the data that waits for a busy device: beyond the limit, callers wait for the device."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar
from weakref import KeyedRef

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


class Staging:
    """The data that waits for one device. ``ended`` says why no more is accepted, or None."""

    def __init__(self, ended: Callable[[], str | None]) -> None:
        self._ended = ended
        # Not for the main thread.
        self._lock = threading.Lock()
        # Living reservations, with their sizes, and reservations of small data: removed by one call
        # into C, which no signal handler can interrupt as it could a destructor.
        self._large: set[KeyedRef[int, Reservation]] = set()
        self._small: set[weakref.ref[Reservation]] = set()
        self._waiting: deque[Event] = deque()

    @property
    def bytes(self) -> int:
        """Bytes waiting at present."""
        return sum(item.key for item in self._large.copy()) + len(self._small) * SMALL_BYTES

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
                held, result = self._take(size), None
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

    def _take_and(
        self, size: int, function: Callable[[], T]
    ) -> tuple[Reservation | None, T | None]:
        with self._lock:
            held = self._take(size)
        return held, None if held is None else function()

    def _take(self, size: int) -> Reservation | None:
        waiting = self.bytes
        if waiting and waiting + max(size, SMALL_BYTES) > STAGING_BYTES:
            return None
        held = Reservation()
        if size <= SMALL_BYTES:
            self._small.add(weakref.ref(held, self._small.discard))
        else:
            self._large.add(KeyedRef(held, self._large.discard, size))
        return held
