"""A stream: one user's place in the order of work on a device, and the fences on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Event

from .device import Device
from .schedule import Follow, StreamState
from .storage import Storage, again
from .work import Executable, Run, RunGraph, Work


class Fence:
    """A point on a stream: after all work queued before it was made."""

    __slots__ = ("_direct", "_error", "_event", "_stream", "_value")

    def __init__(
        self, stream: Stream, direct: int | None = None, value: int | None = None
    ) -> None:
        """``direct``: the submission that it waits for, if the timeline doesn't know it; then
        ``value`` is its place."""
        self._stream = stream
        self._event = Event()
        self._direct = direct
        # Both set by the timeline, in its order.
        self._value = value
        self._error: Exception | None = None

    @property
    def value(self) -> int:
        """Its place: the number of records queued before it."""
        if self._value is None:
            self._stream.timeline.catch_up()
        assert self._value is not None
        return self._value

    @property
    def done(self) -> bool:
        """Whether all work queued before it is over."""
        if self._direct is not None and self._wait_directly(0):
            return True
        if not self._event.is_set():
            self._stream.timeline.catch_up()
        return self._event.is_set() and self._error is None

    def _wait_directly(self, timeout: float | None) -> bool | None:
        """Whether the submission that the timeline doesn't know is over, within that time; None if
        the timeline has ended, and now knows the fence."""
        assert self._direct is not None
        timeline = self._stream.timeline
        call = timeline.call()
        if not timeline.ended:
            over: bool = timeline.direct.wait(self._direct, timeout)
            return over
        del call
        self._direct = None
        timeline.await_direct(self._stream, self)
        return None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done; returns False after ``timeout`` seconds. InvalidStateError if the
        timeline ended first."""
        self._stream.timeline.check_fork()
        if self._direct is not None:
            here = background.on_timeline()
            over = self._wait_directly(0 if here else timeout)
            if over is False and here:
                raise InvalidStateError("a callback on the timeline can't wait for the timeline")
            if over is not None:
                return over
        if not self._event.is_set() and background.on_timeline():
            self._stream.timeline.catch_up()
            if not self._event.is_set():
                raise InvalidStateError("a callback on the timeline can't wait for the timeline")
        if not self._event.wait(timeout):
            self._stream.timeline.catch_up()
        if self._error is not None:
            raise again(self._error)
        return self._event.is_set()

    def place(self, value: int) -> None:
        """The timeline has reached it; ``value`` records were queued before."""
        self._value = value

    def reach(self, error: Exception | None = None) -> None:
        """Called by the timeline: all work before it is over, or never will be."""
        self._error = error
        self._event.set()

    def __repr__(self) -> str:
        return f"<Fence {self.value}{' done' if self.done else ''}>"


class Stream(StreamState):
    """One user's strict order of work on a timeline's device; made by ``Timeline.stream``.

    Work of several streams reaches the device in the order of the calls. A stream waits by itself
    only while the host has to work in between.
    """

    def __init__(self, timeline: Any, user: int) -> None:
        super().__init__()
        #: Its Timeline, whose module imports this one.
        self.timeline = timeline
        self._user = user

    @property
    def device(self) -> Device:
        """The device that the work runs on."""
        return self.timeline.device

    def enqueue(self, *works: Work | Follow) -> None:
        """Append work in order: all of it or, if a signal handler raises, nothing. After the end of
        the timeline it fails at once."""
        self.timeline.put((self, works))

    def run(
        self, executable: Executable, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> None:
        """Append a run of a graph; it is submitted now if nothing else is queued or running."""
        if not (self._direct and self.timeline.direct.run(executable, inputs, outputs, self.lent)):
            self.enqueue(RunGraph(executable, inputs, outputs))

    @property
    def _direct(self) -> bool:
        """Whether its work may be direct (``runtime.direct``)."""
        timeline = self.timeline
        timeline.check_fork()
        return timeline.observer is None

    def write(self, storage: Storage, data: np.ndarray) -> bool:
        """Replace the bytes of a storage after all work so far, directly; False if it can't be."""
        return self._direct and self.timeline.direct.write(storage, data, self.lent)

    def read(self, storage: Storage) -> tuple[int, Callable[[], np.ndarray]] | None:
        """See ``DirectWork.read``."""
        return self.timeline.direct.read(storage, self.lent) if self._direct else None

    def follow(self, other: Stream) -> None:
        """Order all later work here after everything that ``other`` has queued."""
        self.enqueue(Follow(other))

    def fence(self) -> Fence:
        """The point after everything queued so far, on other streams too unless it is held back
        there behind work on the host."""
        if (point := self.timeline.direct.fence()) is not None:
            self.timeline.check_fork()
            return Fence(self, *point)
        fence = Fence(self)
        self.timeline.put((self, fence))
        return fence

    def leave(self) -> None:
        """Release the timeline: see ``Timeline.leave``."""
        self.timeline.leave(self._user)

    def leave_after_work(self) -> None:
        """``leave`` once all work queued so far is over: its results may still be wanted."""
        self.enqueue(Run(self.leave, lambda error: self.leave()))
