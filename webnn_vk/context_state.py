"""What a context, its tensors, its graphs and the modules that share tensors have in common: the
device, the order of work on it, and the context's end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from . import background
from .device_info import DeviceInfo
from .errors import DOMException, InvalidStateError
from .promise import MLPromise
from .runtime import Device, Lane, Timeline


@dataclass(frozen=True)
class MLContextLostInfo:
    """Why a context was lost (§8.3.9)."""

    message: str


class Member(Protocol):
    """Something that ends with its context."""

    def destroy(self) -> None: ...


class ContextState:
    """The state of one ``MLContext``. It lives as long as the context or anything that belongs to
    it; with it the context's use of the device ends."""

    def __init__(self, timeline: Timeline, info: DeviceInfo) -> None:
        self.info = info
        self.timeline = timeline
        #: Makes finding tensors free and queueing work with them one step.
        self.order = threading.RLock()
        #: Resolves when the context is lost or destroyed.
        self.lost: MLPromise[MLContextLostInfo] = MLPromise("an MLContextLostInfo")
        # Guards the two sets against the loss, which empties them.
        self._lock = threading.Lock()
        self._loss: str | None = None
        # Sets of references, not WeakSets: those can't be read while another thread adds.
        self._members: set[weakref.ref[Any]] = set()
        # Promises of tensors being made and graphs being built: loss rejects them.
        self._pending: set[MLPromise] = set()
        this = weakref.ref(self)
        #: The context's strict order of work.
        self.lane = timeline.lane(lambda message: _lose(this, message))
        self._finalizer = weakref.finalize(self, _leave_in_background, self.lane)
        self._finalizer.atexit = False

    @property
    def device(self) -> Device:
        """The device that the context's work runs on."""
        return self.timeline.device

    def new_promise(self, of: str) -> MLPromise[Any]:
        """A promise ``of`` something that the loss of the context rejects. InvalidStateError when
        it is lost."""
        promise: MLPromise[Any] = MLPromise(of)
        with self._lock:
            self._check_lost()
            self._pending.add(promise)
        promise.add_done_callback(self._pending.discard)
        return promise

    def promised(self, call: Callable[[], MLPromise[Any]]) -> MLPromise[Any]:
        """``call()``; what it raises, or that the context is lost, becomes a rejection."""
        try:
            self.check()
            return call()
        except (TypeError, DOMException) as error:
            return MLPromise.rejected(error)

    def register(self, member: Member) -> None:
        """Have the loss of the context destroy ``member``. InvalidStateError when it is lost."""
        with self._lock:
            self._check_lost()
            self._members.add(weakref.ref(member, self._members.discard))

    def check(self) -> None:
        """InvalidStateError when the context is lost, or this is a forked child."""
        self.timeline.check_fork()
        self._check_lost()

    def _check_lost(self) -> None:
        if self._loss is not None:
            raise InvalidStateError(f"the context is lost: {self._loss}")

    def lose(self, message: str) -> None:
        """Tell everyone that the context is lost, once: its members are destroyed, what is pending
        rejects with InvalidStateError."""
        with self._lock:
            if self._loss is not None:
                return
            self._loss = message
        self.lost.resolve(MLContextLostInfo(message))
        for member in self._members.copy():
            if (alive := member()) is not None:
                alive.destroy()
        for promise in self._pending.copy():
            promise.reject(InvalidStateError(f"the context is lost: {message}"))

    def destroy(self) -> None:
        """Lose the context on purpose and let go of the device. Calling it again does nothing."""
        self.timeline.check_fork()
        self.lose("destroy() was called")
        self._finalizer()


class ContextBase:
    """What modules below ``MLContext`` may know of it."""

    _state: ContextState


def context_state(context: ContextBase) -> ContextState:
    """The state of a context."""
    return context._state


def _lose(this: weakref.ref[ContextState], message: str) -> None:
    state = this()
    if state is not None:
        state.lose(message)


def _leave_in_background(lane: Lane) -> None:
    # The last to leave waits for the device; neither the collector nor destroy() should.
    if not lane.timeline.forked:
        background.start(lane.leave, "close")
