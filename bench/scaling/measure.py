"""One size of a sweep, measured in a separate process."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from .points import Point
from .sweeps import SWEEPS, Sweep

#: Seconds of runs that are enough for short runs.
_ENOUGH = 0.5


def measured(key: str, size: int, device: str | None, runs: int, limit: float) -> Point:
    """`measure` in a new process. A failure there, or more than ``limit`` seconds, is a point with
    a failure."""
    command = [sys.executable, "-m", "bench.scaling.measure", key, str(size), str(runs),
               *([device] if device else [])]
    failed = Point(size, SWEEPS[key].multiply_adds(size))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit,
            env={**os.environ, "WEBNN_VK_VALIDATE": "0"},
        )
    except subprocess.TimeoutExpired:
        return dataclasses.replace(failed, failure=f"more than {limit:.0f} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return dataclasses.replace(failed, failure=lines[-1])
    return Point(**json.loads(done.stdout))


def measure(context: Any, sweep: Sweep, size: int, runs: int) -> Point:
    """Build the model in this size and run it: once, then at least ``runs`` times."""
    start = time.perf_counter()
    with sweep.build(context, size).result() as graph:
        build = time.perf_counter() - start
        random = np.random.default_rng(1)
        feeds = {
            name: random.standard_normal(described.shape, np.float32)
            for name, described in graph.inputs.items()
        }
        for name, result in context.compute(graph, feeds).items():
            if not np.isfinite(result).all():
                raise ArithmeticError(f"{name} of {size} {sweep.unit} is not finite")
        times: list[tuple[float, float]] = []
        end = time.perf_counter() + _ENOUGH
        while len(times) < runs or time.perf_counter() < end:
            clock, processor = time.perf_counter(), time.process_time()
            context.compute(graph, feeds)
            times.append((time.perf_counter() - clock, time.process_time() - processor))
        steps = [step.device for step in graph.report().steps]
    clock, processor = map(statistics.median, zip(*times, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    on_host = steps.count("cpu") if context.device_info.is_vulkan else 0
    return Point(size, sweep.multiply_adds(size), clock, processor, build, peak, on_host)


def _main(key: str, size: int, runs: int, device: str | None) -> None:
    from webnn_vk.tools.devices import open_context

    with open_context(device) as context:
        print(json.dumps(dataclasses.asdict(measure(context, SWEEPS[key], size, runs))))


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), (sys.argv[4:] or [None])[0])
