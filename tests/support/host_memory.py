"""Bytes of host memory that a process has asked for: Python's and NumPy's (`tracemalloc`), and
maps without a file, where the library keeps large arrays.

Unlike resident memory, they don't depend on the C library's heap, on the system's pages or on what
ran before in the process. They leave out what drivers and engines allocate: devices count their own
memory, and engines are counted by their sessions. Call `start()` first in a process.
"""

from __future__ import annotations

import mmap
import tracemalloc
import weakref
from typing import Any


class _Counted(mmap.mmap):
    """A map that is counted while it exists, if it has no file."""

    bytes = most = 0

    def __new__(cls, fileno: int, length: int, *arguments: Any, **options: Any) -> Any:
        made = super().__new__(cls, fileno, length, *arguments, **options)
        if fileno == -1:
            _add(length)
            weakref.finalize(made, _add, -length).atexit = False
        return made


def _add(count: int) -> None:
    _Counted.bytes += count
    _Counted.most = max(_Counted.most, _Counted.bytes)


def start() -> None:
    """Count from here on; before webnn_vk is imported."""
    mmap.mmap = _Counted  # type: ignore[misc]
    tracemalloc.start()


def held() -> int:
    """The bytes of now."""
    return tracemalloc.get_traced_memory()[0] + _Counted.bytes


def begin_peak() -> None:
    """From here on `peak` looks for the most."""
    tracemalloc.reset_peak()
    _Counted.most = _Counted.bytes


def peak() -> int:
    """At least the most bytes at one time since `begin_peak`: the peaks of both kinds together."""
    return tracemalloc.get_traced_memory()[1] + _Counted.most
