"""The C library's heap."""

from __future__ import annotations

from functools import cache
from typing import Any


def trim_heap() -> None:
    """Return the free parts of the heap to the system. glibc would keep copies of up to 16 MB, and
    what other threads have freed. Does nothing with another C library."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, AttributeError, TypeError, OSError):
        return None
    trim.argtypes = (ctypes.c_size_t,)
    return trim
