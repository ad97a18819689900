"""How much data may wait for a busy device: beyond that, who gives more waits for the device."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Gate

#: Bytes of data given to a timeline (writes, constants, inputs of ``compute_async``) that are not
#: on the device yet. One call alone may be larger.
STAGING_BYTES = 256 << 20
#: Data of up to so many bytes counts as so many, without a lock.
SMALL_BYTES = 1 << 14


T = TypeVar("T")


def _nothing() -> None:
    pass


class Held:
    """Room for data, given back when the object goes: with the record that has the data."""

    __slots__ = ("__weakref__",)


class _Returned(weakref.ref[Held]):
    """What is found among the returned when room is given back: put there by one call into C, which
    no signal handler can interrupt as it could a destructor."""

    __slots__ = ("size",)
    size: int


class Staging:
    """The data that waits for one device. ``ended`` says why it takes no more, or None."""

    def __init__(self, ended: Callable[[], str | None]) -> None:
        self._ended = ended
        # Not for the main thread.
        self._lock = threading.Lock()
        self._total = 0
        self._live: set[_Returned] = set()
        self._returned: deque[_Returned] = deque()
        self._small: set[weakref.ref[Held]] = set()
        self._waiting: deque[Gate] = deque()

    @property
    def bytes(self) -> int:
        """Bytes that wait at present."""
        returned = sum(gone.size for gone in self._returned.copy())
        return self._total - returned + len(self._small) * SMALL_BYTES

    def hold(self, size: int, what: str) -> Held:
        """Room for ``size`` bytes, waited for while more than ``STAGING_BYTES`` would be held. An
        interrupt ends the waiting. InvalidStateError in a callback on the timeline, which would
        wait for itself, and at the end of the timeline; ``what`` names the call."""
        return self.hold_and(size, what, _nothing)[0]

    def hold_and(
        self, size: int, what: str, function: Callable[[], T]
    ) -> tuple[Held, T | None]:
        """``hold``, and what ``function`` returns, which is called once there is room: under the
        same shield, as each one costs the main thread a way to another and back. None for data that
        needs no shield (``SMALL_BYTES``)."""
        while True:
            if size <= SMALL_BYTES:
                held, result = self._take_small(), None
            else:
                held, result = background.shielded(self._take_and, size, function)
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
            gate = Gate()
            self._waiting.append(gate)
            # Now and then a look without being told: room may come back without the timeline.
            gate.wait(0.1)

    def wake(self) -> None:
        """Room may have been given back. Not for the main thread."""
        while self._waiting:
            try:
                self._waiting.popleft().set()
            except IndexError:
                return

    def _take_small(self) -> Held | None:
        if self._small and self.bytes + SMALL_BYTES > STAGING_BYTES:
            return None
        held = Held()
        self._small.add(weakref.ref(held, self._small.discard))
        return held

    def _take_and(self, size: int, function: Callable[[], T]) -> tuple[Held | None, T | None]:
        held = self._take(size)
        return held, None if held is None else function()

    def _take(self, size: int) -> Held | None:
        with self._lock:
            while self._returned:
                gone = self._returned.popleft()
                self._live.discard(gone)
                self._total -= gone.size
            waiting = self._total + len(self._small) * SMALL_BYTES
            if waiting and waiting + size > STAGING_BYTES:
                return None
            held = Held()
            watch = _Returned(held, self._returned.append)
            watch.size = size
            self._live.add(watch)
            self._total += size
            return held
