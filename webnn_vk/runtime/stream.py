"""A stream: one user's place in the order of work on a device, and the fences on it."""

from __future__ import annotations

from typing import Any

from webnn_vk.support import background
from webnn_vk.support.errors import InvalidStateError
from webnn_vk.support.event import Event

from .device import Device
from .schedule import Follow, StreamState
from .storage import again
from .work import Run, Work


class Fence:
    """A point on a stream: after all work queued before it was made."""

    __slots__ = ("_error", "_event", "_stream", "_value")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._event = Event()
        # Both set by the timeline, in its order.
        self._value: int | None = None
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
        if not self._event.is_set():
            self._stream.timeline.catch_up()
        return self._event.is_set() and self._error is None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until done; returns False after ``timeout`` seconds. InvalidStateError if the
        timeline ended first."""
        self._stream.timeline.check_fork()
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

    def follow(self, other: Stream) -> None:
        """Order all later work here after everything that ``other`` has queued."""
        self.enqueue(Follow(other))

    def fence(self) -> Fence:
        """The point after everything queued so far, on other streams too unless it is held back
        there behind work on the host."""
        fence = Fence(self)
        self.timeline.put((self, fence))
        return fence

    def leave(self) -> None:
        """Release the timeline: see ``Timeline.leave``."""
        self.timeline.leave(self._user)

    def leave_after_work(self) -> None:
        """``leave`` once all work queued so far is over: its results may still be wanted."""
        self.enqueue(Run(self.leave, lambda error: self.leave()))
