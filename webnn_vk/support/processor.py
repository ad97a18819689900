"""The processor that the program runs on."""

from __future__ import annotations

import os
import sys
from functools import cache


@cache
def processor() -> str:
    """The processor's name."""
    if sys.platform == "linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
                for line in file:
                    if line.startswith("model name"):
                        return line.partition(":")[2].strip()
        except OSError:
            pass
    import platform

    return platform.processor() or platform.machine()


def cores() -> int:
    """The number of processors that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
