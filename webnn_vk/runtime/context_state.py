"""State shared by a context, its tensors, its graphs and the modules that share tensors: the
device, the order of work on it, and the context's end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from webnn_vk.driver.device_info import DeviceInfo
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import DOMException, InvalidStateError, UnknownError
from webnn_vk.support.promise import MLPromise

from .device import Device, new_storage
from .storage import DeviceLostError, Storage
from .timeline import Timeline
from .work import Allocate

if TYPE_CHECKING:
    from webnn_vk.compiler.program import Target

    from .tuning.tuner import Tuner


@dataclass(frozen=True)
class MLContextLostInfo:
    """Why a context was lost (§8.3.9)."""

    message: str


class Member(Protocol):
    """An object that ends with its context."""

    def destroy(self) -> None: ...


class ContextState:
    """The state of one ``MLContext``. It lives as long as the context or any object that belongs to
    it; its end also ends the context's use of the device."""

    def __init__(
        self, timeline: Timeline, info: DeviceInfo,
        compiling: Callable[[], tuple[Target, Tuner | None]],
        experimental: frozenset[str] = frozenset(),
    ) -> None:
        """``compiling`` returns the first ``target``, and ``tuner``."""
        self.info = info
        #: The names of drafts that the context implements (``support.experimental``).
        self.experimental = experimental
        self.timeline = timeline
        #: Guards handing tensors to GPU devices and back. Never acquired in the main thread, where
        #: a signal handler might want it too.
        self.handover = threading.RLock()
        self._compiling = compiling
        # The target and the tuner once they are needed; the first to set them wins.
        self._compiled_for: dict[str, tuple[Target, Tuner | None]] = {}
        #: Called with each pass's name and the graph after it, when graphs are built.
        self.after_pass: Callable[[str, Any], None] | None = None
        #: Resolves when the context is lost or destroyed.
        self.lost: MLPromise[MLContextLostInfo] = MLPromise("an MLContextLostInfo")
        # The reason, once it is lost: set in one step, by the first caller.
        self._loss: dict[str, tuple[str]] = {}
        # Sets of references, changed by single calls into C: a signal handler may run between any
        # two steps here, and make calls.
        self._members: set[weakref.ref[Any]] = set()
        # Promises of tensors being created and graphs being built: loss rejects them.
        self._pending: set[weakref.ref[MLPromise]] = set()
        #: The context's strict order of work.
        self.stream = timeline.stream(self.lose)

    @property
    def device(self) -> Device:
        """The device that the context's work runs on."""
        return self.timeline.device

    @property
    def target(self) -> Target:
        """The device and options for which graphs are compiled."""
        return self._known()[0]

    @target.setter
    def target(self, target: Target) -> None:
        self._compiled_for["now"] = target, self.tuner

    @property
    def tuner(self) -> Tuner | None:
        """Measures the kernels of graphs before they are compiled (``Settings(tune=True)``)."""
        return self._known()[1]

    def _known(self) -> tuple[Target, Tuner | None]:
        known = self._compiled_for.get("now")
        return self._compiled_for.setdefault("now", self._compiling()) if known is None else known

    def new_promise(self, of: str) -> MLPromise[Any]:
        """A promise ``of`` something that the loss of the context rejects. InvalidStateError if it
        is lost."""
        promise: MLPromise[Any] = MLPromise(of)
        self._pending.add(weakref.ref(promise, self._pending.discard))
        self._check_lost()  # from here on a loss finds the promise
        return promise

    def promised(self, call: Callable[[], MLPromise[Any]]) -> MLPromise[Any]:
        """Calls ``call()``; its exception, or the loss of the context, becomes a rejection."""
        try:
            self.check()
            return call()
        except (TypeError, DOMException) as error:
            return MLPromise.rejected(error)
        except MemoryError as error:
            return MLPromise.rejected(UnknownError(f"out of memory: {error}"))

    def register(self, member: Member) -> None:
        """Make the loss of the context destroy ``member``. InvalidStateError if it is lost."""
        self._members.add(weakref.ref(member, self._members.discard))
        self._check_lost()

    def check(self) -> None:
        """InvalidStateError if the context is lost, or this is a forked child."""
        self.timeline.check_fork()
        self._check_lost()

    def loss(self) -> InvalidStateError | None:
        """The error of calls on a lost context; None while it isn't lost."""
        if not self._loss:
            return None
        return InvalidStateError(f"the context is lost: {self._loss['reason'][0]}")

    def _check_lost(self) -> None:
        error = self.loss()
        if error is not None:
            raise error

    def new_storage(
        self, size: int, exportable: bool = False, **options: Any
    ) -> tuple[Storage, tuple[Allocate, ...]]:
        """Memory of ``size`` bytes, allocated now or, after destroyed memory is freed, by the
        queued work; ``options`` as for ``Device.create_storage``. InvalidStateError if the device
        is lost."""
        with self.noticing_loss():
            return new_storage(self.device, size, exportable, **options)

    @contextmanager
    def noticing_loss(self) -> Iterator[None]:
        """Announces the loss of the device that the block finds, and raises InvalidStateError."""
        try:
            yield
        except DeviceLostError as error:
            self.timeline.lose(str(error))
            raise InvalidStateError(f"the context is lost: {error}") from error

    def stage(self, view: np.ndarray) -> Sequence[Any]:
        """A copy of bytes in pieces of memory that the device reads (``Device.stage``). Not for the
        main thread, except under ``background.run_on_worker``."""
        with self.timeline.building():
            return self.device.stage(view)

    def lose(self, message: str) -> None:
        """Announce the loss of the context, once: its members are destroyed, and pending promises
        reject with InvalidStateError."""
        message = self._loss.setdefault("reason", (message,))[0]
        if not self.lost.resolve(MLContextLostInfo(message)):
            return
        for member in self._members.copy():
            if (alive := member()) is not None:
                alive.destroy()
        for pending in self._pending.copy():
            if (promise := pending()) is not None:
                promise.reject(InvalidStateError(f"the context is lost: {message}"))

    def destroy(self) -> None:
        """Lose the context on purpose and release the device. Calling it again does nothing."""
        self.timeline.check_fork()
        # At once: calls that end before all are notified come too late.
        self._loss.setdefault("reason", ("destroy() was called",))
        background.run_on_worker(self._destroy)

    def _destroy(self) -> None:
        self.lose("destroy() was called")
        # The last user waits for the device; destroy() should not.
        background.retry(self.stream.leave, "close")
