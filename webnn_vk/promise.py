"""MLPromise: the IDL's ``Promise<T>`` for threads and for asyncio."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Generator
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from .background import on_timeline
from .errors import InvalidStateError as StateError

T = TypeVar("T")


class MLPromise(Future[T]):
    """A result that arrives later.

    ``promise.result(timeout=None)`` blocks and returns it, ``await promise`` does not block the
    event loop. What the IDL rejects a promise with, both raise. A promise can't be cancelled: the
    work behind it is ordered with everything else on its context.

    A callback given to ``add_done_callback`` runs on the context's own thread: waiting there for
    another promise is refused with ``webnn_vk.InvalidStateError``, since it might never end. So is
    waiting in a forked child, where nothing resolves it any more.
    """

    def __init__(self) -> None:
        super().__init__()
        # Running from the start, so that cancel() (also by a cancelled awaiting task) is refused.
        self.set_running_or_notify_cancel()
        self._pid = os.getpid()

    def result(self, timeout: float | None = None) -> T:
        """The value, waited for at most ``timeout`` seconds (TimeoutError), or its error raised."""
        self._check_wait()
        try:
            return super().result(timeout)
        finally:
            # The error's traceback must not hold the promise, which holds the error: the frames of
            # who waited, and the memory that they use, would stay until the collector comes.
            del self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the promise was rejected with, or None; waits as ``result`` does."""
        self._check_wait()
        return super().exception(timeout)

    def _check_wait(self) -> None:
        if self.done():
            return
        if on_timeline():
            raise StateError("a callback of a promise can't wait for another: await that one too")
        self._check_fork()

    def _check_fork(self) -> None:
        if os.getpid() != self._pid and not self.done():
            raise StateError("the promise was made before a fork and never resolves in the child")

    def __await__(self) -> Generator[Any, None, T]:
        self._check_fork()
        return asyncio.wrap_future(self).__await__()

    @classmethod
    def resolved(cls, value: T) -> MLPromise[T]:
        """One that has ``value`` already."""
        promise: MLPromise[T] = cls()
        promise.set_result(value)
        return promise

    @classmethod
    def rejected(cls, error: BaseException) -> MLPromise[T]:
        """One that was rejected with ``error`` already."""
        promise: MLPromise[T] = cls()
        promise.set_exception(error)
        return promise

    def resolve(self, value: T) -> bool:
        """Set the result unless settled already; whether it was set here."""
        return self._settle(self.set_result, value)

    def reject(self, error: BaseException) -> bool:
        """Set the error unless settled already; whether it was set here."""
        return self._settle(self.set_exception, error)

    @staticmethod
    def _settle(setter: Any, value: Any) -> bool:
        try:
            setter(value)
        except InvalidStateError:
            return False
        except BaseException:
            # SystemExit and the like from a callback; Future has handled the rest.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
        return True
