"""LSTMs and GRUs on a Vulkan device and on the CPU device (ONNX Runtime, where it is installed)."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.tools.devices import open_context

from .table import show

#: Operator, steps, width of input and state, batch, direction.
CASES = (
    *(("lstm", steps, 128, 1, "forward") for steps in (10, 224, 1000)),
    ("lstm", 1000, 64, 1, "forward"), ("lstm", 224, 64, 1, "forward"),
    ("lstm", 224, 512, 1, "forward"), ("lstm", 1000, 512, 1, "forward"),
    ("lstm", 224, 128, 1, "both"),
    ("lstm", 224, 128, 16, "forward"), ("lstm", 224, 128, 16, "both"),
    ("lstm", 1000, 64, 16, "both"), ("lstm", 10, 512, 16, "both"),
    ("gru", 224, 128, 1, "forward"), ("gru", 224, 128, 16, "both"),
)


def main(device: str | None, runs: int) -> None:
    """Seconds from the builder to the first result, and median milliseconds of a run by the clock
    and of processor time, which other processes disturb less."""
    rows = []
    with open_context(device) as first, open_context("cpu") as cpu:
        print(first.device_info)
        for case in CASES:
            row = ["{} {} × {}, batch {}, {}".format(*case)]
            for context in (first, cpu):
                seconds, *milliseconds = _measure(context, runs, *case)
                row += [f"{seconds:.2f} s", *(f"{m:.2f} ms" for m in milliseconds)]
            rows.append(row)
    columns = "to the first result", "a run", "processor"
    show(("", *columns, *(f"CPU: {name}" for name in columns)), rows)


def _measure(
    context: MLContext, runs: int, kind: str, steps: int, width: int, batch: int, direction: str
) -> tuple[float, float, float]:
    random = np.random.default_rng(0)
    directions, gates = 2 if direction == "both" else 1, 4 if kind == "lstm" else 3
    feeds = {"x": random.standard_normal((steps, batch, width), np.float32)}
    start = time.perf_counter()
    builder = MLGraphBuilder(context)

    def weights(*shape: int) -> Any:
        return builder.constant(random.standard_normal(shape, np.float32) / np.float32(width))

    x = builder.input("x", {"data_type": "float32", "shape": [steps, batch, width]})
    results = getattr(builder, kind)(
        x, *(weights(directions, gates * width, width) for _ in range(2)), steps, width,
        bias=weights(directions, gates * width), direction=direction, return_sequence=True,
    )
    with builder.build({"y": results[-1]}).result() as graph:
        context.compute(graph, feeds)
        first = time.perf_counter() - start
        clock, processor = [], []
        for _ in range(runs):
            start, used = time.perf_counter(), time.process_time()
            context.compute(graph, feeds)
            clock.append(1e3 * (time.perf_counter() - start))
            processor.append(1e3 * (time.process_time() - used))
    return first, statistics.median(clock), statistics.median(processor)
