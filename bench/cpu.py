"""The CPU device compared with ONNX Runtime itself, alternating in one run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk import MLGraphBuilder
from webnn_vk.support.settings import Settings
from webnn_vk.tools import ToolError, need

from .models import mobilenet_v2
from .models.classic import WORKLOADS
from .table import show


def main(runs: int) -> None:
    """Median milliseconds, of wall clock and of processor time, of ``context.compute`` and of
    ONNX Runtime's ``run`` on the same graph as it is exported; ratios above 1 are ours."""
    need("bench cpu needs", "cpu")
    import onnxruntime

    from webnn_vk import ml

    asked = Settings(device="cpu", cpu_engine="onnxruntime")
    with ml.create_context(settings=asked).result() as context:
        print(f"ours    {context.device_info}\npeer    ONNX Runtime {onnxruntime.__version__}")
        rows, ratios = [], []
        for title in (*WORKLOADS, "MobileNetV2"):
            graph, model = _graph_and_model(context, title)
            row, ratio = _row(title, context, graph, _session(onnxruntime, model), runs)
            rows.append(row)
            ratios.append(ratio)
    columns = ("model", "ONNX Runtime ms", "ours ms", "ratio", "processor ms", "ours ms", "ratio")
    show([*columns, "steps not there"], rows)
    print(f"\ngeometric mean of the ratios by processor time: {_mean(ratios):.2f}")


def _graph_and_model(context: Any, title: str) -> tuple[Any, Any]:
    """Our graph, and the ONNX model of the calls that made it (of MobileNetV2: as compiled)."""
    from webnn_vk.onnx import export

    if title not in WORKLOADS:
        graph = mobilenet_v2.build(context).result()
        return graph, export(graph)
    builder = MLGraphBuilder(context)
    outputs = WORKLOADS[title](builder)
    model = export(outputs)
    return builder.build(outputs).result(), model


def _session(onnxruntime: Any, model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _row(
    title: str, context: Any, graph: Any, session: Any, runs: int
) -> tuple[list[str], float]:
    random = np.random.default_rng(1)
    feeds = {
        name: random.standard_normal(d.shape, np.float32) for name, d in graph.inputs.items()
    }
    (name,) = graph.outputs
    ours, peer = context.compute(graph, feeds)[name], session.run([name], feeds)[0]
    error = np.abs(ours - peer).max() / np.abs(peer).max()
    if not error < 1e-4:
        raise ToolError(f"{title}: the results differ by {error:.1e} of the largest")
    times: dict[str, list[tuple[float, float]]] = {"peer": [], "ours": []}
    calls: dict[str, Callable[[], Any]] = {
        "peer": lambda: session.run([name], feeds), "ours": lambda: context.compute(graph, feeds),
    }
    end = time.perf_counter() + 2
    while len(times["ours"]) < runs or time.perf_counter() < end:
        # Alternating, so that other load on the machine affects both.
        for who, call in calls.items():
            wall, processor = time.perf_counter(), time.process_time()
            call()
            times[who].append((time.perf_counter() - wall, time.process_time() - processor))
    medians = [
        statistics.median(pair[kind] for pair in times[who]) * 1e3
        for kind in (0, 1) for who in ("peer", "ours")
    ]
    wall, processor = medians[0] / medians[1], medians[2] / medians[3]
    elsewhere = sum(line.kernel == "numpy" for line in graph.report().lines)
    cells = [
        title, f"{medians[0]:.3f}", f"{medians[1]:.3f}", f"{wall:.2f}", f"{medians[2]:.3f}",
        f"{medians[3]:.3f}", f"{processor:.2f}", str(elsewhere),
    ]
    return cells, processor


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))
