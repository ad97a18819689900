"""Host memory of a graph's weights: resident bytes before, while and after a model is built.

Counted are the process's anonymous and shared pages (RssAnon + RssShmem): on a software driver they
hold the device's memory too, on a GPU with its own memory they hold none of it.
"""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import MLGraphBuilder
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context

from .table import show

#: Products in a row, each with a constant matrix.
LAYERS = 4
MEGABYTES = 400
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Figures:
    """Bytes. ``peak`` and ``steady`` are growth over what the process had before the model."""

    weights: int
    before: int
    peak: int
    steady: int
    after_run: int
    on_device: int


def resident() -> int:
    """Bytes of anonymous and shared pages that the process has now."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        raise ToolError(f"{STATUS} can't be read: this measurement needs Linux") from None
    found = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(found[key].split()[0]) for key in ("RssAnon", "RssShmem"))


class Peak:
    """The highest ``resident()`` while inside, looked at every few milliseconds."""

    def __init__(self) -> None:
        self.bytes = resident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            self.bytes = max(self.bytes, resident())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def build(context: Any, side: int, layers: int = LAYERS) -> Any:
    """The graph y = relu(… relu(x · w0) … · wn), and the operands that a caller may still have."""
    builder = MLGraphBuilder(context)
    operands = [builder.input("x", {"data_type": "float32", "shape": [1, side]})]
    for layer in range(layers):
        weights = np.full((side, side), 1 / side, np.float32)
        # Different bytes in every page, so that none can be shared.
        weights[:, 0] += np.float32(layer)
        operands.append(builder.constant(weights))
        del weights  # before the next ones are made
        operands.append(builder.relu(builder.gemm(operands[-2], operands[-1])))
    return builder.build({"y": operands[-1]}).result(), operands


def measure(context: Any, megabytes: int) -> Figures:
    """Build a model with so many megabytes of weights, run it, and see what stays."""
    side = int((megabytes * 1e6 / LAYERS / 4) ** 0.5) // 8 * 8
    # What any graph needs: kernels, the driver's compiler, staging memory.
    small, _ = build(context, 64, 1)
    context.compute(small, {"x": np.ones((1, 64), np.float32)})
    gc.collect()
    before, on_device = resident(), context._state.device.memory_in_use()
    with Peak() as peak:
        graph, _operands = build(context, side)
    gc.collect()
    time.sleep(0.2)  # the build's own thread ends
    steady = resident()
    result = context.compute(graph, {"x": np.ones((1, side), np.float32)})["y"]
    if not np.isfinite(result).all():
        raise ToolError("the model's result is not finite")
    gc.collect()
    return Figures(
        LAYERS * side * side * 4,
        before,
        peak.bytes - before,
        steady - before,
        resident() - before,
        context._state.device.memory_in_use() - on_device,
    )


def main(device: str | None, megabytes: int = MEGABYTES) -> None:
    with open_context(device) as context:
        figures = measure(context, megabytes)
    print(f"{LAYERS} products with constant matrices, {figures.weights / 1e6:.0f} MB of weights")
    rows = [
        [name, f"{value / 1e6:.0f}", f"{value / figures.weights:.2f}"]
        for name, value in (
            ("before", figures.before),
            ("peak of the build, more than before", figures.peak),
            ("after the build, more than before", figures.steady),
            ("after a run, more than before", figures.after_run),
            ("the device's own account", figures.on_device),
        )
    ]
    show(["resident memory", "MB", "× weights"], rows)
