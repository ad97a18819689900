"""Measures work in calls and in allocated bytes: the same on every machine, under any load."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """The number of calls that ``function`` makes on this thread, of functions and of steps of
    generators. Coverage and profilers are suspended meanwhile, and so is the collection of garbage:
    finalizers of what earlier tests left would count."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return count


def peak_bytes_of(function: Callable[[], Any]) -> int:
    """The most memory that Python and NumPy have allocated at one time during ``function``, beyond
    what there was before: unlike the resident size, the same whatever ran before in the process."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
