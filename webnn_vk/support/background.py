"""The library's threads, and the exit of the interpreter, which waits for them.

Signal handlers run in the main thread, between any two steps of Python code. So the main thread
must not make changes that take several steps or a lock. ``run_on_worker`` makes them on another
thread while the main thread waits; an interrupt ends only the wait.
"""

from __future__ import annotations

import _thread
import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from weakref import KeyedRef

from . import forks, memory_probe
from .errors import OperationError
from .event import Event

T = TypeVar("T")

#: How long the exit of the interpreter waits for work in flight, in seconds.
EXIT_SECONDS = 20.0
#: Seconds that an idle worker thread lives.
_IDLE_SECONDS = 10.0
_MAX_IDLE = 8
#: Seconds until ``retry`` looks for a thread again.
_RETRY_SECONDS = 0.5

#: The name of threads that run a call of the main thread.
_ON_WORKER = "call"

#: Called at exit with the seconds left, before and after the jobs of ``start`` were waited for.
closers: list[Callable[[float], Any]] = []
_ended = False


class _Thread(threading.Thread):
    def start(self) -> None:
        memory_probe.require_for_thread()
        super().start()


class TimelineThread(_Thread):
    """A timeline's own thread: it must not wait for the timeline."""


def on_timeline() -> bool:
    """Whether the caller is a callback on a timeline's thread, where waiting would never end."""
    thread = threading.current_thread()
    # In the child of a fork in a callback it is the main thread.
    return isinstance(thread, TimelineThread) and thread is not threading.main_thread()


class _Job:
    """A call on a worker: what it returned or raised, once ``over``."""

    __slots__ = ("_call", "abandoned", "error", "name", "over", "ran", "refused", "result")

    def __init__(
        self, function: Callable[[], Any], name: str, refused: Callable[[BaseException], Any]
    ) -> None:
        self._call: Callable[[], Any] | None = function
        self.name = name
        # Called when there is no thread to run it on, and when a call of ``start`` fails.
        self.refused = refused
        self.over = Event()
        self.ran = False
        # An interrupt came first: the result has no receiver.
        self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run it on a worker."""
        _running.add(self)
        if self.name != _ON_WORKER:
            register_exit()
        call, self._call, self.ran = self._call, None, True
        assert call is not None
        _current.job = self
        try:
            if not self.abandoned:
                self.result = call()
        except BaseException as error:
            self.error = error
            if self.name != _ON_WORKER:
                _print(error)
                self.refused(error)
        _current.job = None
        if self.abandoned:
            self.result = None  # it may be what keeps this job alive (see ``waiting``)
        # Its arguments are released before its end is visible.
        del call
        _running.discard(self)
        try:
            self.over.set()
        except MemoryError:
            self.over.set_despite_oom()

    def refuse(self, error: Exception) -> None:
        """There is no thread for it."""
        self._call = None
        self.refused(error)
        self.over.set()


_current = threading.local()


def waiting() -> Callable[[], bool]:
    """A function that says whether the caller of the current ``run_on_worker`` call still waits for
    its result, or has it."""
    job: _Job | None = getattr(_current, "job", None)
    return lambda: job is None or not job.abandoned


def _ignore(error: BaseException) -> None:
    pass


def no_threads(error: Exception) -> OperationError:
    """The error where the system has no thread left, and what would help."""
    return OperationError(
        f"no thread can be started ({error}): the user or the container has as many as it may "
        "(ulimit -u, pids.max), or too little memory; end some or raise the limit, then try again"
    )


def _work(first: list[_Job]) -> None:
    """The loop of a worker thread: one job after the other."""
    thread = threading.current_thread()
    job: _Job | None = first.pop()
    while job is not None:
        thread.name = f"webnn_vk-{job.name}"
        try:
            job.run()
        except MemoryError as error:
            if not job.ran:
                job.refuse(OperationError(f"out of memory: {error}"))
        # Not kept until the next one comes.
        job = None
        thread.name = "webnn_vk-worker"
        job = _next()


def _next() -> _Job | None:
    """The next job of an idle worker; None: the worker ends."""
    if len(_idle) >= _MAX_IDLE:
        return None
    _idle.append(None)
    while True:
        try:
            return _jobs.get(timeout=_IDLE_SECONDS)
        except Empty:
            pass
        try:
            _idle.pop()
        except IndexError:
            # A caller has reserved this worker: it was interrupted, or is about to put a job.
            try:
                return _jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                _idle.append(None)
        else:
            return None


# A function to call once an object was collected. One call into C passes the reference to the
# server; a signal handler can't interrupt that as it could a destructor.
_Last = KeyedRef[Callable[[], Any], Any]


def _serve() -> None:
    """Start workers: the main thread can't, since ``Thread.start`` may be interrupted half-way."""
    while True:
        try:
            item = _starts.get(timeout=_RETRY_SECONDS if _put_off else None)
        except Empty:
            item = _put_off.popleft()
        if isinstance(item, KeyedRef):
            _watched.pop(id(item))
            retry(item.key, "end")
        else:
            try:
                _Thread(target=_work, args=([item],), name="webnn_vk-worker", daemon=True).start()
            except Exception as error:
                item.refuse(no_threads(error))
        del item


def _reset() -> None:
    """The state without threads: at import, and in a forked child."""
    global _running, _jobs, _idle, _starts, _server, _watched, _put_off, _ended
    _running = set()
    _jobs = SimpleQueue()
    _idle = []
    _starts = SimpleQueue()
    _server = []
    _watched = {}
    _put_off = deque()
    _ended = False


_running: set[_Job]
# Jobs for idle workers.
_jobs: SimpleQueue[_Job]
# An entry for each idle worker that is not reserved for a job.
_idle: list[None]
_starts: SimpleQueue[_Job | _Last]
_server: list[int]
# By id: arrays have no hash, so references to them have none.
_watched: dict[int, _Last]
# Jobs that must run and have found no thread yet.
_put_off: deque[_Job]
_reset()
forks.register(lambda clean: _reset())


def _hand_over(job: _Job) -> None:
    """Give a job to an idle worker, or to a new one."""
    try:
        _idle.pop()
    except IndexError:
        try:
            _start_server()
        except RuntimeError as error:
            job.refuse(no_threads(error))
        else:
            _starts.put(job)
    else:
        _jobs.put(job)


def _start_server() -> None:
    if not _server:
        memory_probe.require_for_thread()
        # A second server does no harm.
        _server.append(_thread.start_new_thread(_serve, ()))


def start(
    function: Callable[..., Any],
    name: str,
    *arguments: Any,
    refused: Callable[[BaseException], Any] = _ignore,
) -> bool:
    """Run ``function`` on a thread of its own; False when the interpreter is past its exit, where
    a new thread would never run (and destructors may still come here). ``refused`` is called when
    the process can have no more threads, and with what the function raises, which is printed."""
    if _ended:
        return False
    _hand_over(_Job(partial(function, *arguments), name, refused))
    return True


def retry(function: Callable[..., Any], name: str, *arguments: Any) -> bool:
    """``start`` for calls that must run: while the process can have no more threads it retries. At
    the exit it is left to the ``closers``."""
    if _ended:
        return False
    _hand_over(_lasting(partial(function, *arguments), name))
    return True


def _lasting(function: Callable[[], Any], name: str) -> _Job:
    def again(error: BaseException) -> None:
        _put_off.append(_lasting(function, name))

    def call() -> None:
        try:
            function()
        except BaseException as error:
            _print(error)

    return _Job(call, name, again)


def _print(error: BaseException) -> None:
    threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


def when_gone(owner: Any, function: Callable[[], Any]) -> None:
    """Have ``function`` called, on another thread, once ``owner`` was collected. RuntimeError when
    the process can have no more threads."""
    _start_server()
    last = KeyedRef(owner, _starts.put, function)
    _watched[id(last)] = last


def run_on_worker(function: Callable[..., T], *arguments: Any) -> T:
    """``function(*arguments)``, which runs completely or not at all, whatever signals arrive: calls
    of the main thread run on another one. An exception of a signal handler ends the wait; the
    result is dropped then."""
    if threading.get_ident() != threading.main_thread().ident or _ended:
        return function(*arguments)
    job = _Job(partial(function, *arguments), _ON_WORKER, _ignore)
    try:
        _hand_over(job)
        job.over.wait()
        if not job.ran:
            # The process can have no more threads: run it unprotected.
            return function(*arguments)
        # The worker may hold the job for a moment longer.
        error, job.error = job.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        result: T
        result, job.result = job.result, None
        return result
    except BaseException:
        job.abandoned = True
        job.result = None
        raise
    finally:
        # An error's traceback must not hold the job, which holds the error.
        del job


def register_exit() -> None:
    """Run our exit handler before all handlers registered with atexit so far (the driver's)."""
    atexit.unregister(_exit)
    atexit.register(_exit)


def _exit() -> None:
    # A daemon thread inside a driver call would crash while the interpreter is torn down.
    end = time.monotonic() + EXIT_SECONDS
    for closer in closers:
        closer(max(end - time.monotonic(), 0))
    quiet = 0
    while quiet < 2 and time.monotonic() < end:
        # Twice: a worker may just have taken a job.
        quiet = 0 if _busy() else quiet + 1
        time.sleep(0.001)
    for closer in closers:  # for what those jobs have created
        closer(max(end - time.monotonic(), 0))
    global _ended
    _ended = True


def _busy() -> bool:
    return bool(_running or not _starts.empty() or not _jobs.empty())


atexit.register(_exit)
