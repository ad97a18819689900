"""The environment of processes that are measured: not the developer's settings decide."""

from __future__ import annotations

import os
import time

#: What says which library is measured, and on what.
_KEPT = ("WEBNN_VK_PACK", "WEBNN_VK_DEVICE")
#: When the process was started, by the clock of this machine.
BEGUN = "BENCH_BEGUN"


def environment(**more: str) -> dict[str, str]:
    """This process's, without our library's settings (a cache folder, tuning, an engine) but for
    those that are kept, with ``more``."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("WEBNN_VK_") or n in _KEPT}
    return {**kept, **more}


def begun() -> float:
    """When this process was started, by `time.perf_counter`: so says who started it."""
    return float(os.environ.get(BEGUN) or time.perf_counter())
