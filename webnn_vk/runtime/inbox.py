"""What comes into a timeline's inbox beside work: departures of users, and questions."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from webnn_vk.support.event import Gate

from .queue import Fence, Lane
from .schedule import Follow
from .work import Work

#: What comes in: work or a fence on a lane, or something to be done by who has the turn.
Message = tuple[Lane, "tuple[Work | Follow, ...] | Fence"] | Callable[[], Any]


class Departure(weakref.ref[Any]):
    """The reference that comes into the inbox when its object is collected: by one call into C,
    which no signal handler can interrupt, as it could a destructor."""

    __slots__ = ("user",)
    user: int


class Question:
    """A call that whoever has the turn makes, for who waits for the answer."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.answer: Any = None
        self.error: Exception | None = None
        self.answered = Gate()

    def __call__(self) -> None:
        try:
            self.answer = self._function()
        except Exception as error:
            self.error = error
        self.answered.set()
