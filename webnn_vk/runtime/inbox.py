"""Messages in a timeline's inbox besides work: finalizers of users, and requests."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from webnn_vk.support.event import Event

from .schedule import Follow
from .stream import Fence, Stream
from .work import Work

#: Types of messages: work or a fence on a stream, or a call for the holder of the scheduler lock.
Message = tuple[Stream, "tuple[Work | Follow, ...] | Fence"] | Callable[[], Any]


class OwnerFinalizer(weakref.ref[Any]):
    """A weak reference that is put into the inbox when its object is collected, by one call into C.
    Unlike a destructor, this can't be interrupted by a signal handler."""

    __slots__ = ("user",)
    user: int


class Request:
    """A call made by the holder of the scheduler lock, for a thread that waits for the answer."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.answer: Any = None
        self.error: Exception | None = None
        self.answered = Event()

    def __call__(self) -> None:
        try:
            self.answer = self._function()
        except Exception as error:
            self.error = error
        self.answered.set()
