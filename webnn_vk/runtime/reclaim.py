"""Memory that nobody uses any more goes back at once when anyone in the process runs out of it.

(While all is idle the timelines see to it: ``device.Device.rest``.)
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from webnn_vk.driver import OutOfDeviceMemory, OutOfHostMemory

_T = TypeVar("_T")

#: How often ``insist`` tries.
TRIES = 3
_SHORTAGES = (MemoryError, OutOfDeviceMemory, OutOfHostMemory)


class Keeps(Protocol):
    """A device that may hold memory which nobody uses."""

    def reclaim(self) -> None:
        """Give back what nobody uses, and what is kept to be quick. Never raises."""


# Changed by single calls into C: a signal handler may come between any two steps.
_devices: dict[int, weakref.ref[Any]] = {}


def watch(device: Keeps) -> None:
    """Ask a device too, for as long as it lives."""
    key = id(device)
    _devices[key] = weakref.ref(device, lambda gone: _devices.pop(key, None))


def reclaim_all() -> None:
    """Have all devices of the process give back what they can."""
    for reference in list(_devices.values()):
        device = reference()
        if device is not None:
            device.reclaim()
        del device


def insist(allocate: Callable[[], _T]) -> _T:
    """``allocate()``, tried again for want of memory when everyone in the process has given back
    what nobody uses, and once more without the cycles of objects that nobody can reach. Raises as
    it does."""
    try:
        return allocate()
    except _SHORTAGES:
        reclaim_all()
    try:
        return allocate()
    except _SHORTAGES:
        gc.collect()
        reclaim_all()
        trim_heap()
    return allocate()


def trim_heap() -> None:
    """Have the C library give back the free parts of its heap (glibc; others do it or can't):
    copies of 16 MB would stay there."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Any:
    try:
        import ctypes

        trim = ctypes.CDLL(None).malloc_trim
    except (ImportError, AttributeError, TypeError, OSError):
        return None
    trim.argtypes = (ctypes.c_size_t,)
    return trim
