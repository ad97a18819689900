"""LSTMs and GRUs on a Vulkan device, on the CPU device (ONNX Runtime, where it is installed) and in
ncnn, where that is installed."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.tools.devices import open_context

from .ncnn_recurrent import runner
from .table import show

#: Operator, steps, width of input and state, batch, direction.
Case = tuple[str, int, int, int, str]
CASES: tuple[Case, ...] = (
    *itertools.product(("lstm",), (10, 224, 1000), (64, 128, 512), (1, 16), ("forward", "both")),
    ("gru", 224, 128, 1, "forward"), ("gru", 224, 128, 16, "both"),
)
#: Seconds after which a case is not run again.
PATIENCE = 2.0
#: Results of others may differ by so much of the largest element.
TOLERANCE = 1e-3


def named(case: Case) -> str:
    """A case in words."""
    return "{} {} × {}, batch {}, {}".format(*case)


def main(device: str | None, runs: int, cases: Sequence[Case] = CASES) -> None:
    """Seconds from the builder to the first result, and medians of a run in milliseconds, by the
    clock and of processor time, which other processes disturb less. ``ratio``: the processor time
    of the faster other one, divided by the first device's."""
    rows = []
    with open_context(device) as first, open_context("cpu") as cpu:
        print(first.device_info)
        for case in cases:
            operands = _operands(*case)
            run, seconds = _graph(first, case, *operands)
            wanted = run()
            clock, processor = _times(run, runs)
            row = [named(case), f"{seconds:.2f} s", f"{clock:.2f} ms", f"{processor:.2f} ms"]
            others = []
            for other in (_graph(cpu, case, *operands)[0], runner(case[0], *operands)):
                if other is None:
                    row += ["", ""]
                    continue
                _check(other(), wanted, case)
                clock, used = _times(other, runs)
                others.append(used)
                row += [f"{clock:.2f} ms", f"{used:.2f} ms"]
            rows.append([*row, f"{min(others) / processor:.2f}"])
    columns = "a run", "processor"
    show(
        ("", "to the first result", *columns, *(f"CPU: {name}" for name in columns),
         *(f"ncnn: {name}" for name in columns), "ratio"), rows,
    )


def _operands(
    kind: str, steps: int, width: int, batch: int, direction: str
) -> tuple[np.ndarray, ...]:
    """Input, weights, recurrent weights and bias."""
    random = np.random.default_rng(0)
    directions, gates = 2 if direction == "both" else 1, 4 if kind == "lstm" else 3

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) / np.float32(width)

    x = random.standard_normal((steps, batch, width), np.float32)
    return (
        x, weights(directions, gates * width, width), weights(directions, gates * width, width),
        weights(directions, gates * width),
    )


def _graph(
    context: MLContext, case: Case, x: np.ndarray, *weights: np.ndarray
) -> tuple[Callable[[], np.ndarray], float]:
    """A function that computes all steps' outputs, and the seconds to the first result."""
    kind, steps, width, _, direction = case
    start = time.perf_counter()
    builder = MLGraphBuilder(context)
    weight, recurrent, bias = map(builder.constant, weights)
    operand = builder.input("x", {"data_type": "float32", "shape": list(x.shape)})
    options: dict[str, Any] = {"direction": direction, "return_sequence": True, "bias": bias}
    results = getattr(builder, kind)(operand, weight, recurrent, steps, width, **options)
    graph = builder.build({"y": results[-1]}).result()
    context.compute(graph, {"x": x})
    return lambda: context.compute(graph, {"x": x})["y"], time.perf_counter() - start


def _times(run: Callable[[], Any], runs: int) -> tuple[float, float]:
    """Medians in milliseconds: by the clock, and of processor time."""
    clock: list[float] = []
    processor: list[float] = []
    while len(clock) < runs and sum(clock) < 1e3 * PATIENCE:
        start, used = time.perf_counter(), time.process_time()
        run()
        clock.append(1e3 * (time.perf_counter() - start))
        processor.append(1e3 * (time.process_time() - used))
    return statistics.median(clock), statistics.median(processor)


def _check(found: np.ndarray, wanted: np.ndarray, case: Case) -> None:
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    if not error <= TOLERANCE:
        raise SystemExit(f"{case}: results differ by {error:.2g} of the largest element")
