"""What a call costs its caller: a dispatch and the wait for it, a write with a dispatch and a read,
and `compute`, of 16 numbers; thread switches of the whole process, and calls per second of threads.

On the null driver nothing runs, so that all of it is the library's own time.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder, Settings, ml

from .processes import json_of
from .table import show

#: The measured calls.
CALLS = ("fence and wait", "dispatch and wait", "write, dispatch and read", "compute")
#: How many threads call at the same time.
THREADS = (1, 2, 12)
#: Calls in a row, whose time is divided by their number.
ROW = 100
_SIXTEEN = {"data_type": "float32", "shape": [16]}


class _World:
    """y = max(x, 0) on tensors of 16 numbers."""

    def __init__(self, context: MLContext) -> None:
        builder = MLGraphBuilder(context)
        output = builder.relu(builder.input("x", _SIXTEEN))
        self.context, self.graph = context, builder.build({"y": output}).result()
        described = {**_SIXTEEN, "readable": True, "writable": True}
        self.x, self.y = (context.create_tensor(described).result() for _ in range(2))
        self.data = np.arange(16, dtype=np.float32)

    def dispatch(self) -> None:
        self.context.dispatch(self.graph, {"x": self.x}, {"y": self.y})

    def call(self, name: str) -> Callable[[], Any]:
        """One of ``CALLS``."""

        def dispatched() -> None:
            self.dispatch()
            self.context.fence().wait()

        def read() -> None:
            self.context.write_tensor(self.x, self.data)
            self.dispatch()
            self.context.read_tensor(self.y).result()

        return {
            CALLS[0]: lambda: self.context.fence().wait(), CALLS[1]: dispatched, CALLS[2]: read,
            CALLS[3]: lambda: self.context.compute(self.graph, {"x": self.data}),
        }[name]


def main(device: str | None, runs: int) -> None:
    """Print the medians of `runs` rows of calls, on the null driver and on the device."""
    measured = {
        title: json_of("-m", "bench.calls", driver, device or "vulkan", str(runs),
                       title=f"{title}: ")
        for title, driver in (("null driver", "null"), (device or "vulkan", "vulkan"))
    }
    rows = [
        [f"{call}, {unit}", *(f"{of[unit][call]:.{digits}f}" for of in measured.values())]
        for unit, digits in (("µs", 1), ("thread switches", 2)) for call in CALLS
    ]
    rows += [
        [f"{call}, calls/s of {number} thread{'s' * (number > 1)}",
         *(f"{of['rates'][call][str(number)]:.0f}" for of in measured.values())]
        for call in CALLS[2:] for number in THREADS
    ]
    show(["a call", *measured], rows)


def measure(driver: str, device: str, runs: int) -> dict[str, Any]:
    """The figures of one driver."""
    if driver == "null":
        # One that pretends to be a GPU, whose memory the host doesn't see.
        os.environ["WEBNN_VK_NULL_DEVICES"] = "1"
        warnings.simplefilter("ignore")
        device = "vulkan"
    found: dict[str, Any] = {"µs": {}, "thread switches": {}, "rates": {}}
    with ml.create_context(settings=Settings(device=device, driver=driver)).result() as context:
        world = _World(context)
        for name in CALLS:
            call = world.call(name)
            for _ in range(ROW):
                call()
            switches, times = _switches(), []
            for _ in range(runs):
                begun = time.perf_counter()
                for _ in range(ROW):
                    call()
                times.append((time.perf_counter() - begun) / ROW)
            found["thread switches"][name] = (_switches() - switches) / runs / ROW
            found["µs"][name] = statistics.median(times) * 1e6
        for name in CALLS[2:]:
            found["rates"][name] = {number: _rate(context, name, number) for number in THREADS}
    return found


def _switches() -> int:
    """How often a thread of this process has waited so far."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text(encoding="utf-8").splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return total


def _rate(context: MLContext, name: str, number: int, seconds: float = 1.0) -> float:
    """Calls per second of ``number`` threads, each with its own graph and tensors."""
    calls = [_World(context).call(name) for _ in range(number)]
    counts, over = [0] * number, threading.Event()

    def run(index: int) -> None:
        while not over.is_set():
            calls[index]()
            counts[index] += 1

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    first, begun = sum(counts), time.perf_counter()
    time.sleep(seconds)
    rate = (sum(counts) - first) / (time.perf_counter() - begun)
    over.set()
    for thread in threads:
        thread.join()
    return rate


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
