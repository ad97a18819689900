"""The cost of each driver, in separate processes: dispatches, building, memory.

Times are processor times on all threads of the process, including threads of a software device, so
that other load on the machine matters little.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import MLGraphBuilder, Settings, ml
from webnn_vk.support.processor import processor
from webnn_vk.support.settings import DRIVERS

from .memory import resident
from .models import mobilenet_v2
from .processes import json_of
from .table import show

#: Titles of the measurements, in order.
MEASUREMENTS = {
    "dispatch": "dispatch of one step, µs",
    "step": "step that depends on the previous one, µs",
    "build": "MobileNetV2: build, s",
    "first": "MobileNetV2: first run, s",
    "run": "MobileNetV2: one run, s",
    "device": "MobileNetV2: device memory, MiB",
    "resident": "MobileNetV2: additional resident memory, MiB",
}
_STEPS = 64


def main(device: str | None, runs: int, path: Path | None) -> None:
    """Print the medians of `runs` for each driver as a table. `path`: a file for them as JSON."""
    measured: dict[str, Any] = {"processor": processor(), "date": time.strftime("%F")}
    for name in DRIVERS:
        measured[name] = json_of("-m", "bench.drivers", name, device or "vulkan", str(runs),
                                   title=f"{name}: ")
    rows = [
        [title, *(f"{measured[name][key]:.3g}" for name in DRIVERS)]
        for key, title in MEASUREMENTS.items()
    ]
    show(["process time", *DRIVERS], rows)
    if path is not None:
        path.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def measure(driver: str, device: str, runs: int) -> dict[str, Any]:
    """The measurements of one driver."""
    with ml.create_context(settings=Settings(device=device, driver=driver)).result() as context:
        measured: dict[str, Any] = {"name": str(context.device_info)}
        measured["dispatch"] = _dispatches(context, 1, runs)
        measured["step"] = _dispatches(context, _STEPS, runs) / _STEPS
        before = resident()
        image = {"image": mobilenet_v2.image()}
        measured["build"], graph = _timed(lambda: mobilenet_v2.build(context).result())
        measured["first"], _ = _timed(lambda: context.compute(graph, image))
        times = [_timed(lambda: context.compute(graph, image))[0] for _ in range(runs)]
        measured["run"] = statistics.median(times)
        measured["device"] = context._state.device.memory_in_use() / 2**20
        measured["resident"] = (resident() - before) / 2**20
        graph.destroy()
    return measured


def _dispatches(context: Any, steps: int, runs: int, count: int = 200) -> float:
    """Microseconds of a dispatch of a graph with this number of successive steps."""
    builder = MLGraphBuilder(context)
    descriptor = {"data_type": "float32", "shape": [4, 16], "readable": True, "writable": True}
    value = builder.input("x", {"data_type": "float32", "shape": [4, 16]})
    for _ in range(steps):
        value = builder.softmax(value, 1)
    count = max(10, count // steps)
    with builder.build({"y": value}).result() as graph:
        x, y = (context.create_tensor(descriptor).result() for _ in range(2))
        context.write_tensor(x, np.ones((4, 16), np.float32))

        def chain() -> None:
            for _ in range(count):
                context.dispatch(graph, {"x": x}, {"y": y})
            context.read_tensor(y).result()

        chain()
        return statistics.median(_timed(chain)[0] for _ in range(runs)) / count * 1e6


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
