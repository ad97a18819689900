"""When an allocation fails, free unused memory everywhere in the process and retry.

(When idle, timelines free it by ``device.Device.trim``.)
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from webnn_vk.driver import OutOfDeviceMemory, OutOfHostMemory
from webnn_vk.support.heap import trim_heap

_T = TypeVar("_T")

#: How often ``retry_on_oom`` tries.
TRIES = 3
_SHORTAGES = (MemoryError, OutOfDeviceMemory, OutOfHostMemory)


# Changed by single calls into C: a signal handler may come between any two steps.
_devices: dict[int, weakref.ref[Any]] = {}


def register(device: Any) -> None:
    """Include a DriverMemory, for as long as it lives. Its ``reclaim`` never raises."""
    key = id(device)
    _devices[key] = weakref.ref(device, lambda gone: _devices.pop(key, None))


def reclaim_all() -> None:
    """Have all devices of the process free what they can."""
    for reference in list(_devices.values()):
        device = reference()
        if device is not None:
            device.reclaim()
        del device


def retry_on_oom(allocate: Callable[[], _T]) -> _T:
    """``allocate()``. If memory is short, retry after all devices have freed unused memory, then
    once more after a garbage collection. Raises what ``allocate`` raises."""
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
