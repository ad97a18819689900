"""Forks: the state that a forked child has to create again.

A child has only the thread that forked. Locks held by other threads stay locked for ever, and their
changes stay half done. So locks and sets of modules are replaced in the child (`renew`), and a fork
waits for threads that load modules or query Vulkan drivers (`undisturbed`). The parent's contexts
and devices raise an error when they are used in a child.
"""

from __future__ import annotations

# Imported here because it registers fork hooks: if another thread registered them while a fork
# waits for that thread, only the hooks after the fork would run, and release a lock that nobody
# holds.
import concurrent.futures.thread  # noqa: F401
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

#: Seconds that a fork waits for `undisturbed` blocks: a driver may hang.
PATIENCE = 5.0

#: Advice for messages.
SPAWN = "start the child by multiprocessing's 'spawn' method"

#: One for each kind of `undisturbed` blocks; a fork holds them all.
_locks = {kind: threading.RLock() for kind in ("modules", "glslang")}
_held = threading.local()
_count = 0
_renewed: list[tuple[dict[str, Any], dict[str, Callable[[], Any]]]] = []
_callbacks: list[Callable[[bool], None]] = []


def renew(module: dict[str, Any], **made: Callable[[], Any]) -> None:
    """Replace variables of a module (its ``globals()``) by new objects in every forked child."""
    _renewed.append((module, made))


def register(callback: Callable[[bool], None]) -> None:
    """Call ``callback`` in every forked child, after variables were replaced. Its argument says
    whether no thread was inside `undisturbed` at the fork."""
    _callbacks.append(callback)


def count() -> int:
    """The number of forks between the first process and this one."""
    return _count


@contextmanager
def undisturbed(kind: str = "modules") -> Iterator[None]:
    """A block during which forks of other threads wait, at most `PATIENCE`, and other blocks of its
    kind: "modules" for imports and queries of drivers, "glslang" for its compilations."""
    with _locks[kind]:
        yield


@cache
def prepare_to_leave() -> tuple[Any, Any] | None:
    """glibc's on_exit and _exit; None elsewhere. Called before a fork, because imports right after
    a fork may deadlock."""
    import ctypes

    try:
        library = ctypes.CDLL(None)
        return library.on_exit, library["_exit"]
    except (OSError, AttributeError, TypeError):
        return None


def leave_out_exit_handlers() -> None:
    """Let this process, a forked child, exit without the exit handlers of C and C++ libraries,
    which may join threads that only the parent has. Python's handlers run."""
    functions = prepare_to_leave()
    if functions is not None:
        # The handler registered last runs first: `_exit`, with the status.
        on_exit, end = functions
        on_exit(end, None)


def _before() -> None:
    end = time.monotonic() + PATIENCE
    _held.locks = [
        lock for lock in _locks.values() if lock.acquire(timeout=max(end - time.monotonic(), 0))
    ]


def _after_in_parent() -> None:
    for lock in _held.locks:
        lock.release()


def _after_in_child() -> None:
    global _count, _locks
    clean = len(_held.locks) == len(_locks)
    for lock in _held.locks:
        lock.release()
    _locks = {kind: threading.RLock() for kind in _locks}
    _count += 1
    for module, made in _renewed:
        module.update({name: make() for name, make in made.items()})
    for callback in _callbacks:
        callback(clean)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
