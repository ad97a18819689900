"""Measures work in calls of Python and C functions: the same on every machine, under any load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """The number of calls that ``function`` makes on this thread, of functions and of steps of
    generators. Coverage and profilers are suspended meanwhile."""
    count = 0

    def counted(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
