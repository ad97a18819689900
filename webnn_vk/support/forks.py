"""Forks: what a child has to make again, kept in one place.

A child has one thread, the one that forked. Locks that others held are held for ever, what they
were in the middle of stays half done. Locks and sets of modules are made again in the child
(`renew`), and a fork waits for a thread that loads modules or asks Vulkan drivers (`undisturbed`).
What belongs to the parent (contexts, devices) knows itself that it is in a child, and refuses.
"""

from __future__ import annotations

# Here, as it has hooks of its own: hooks that another thread registers while a fork waits for it
# run after the fork only, and release a lock that was never taken.
import concurrent.futures.thread  # noqa: F401
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

#: How long a fork waits for what must not be disturbed, in seconds: a driver may hang.
PATIENCE = 5.0

#: The way out, for messages.
SPAWN = "start the child by multiprocessing's 'spawn' method"

_fork_lock = threading.RLock()
_held = threading.local()
_count = 0
_renewed: list[tuple[dict[str, Any], dict[str, Callable[[], Any]]]] = []
_callbacks: list[Callable[[bool], None]] = []


def renew(module: dict[str, Any], **made: Callable[[], Any]) -> None:
    """Have names of a module (its ``globals()``) hold new objects in every forked child."""
    _renewed.append((module, made))


def register(callback: Callable[[bool], None]) -> None:
    """Call ``callback`` in every forked child, after names were renewed. Its argument tells whether
    the fork came while no thread was inside `undisturbed`."""
    _callbacks.append(callback)


def count() -> int:
    """How many forks lie between the first process and this one."""
    return _count


@contextmanager
def undisturbed() -> Iterator[None]:
    """Forks of other threads wait until it is left, at most `PATIENCE`."""
    with _fork_lock:
        yield


@cache
def prepare_to_leave() -> tuple[Any, Any] | None:
    """glibc's on_exit and _exit, None elsewhere: to be called before a fork, as nothing is imported
    right after one."""
    import ctypes

    try:
        library = ctypes.CDLL(None)
        return library.on_exit, library["_exit"]
    except (OSError, AttributeError, TypeError):
        return None


def leave_out_exit_handlers() -> None:
    """Have this process, a forked child, end without the exit handlers of libraries written in C
    and C++, which may join threads that only the parent has. Python's run."""
    functions = prepare_to_leave()
    if functions is not None:
        # The handler that comes last is called first: `_exit`, with the status.
        on_exit, end = functions
        on_exit(end, None)


def _before() -> None:
    _held.lock = _fork_lock if _fork_lock.acquire(timeout=PATIENCE) else None


def _after_in_parent() -> None:
    if _held.lock is not None:
        _held.lock.release()


def _after_in_child() -> None:
    global _count, _fork_lock
    clean = _held.lock is not None
    if clean:
        _held.lock.release()
    _fork_lock = threading.RLock()
    _count += 1
    for module, made in _renewed:
        module.update({name: make() for name, make in made.items()})
    for callback in _callbacks:
        callback(clean)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
