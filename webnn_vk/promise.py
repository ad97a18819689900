"""MLPromise: the IDL's ``Promise<T>`` for threads and for asyncio."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import weakref
from collections.abc import Coroutine, Generator
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, TypeVar

from .background import on_timeline
from .errors import InvalidStateError as StateError
from .face import PublicDir

T = TypeVar("T")

#: Of concurrent.futures' executors, of asyncio's tasks, and of whoever keeps the promise.
_INTERNAL = {
    "set_result", "set_exception", "set_running_or_notify_cancel", "send", "throw", "close", "hint",
    "resolve", "reject", "resolved", "rejected",
}

_log = logging.getLogger("webnn_vk")


class MLPromise(PublicDir, Future[T], Coroutine[Any, Any, T]):
    """A result that arrives later.

    ``promise.result(timeout=None)`` blocks and returns it, ``await promise`` does not block the
    event loop. What the IDL rejects a promise with, both raise. A promise can't be cancelled: the
    work behind it is ordered with everything else on its context.

    For asyncio it is a coroutine that may be awaited by any number of tasks: what takes coroutines
    (``create_task``, ``gather``, ``wait_for``, ``run_coroutine_threadsafe``) takes promises, and
    ``asyncio.wait`` refuses them as it does coroutines: make tasks of them. A rejection that nobody
    has looked at when the promise goes is logged once, by the logger "webnn_vk", unless it is
    InvalidStateError: the end of its context or tensor.

    A callback given to ``add_done_callback`` runs on the context's own thread: waiting there for
    another promise is refused with ``webnn_vk.InvalidStateError``, since it might never end. So is
    waiting in a forked child, where nothing resolves it any more.
    """

    def __init__(self, of: str = "") -> None:
        super().__init__()
        # Running from the start, so that cancel() (also by a cancelled awaiting task) is refused.
        self.set_running_or_notify_cancel()
        self._pid = os.getpid()
        self._of = of
        self._seen = False
        # The waits of the tasks that took the promise for their coroutine.
        self._waits: weakref.WeakKeyDictionary[Any, Generator[Any, None, T]] | None = None

    def result(self, timeout: float | None = None) -> T:
        """The value; blocks for at most ``timeout`` seconds (TimeoutError). Raises the error that
        the promise was rejected with, InvalidStateError in a callback of another promise and in a
        forked child, where it would wait for ever."""
        self._check_wait()
        try:
            return super().result(timeout)
        finally:
            # The error's traceback must not hold the promise, which holds the error: the frames of
            # who waited, and the memory that they use, would stay until the collector comes.
            self._seen = self._seen or self.done()
            del self

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the promise was rejected with, or None; waits as ``result`` does, and
        raises TimeoutError or InvalidStateError where that does."""
        self._check_wait()
        error = super().exception(timeout)
        self._seen = True
        return error

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

    # -- as a coroutine, for asyncio -----------------------------------------------------------
    def send(self, value: Any) -> Any:
        """One step of the running task, for asyncio's own use."""
        return self._wait_of_task().send(value)

    def throw(self, *error: Any) -> Any:
        """An error into the running task, for asyncio's own use."""
        return self._wait_of_task().throw(*error)

    def close(self) -> None:
        """Nothing: what is awaited goes on (for asyncio's own use)."""

    def _wait_of_task(self) -> Generator[Any, None, T]:
        task = asyncio.current_task()
        if task is None:
            raise TypeError("a promise is a coroutine for asyncio's tasks only: await it")
        if self._waits is None:
            self._waits = weakref.WeakKeyDictionary()
        wait = self._waits.get(task)
        if wait is None:
            wait = self._waits[task] = self.__await__()
        return wait

    # -- what it is not ------------------------------------------------------------------------
    @property
    def hint(self) -> str:
        """For messages of who wanted the result itself."""
        return f"{self._described()}: call .result() or await it first"

    def _described(self) -> str:
        return f"an MLPromise of {self._of}" if self._of else "an MLPromise"

    if not TYPE_CHECKING:  # a type checker shall find none of these

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(f"no attribute {name!r}: this is {self.hint}", name=name, obj=self)

        def __getitem__(self, key: Any) -> Any:
            raise TypeError(f"this is {self.hint}")

        def __array__(self, *arguments: Any, **options: Any) -> Any:
            raise TypeError(f"this is {self.hint}")

        def __enter__(self) -> Any:
            raise TypeError(f"`with`: this is {self.hint}")

        def __exit__(self, *error: object) -> None:
            raise AssertionError("never entered")

        async def __aenter__(self) -> Any:
            raise TypeError(f"`async with`: this is {self._described()}: `async with await …`")

        async def __aexit__(self, *error: object) -> None:
            raise AssertionError("never entered")

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INTERNAL]

    def __repr__(self) -> str:
        of = f" of {self._of}" if self._of else ""
        if not self.done():
            return f"<MLPromise{of}: pending>"
        error = super().exception()  # not looked at yet
        if error is not None:
            return f"<MLPromise{of}: rejected with {type(error).__name__}: {error}>"
        result = super().result()
        return f"<MLPromise: {type(result).__name__ if self._bulky(result) else repr(result)}>"

    @staticmethod
    def _bulky(result: Any) -> bool:
        return isinstance(result, (dict, list)) or hasattr(result, "__array_interface__")

    def __del__(self) -> None:
        # As asyncio's futures do; super().__init__ may have failed.
        if self.__dict__.get("_seen", True) or sys.is_finalizing():
            return
        error = self._exception
        # The end of its context or tensor nobody has to look at: asyncio doesn't report what was
        # cancelled either.
        if error is not None and not isinstance(error, StateError):
            _log.error("%s was rejected and nobody looked", self._described(), exc_info=error)

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


def kind_of(value: Any) -> str:
    """What was given in place of what is expected, for messages: its type, and how to come by the
    result where it is a promise of that."""
    return value.hint if isinstance(value, MLPromise) else type(value).__name__
