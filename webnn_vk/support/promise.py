"""MLPromise: the IDL's ``Promise<T>`` for threads and for asyncio."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future, InvalidStateError
from typing import TYPE_CHECKING, Any, TypeVar

from . import background
from .background import on_timeline
from .errors import DOMException
from .errors import InvalidStateError as StateError
from .event import Event
from .mixins import PublicDir

T = TypeVar("T")

#: Methods for concurrent.futures' executors, for asyncio's tasks, and for the promise's creator.
_INTERNAL = {
    "set_result", "set_exception", "set_running_or_notify_cancel", "send", "throw", "close", "hint",
    "resolve", "reject", "resolved", "rejected",
}

_log = logging.getLogger("webnn_vk")


class MLPromise(PublicDir, Future[T], Coroutine[Any, Any, T]):
    """A result that arrives later.

    ``promise.result(timeout=None)`` blocks and returns it, ``await promise`` does not block the
    event loop. Both raise the error that the promise is rejected with. A promise can't be
    cancelled: the work behind it is ordered with everything else on its context.

    For asyncio it is a coroutine that may be awaited by any number of tasks: what takes coroutines
    (``create_task``, ``gather``, ``wait_for``, ``run_coroutine_threadsafe``) takes promises, and
    ``asyncio.wait`` refuses them as it does coroutines: make tasks of them. If a rejection was not
    retrieved before the promise is freed, it is logged once by the logger "webnn_vk", unless it is
    InvalidStateError: the end of its context or tensor.

    A callback given to ``add_done_callback`` runs on the context's own thread: waiting there for
    another promise is refused with ``webnn_vk.InvalidStateError``, since it might never end. So is
    waiting in a forked child, where nothing resolves it any more.
    """

    # Only those attributes of Future exist that ``concurrent.futures.wait`` and ``as_completed``
    # read: its methods take a Condition, which an interrupt can leave locked.
    def __init__(self, of: str = "") -> None:
        self._condition: Any = threading.RLock()
        self._state = "RUNNING"
        self._waiters: list[Any] = []
        self._pid = os.getpid()
        self._of = of
        # Settled in one step: the first value, error and report of a rejection stored here.
        self._outcome: dict[str, tuple[Any, BaseException | None, _Unseen | None]] = {}
        self._event = Event()
        # Each in a list of its own; the thread that takes one out calls it.
        self._callbacks: deque[list[Callable[[Any], Any]]] = deque()
        # The waits of the tasks whose coroutine the promise is.
        self._waits: weakref.WeakKeyDictionary[Any, Generator[Any, None, T]] | None = None

    def result(self, timeout: float | None = None) -> T:
        """The value; blocks for at most ``timeout`` seconds (TimeoutError). Raises the error that
        the promise was rejected with, InvalidStateError in a callback of another promise and in a
        forked child, where it would wait for ever."""
        value, error = self._settled(timeout)
        if error is None:
            result: T = value
            return result
        try:
            raise error
        finally:
            # The error's traceback must not hold the promise, which holds the error: the frames of
            # the waiting callers, and their memory, would stay until the next garbage collection.
            del self, error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the promise was rejected with, or None; waits as ``result`` does, and
        raises TimeoutError or InvalidStateError where that does."""
        return self._settled(timeout)[1]

    def done(self) -> bool:
        """Whether it has its result or error; at once, raises nothing."""
        return bool(self._outcome)

    def running(self) -> bool:
        """Whether it is not done yet; at once, raises nothing."""
        return not self._outcome

    def cancel(self) -> bool:
        """False: a promise can't be cancelled. Raises nothing, returns at once."""
        return False

    def cancelled(self) -> bool:
        """False: see ``cancel``. Raises nothing, returns at once."""
        return False

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Call ``fn(promise)`` once it is done, at once if it is done already. Raises nothing;
        exceptions of ``fn`` are logged."""
        entry = [fn]
        self._callbacks.append(entry)
        if self._outcome:
            self._call(entry)

    def _call(self, entry: list[Callable[[Any], Any]]) -> None:
        try:
            callback = entry.pop()
        except IndexError:
            return  # another thread calls it
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of %s failed", self._described())

    def _settled(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        if not self._outcome:
            self._check_wait()
            self._event.wait(timeout)
            if not self._outcome:
                raise TimeoutError
        value, error, report = self._outcome["settled"]
        if report is not None:
            report.seen = True
        return value, error

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
        # An event loop on the timeline's thread, run by a callback, would wait for itself.
        import asyncio  # 6 MB and 50 ms; a caller of this method has loaded it already

        self._check_wait()
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
        import asyncio

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
        """For messages to a caller who needs the result itself."""
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
        result, error, _ = self._outcome["settled"]  # not looked at yet
        if error is not None:
            return f"<MLPromise{of}: rejected with {type(error).__name__}: {error}>"
        return f"<MLPromise: {type(result).__name__ if self._bulky(result) else repr(result)}>"

    @staticmethod
    def _bulky(result: Any) -> bool:
        return isinstance(result, (dict, list)) or hasattr(result, "__array_interface__")

    def __copy__(self) -> Any:
        raise TypeError(f"{self._described()} can't be copied: it is settled once, for all")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{self._described()} can't be pickled: it belongs to this process")

    @classmethod
    def resolved(cls, value: T) -> MLPromise[T]:
        """One that has ``value`` already."""
        promise: MLPromise[T] = cls()
        promise.resolve(value)
        return promise

    @classmethod
    def rejected(cls, error: BaseException) -> MLPromise[T]:
        """One that was rejected with ``error`` already."""
        promise: MLPromise[T] = cls()
        promise.reject(error)
        return promise

    def resolve(self, value: T) -> bool:
        """Set the result unless settled already; whether it was set here."""
        return self._settle(value, None)

    def reject(self, error: BaseException) -> bool:
        """Set the error unless settled already; whether it was set here."""
        return self._settle(None, error)

    def set_result(self, result: T) -> None:
        """``resolve``, as executors call it."""
        if not self.resolve(result):
            raise InvalidStateError(f"{self._described()} is settled already")

    def set_exception(self, exception: BaseException | None) -> None:
        """``reject``, as executors call it."""
        if exception is None or not self.reject(exception):
            raise InvalidStateError(f"{self._described()} is settled already")

    def set_running_or_notify_cancel(self) -> bool:
        """True: it has been running from the start."""
        return True

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        """Whether this was the first. Not for the main thread: waking the waiting threads takes
        several steps."""
        if error is not None and not isinstance(error, StateError):
            # The end of its context or tensor need not be retrieved: asyncio doesn't report
            # cancelled tasks either.
            report = _Unseen(error, self._described())
        else:
            report = None
        outcome = (value, error, report)
        if self._outcome.setdefault("settled", outcome) is not outcome:
            if report is not None:
                report.seen = True
            return False
        self._notify()
        return True

    def _notify(self) -> None:
        """Tell everybody that it is settled. Not for the main thread, see above."""
        try:
            self._event.set()
        except MemoryError:
            self._event.set_despite_oom()
        while True:
            try:
                entry = self._callbacks.popleft()
            except IndexError:
                break
            try:
                self._call(entry)
            except BaseException:
                # SystemExit and the like; the callbacks after it are called nevertheless.
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), None)))
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        """Tell ``concurrent.futures.wait`` and ``as_completed``."""
        # Held only briefly, unless an interrupt has left it locked: then continue without it.
        if self._condition.acquire(blocking=False):
            self._state = "FINISHED"
            some = bool(self._waiters)
            self._condition.release()
            if not some:
                return
        # Their locks are Python's, which an interrupt can leave locked: use another thread.
        background.retry(self._tell, "tell")

    def _tell(self) -> None:
        locked = self._condition.acquire(timeout=1.0)
        self._state = "FINISHED"
        waiters = list(self._waiters)
        if locked:
            self._condition.release()
        for waiter in waiters:
            if self._outcome["settled"][1] is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)


class PulledPromise(MLPromise[T]):
    """A promise whose result is fetched by the threads that ask for it. A library thread fetches it
    only for callbacks, event loops and ``concurrent.futures``.

    pull: waits for the result for at most the given seconds (None: no limit) and returns it in a
    tuple, or None if it isn't there yet. A DOMException that it raises rejects the promise; other
    exceptions are those of signal handlers. Several threads may call it. push(then, failed):
    has a library thread call ``then`` once the result is there, or ``failed`` with an error.
    """

    def __init__(
        self, of: str, pull: Callable[[float | None], tuple[T] | None],
        push: Callable[[Callable[[], Any], Callable[[Exception], Any]], Any],
    ) -> None:
        # Both until it is settled: they keep memory alive.
        self._source: tuple[Any, Any] | None = (pull, push)
        self._pushed = False
        super().__init__(of)

    def done(self) -> bool:
        """Whether it has its result or error; at once, raises nothing."""
        self._try(0)
        return super().done()

    def running(self) -> bool:
        """Whether it is not done yet; at once, raises nothing."""
        return not self.done()

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """See ``MLPromise``."""
        self._hand_over()
        super().add_done_callback(fn)

    # ``concurrent.futures.wait`` and ``as_completed`` take the first, then look at the second.
    @property
    def _condition(self) -> Any:
        self._hand_over()
        return self._lock

    @_condition.setter
    def _condition(self, lock: Any) -> None:
        self._lock = lock

    @property
    def _state(self) -> str:
        return "FINISHED" if self._outcome else "RUNNING"

    @_state.setter
    def _state(self, state: str) -> None:
        pass

    def _settled(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        if not self._outcome and not self._pushed:
            self._check_fork()
            self._try(0 if on_timeline() else timeout)
            if not self._outcome and timeout is not None:
                self._check_wait()
                raise TimeoutError
        return super()._settled(timeout)

    def _try(self, timeout: float | None) -> None:
        source = self._source
        if source is None or self._pushed or os.getpid() != self._pid:
            return
        found, error = None, None
        try:
            found = source[0](timeout)
        except DOMException as failed:
            error = failed
        if found is not None or error is not None:
            # One step: nobody has to be told, or a library thread does it.
            value = None if found is None else found[0]
            self._outcome.setdefault("settled", (value, error, None))
            self._source = None

    def _hand_over(self) -> None:
        """From now on a library thread settles it."""
        source = self._source
        if source is not None and not self._outcome and not self._pushed:
            source[1](self._finish, self._fail)
            self._pushed = True

    def _finish(self) -> None:
        self._pushed = False
        self._try(None)
        self._notify()

    def _fail(self, error: Exception) -> None:
        self._outcome.setdefault("settled", (None, error, _Unseen(error, self._described())))
        self._source = None
        self._notify()


class _Unseen:
    """Reports a rejection that is collected before it was retrieved. The promise itself has no
    destructor, because Python drops a KeyboardInterrupt raised in one."""

    __slots__ = ("_error", "_of", "seen")

    def __init__(self, error: BaseException, of: str) -> None:
        self._error, self._of = error, of
        self.seen = False

    def __del__(self) -> None:
        if not self.seen and not sys.is_finalizing():
            _log.error("%s was rejected, and its error was never retrieved", self._of,
                       exc_info=self._error)


def kind_of(value: Any) -> str:
    """A wrong argument in words, for messages: its type, and for a promise how to get the
    result."""
    return value.hint if isinstance(value, MLPromise) else type(value).__name__


def settle_in_background(
    promise: MLPromise[T],
    call: Callable[[], T],
    name: str,
    as_error: Callable[[Any], Exception] = lambda error: error,
) -> MLPromise[T]:
    """``promise``, settled with what ``call()`` returns or raises on a thread of its own.
    ``as_error`` converts the exception to the rejection."""

    def run() -> None:
        try:
            promise.resolve(call())
        except BaseException as error:  # panics of libraries in Rust are no Exceptions
            promise.reject(as_error(error))

    return start_for(promise, run, name)


def start_for(
    promise: MLPromise[T],
    call: Callable[[], Any],
    name: str,
    refused: Callable[[BaseException], Any] | None = None,
) -> MLPromise[T]:
    """``promise``, which ``call`` settles on a thread of its own. ``refused`` (by default the
    promise's rejection) is called when the process can't have one, and with what ``call``
    raises."""
    if not background.start(call, name, refused=refused or promise.reject):
        promise.reject(StateError("the interpreter is exiting"))
    return promise


def follow_in_background(make: Callable[[], MLPromise[T]], name: str) -> MLPromise[T]:
    """A promise that settles as the one which ``make()`` returns on a thread of its own."""
    promise: MLPromise[T] = MLPromise()

    def run() -> None:
        try:
            _follow(make(), promise)
        except Exception as error:
            promise.reject(error)

    return start_for(promise, run, name)


def _follow(inner: MLPromise[Any], outer: MLPromise[Any]) -> None:
    """Settle ``outer`` as ``inner`` is."""

    def settled(done: Any) -> None:
        error = done.exception()
        if error is None:
            outer.resolve(done.result())
        else:
            outer.reject(error)

    inner.add_done_callback(settled)
