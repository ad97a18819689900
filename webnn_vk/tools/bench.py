"""``webnn-vk bench``: how long a model takes, also with ONNX Runtime on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from webnn_vk.api.ml_graph import executable_of
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.formatting import duration

from . import ToolError
from .loaded_model import LoadedModel, Options, Tensors, loaded
from .models import OpenedModel, need_packages, onnx_package
from .output import emit, facts, size, table

#: Runs before the measured ones, while the driver compiles, caches fill and clocks rise.
WARM_UP = 2
#: Runs that are queued at once to measure throughput.
QUEUED = 16


@dataclass(frozen=True)
class Timings:
    """The timings of one engine. Latencies are in seconds, of a run with its inputs written and its
    outputs read. ``per_second``: runs without waiting for the host. ``memory``: bytes on the
    device, None where unknown."""

    engine: str
    runs: int
    median: float
    fastest: float
    p10: float
    p90: float
    per_second: float
    memory: int | None = None
    gflops: float | None = None


def timings(engine: str, seconds: Sequence[float], per_second: float, **more: Any) -> Timings:
    """The timings of measured runs."""
    low, median, high = np.percentile(seconds, [10, 50, 90])
    return Timings(
        engine, len(seconds), float(median), float(min(seconds)), float(low), float(high),
        per_second, **more,
    )


def bench(options: Options, runs: int | None, seconds: float, compare: str | None) -> None:
    """Measure and print. ``runs``: how many; by default as many as fit into ``seconds``."""
    need_packages(options.model, *(("cpu",) if compare is not None else ()))
    with loaded(options) as model:
        bar = model.bar
        engines: dict[str, Callable[[], Any]] = {}
        tensors = Tensors(model.context, model.graph)

        def ours() -> dict[str, np.ndarray]:
            tensors.write(model.feeds)
            tensors.dispatch()
            return tensors.read()

        engines["webnn_vk"] = ours
        if compare is not None:
            engines[compare] = onnxruntime_of(model)
        bar.begin("warming up")
        results = {name: run() for name, run in engines.items() for _ in range(WARM_UP)}
        latencies = alternate(engines, runs, seconds, bar)
        bar.begin("measuring throughput")
        count = max(1, min(QUEUED, round(seconds / np.median(latencies["webnn_vk"]))))
        rate = throughput(tensors, count)
        flops = executable_of(model.graph).cost.flops
        rows = [timings("webnn_vk", latencies["webnn_vk"], rate, memory=model.memory(),
                        gflops=flops * rate / 1e9)]
        difference = None
        if compare is not None:
            taken = latencies[compare]
            rows.append(timings(compare, taken, len(taken) / sum(taken)))
            difference = largest_difference(results["webnn_vk"], results[compare])
        _print(model, rows, difference)


def alternate(
    engines: Mapping[str, Callable[[], Any]], runs: int | None, seconds: float, bar: Any
) -> dict[str, list[float]]:
    """Seconds of each run, by engine. The engines take turns, so that other load on the machine
    affects all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in engines}
    bar.begin("measuring", runs)
    end = time.perf_counter() + seconds * len(engines)
    done = 0
    while done < runs if runs is not None else done < 3 or time.perf_counter() < end:
        for name, run in engines.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
        done += 1
        bar.step()
    return taken


def throughput(tensors: Tensors, count: int) -> float:
    """Runs per second with ``count`` queued at once, on tensors that stay on the device."""
    tensors.context.fence().wait()
    start = time.perf_counter()
    for _ in range(count):
        tensors.dispatch()
    tensors.context.fence().wait()
    return count / (time.perf_counter() - start)


def onnxruntime_of(model: LoadedModel) -> Callable[[], dict[str, np.ndarray]]:
    """A function that runs the model by ONNX Runtime on the CPU on the same inputs: the file
    itself, or the exported graph of another model. ``ToolError`` where that is impossible."""
    if model.opened.kind == "cache":
        raise ToolError(
            "--compare: a saved graph holds kernels, not the operators that ONNX Runtime needs"
        )
    try:
        import onnxruntime
    except ImportError as error:  # installed, but broken
        raise ToolError(f"--compare: onnxruntime can't be imported: {error}") from None
    opened = model.opened
    source: Any = model.options.model
    if opened.kind != "onnx":
        source = onnx_package().export(opened.graph).SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base
        raise ToolError(f"--compare: ONNX Runtime can't take the model: {error}") from None
    feeds = onnx_feeds(opened, model.feeds, {i.name for i in session.get_inputs()})
    names = [output.name for output in session.get_outputs()]
    names = [name for name in names if name in opened.graph.outputs] or names

    def run() -> dict[str, np.ndarray]:
        return dict(zip(names, session.run(names, feeds), strict=True))

    try:
        run()
    except Exception as error:
        raise ToolError(f"--compare: ONNX Runtime can't run the model: {error}") from None
    return run


def onnx_feeds(
    model: OpenedModel, feeds: Mapping[str, np.ndarray], wanted: set[str]
) -> dict[str, np.ndarray]:
    """The inputs in ONNX's data types; zeros for inputs that no output depends on."""
    arrays = {**feeds, **model.bound}
    for name in wanted - arrays.keys():
        shape = [d if isinstance(d, int) else 1 for d in model.ports[name].shape or ()]
        arrays[name] = np.zeros(shape)
    return {name: arrays[name].astype(model.ports[name].type) for name in sorted(wanted)}


def largest_difference(
    ours: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> float | None:
    """The largest difference of outputs that both engines have, where both values are finite,
    relative to the output's largest element (at least 1)."""
    largest = None
    for name in ours.keys() & others.keys():
        a, b = ours[name].astype(np.float64), np.asarray(others[name]).astype(np.float64)
        if a.shape != b.shape:
            raise ToolError(f"--compare: output {name!r} has the shapes {a.shape} and {b.shape}")
        finite = np.isfinite(a) & np.isfinite(b)
        if finite.any():
            scale = max(1.0, float(np.abs(b[finite]).max()))
            largest = max(largest or 0.0, float(np.abs(a[finite] - b[finite]).max()) / scale)
    return largest


def _print(model: LoadedModel, rows: Sequence[Timings], difference: float | None) -> None:
    report = model.report
    if model.options.json:
        emit({
            "model": model.title, "device": model.device, "build_seconds": model.build_seconds,
            "flops": executable_of(model.graph).cost.flops,
            "arena_bytes": report.arena_bytes, "weight_bytes": report.weight_bytes,
            "engines": rows, "largest_difference": difference,
        })
        return
    facts([("Device", model.device), ("Model", f"{model.title}: {report.summary}"),
           ("Build", duration(model.build_seconds))])
    print()
    head = ("engine", "runs", "median", "p10", "p90", "fastest", "runs/s", "GFLOP/s", "memory")
    table(head, [
        (row.engine, row.runs, *map(duration, (row.median, row.p10, row.p90, row.fastest)),
         f"{row.per_second:.2f}", "" if row.gflops is None else f"{row.gflops:.2f}",
         "" if row.memory is None else size(row.memory))
        for row in rows
    ], right=head[1:])
    if difference is not None:
        print(f"\nLargest difference of outputs: {difference:.2e} of the largest element")
