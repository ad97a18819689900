"""A new process from its start to a model's first result, in stages: with empty caches, and with
the caches that this left."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .models import classic, mobilenet_v2
from .processes import begun, cold_environment, json_of


def _described(describe: classic.Describe) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        import webnn_vk

        builder = webnn_vk.MLGraphBuilder(context)
        return builder.build(describe(builder))

    return build


#: Name → a function from a context to the promise of a graph.
MODELS: Mapping[str, Callable[[Any], Any]] = {
    "MobileNetV2": mobilenet_v2.build,
    "ResNet-50": _described(classic.resnet50),
    "BERT, 2 layers": _described(classic.bert(2)),
}
#: The stages of a build by their names in `MLGraph.report`; "load" where it is loaded.
_REPORTED = ("compile", "load", "shaders", "pipelines", "memory")
_STAGES = ("import", "context", "describe", "build", *_REPORTED, "set-up", "first run", "total",
           "one run")


def main(device: str | None, models: Sequence[str] | None, file: Path | None) -> None:
    """Start three processes for each model and print a table of their stages. One begins with empty
    caches and saves the graph, one builds it again, one loads it."""
    from webnn_vk.codegen.archive import find_archive

    from .table import show

    if find_archive() is None:
        print("without a shader archive, which wheels have: WEBNN_VK_PACK can name one")
    written = []
    for name in models or MODELS:
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for what in ("empty caches", "again", "load_graph"):
                result = _measured(name, what, device, folder)
                written.append({"model": name, "start": what, **result})
                for kind in ("clock", "processor"):
                    known = [result[kind].get(stage) for stage in _STAGES]
                    cells = ["" if seconds is None else f"{seconds:.2f}" for seconds in known]
                    rows.append([f"{what}, {kind}", *cells, f"{result['peak']:.0f}"])
        first = written[-3]
        print(
            f"\n{name} on {first['device']}: {first['weights']:.0f} MB of weights, "
            f"{first['pipelines']} pipelines; shaders of "
            + ", ".join(f"{origin}: {count}" for origin, count in first["origins"].items())
            + "; seconds"
        )
        show(["", *_STAGES, "peak MB"], rows)
    if file is not None:
        file.write_text(json.dumps(written, indent=1, ensure_ascii=False))


def _measured(name: str, what: str, device: str | None, folder: str) -> dict[str, Any]:
    return json_of("-m", "bench.cold", name, what, device or "",
                     variables=cold_environment(folder))


class _Stopwatch:
    """Seconds between marks: of wall clock, and of processor time on all threads."""

    def __init__(self) -> None:
        """Begins at the start of the process, so Python's start and all imports count."""
        self.times: dict[str, dict[str, float]] = {"clock": {}, "processor": {}}
        self._last = {"clock": begun(), "processor": 0.0}

    @staticmethod
    def _now() -> dict[str, float]:
        return {"clock": time.perf_counter(), "processor": time.process_time()}

    def mark(self, stage: str = "") -> None:
        """Mark the end of a stage; "": time that belongs to no stage."""
        now = self._now()
        for kind, times in self.times.items():
            if stage:
                times[stage] = now[kind] - self._last[kind]
        self._last = self._now()


def measure(name: str, what: str, device: str | None) -> dict[str, Any]:
    """This process's stages for one of `MODELS`, and the other columns of the table."""
    stopwatch = _Stopwatch()
    import resource

    import webnn_vk
    from webnn_vk.api.ml_graph import executable_of
    from webnn_vk.tools.devices import open_context

    # Modules that the package loads on first use.
    webnn_vk.MLGraphBuilder, webnn_vk.ml.create_context  # noqa: B018
    stopwatch.mark("import")
    context = open_context(device)
    stopwatch.mark("context")
    if what == "load_graph":
        promise = context.load_graph("cold")
    else:
        promise = MODELS[name](context)
        stopwatch.mark("describe")
    graph = promise.result()
    stopwatch.mark("build")
    random = np.random.default_rng(1)
    feeds = {
        key: random.standard_normal(described.shape, np.float32)
        for key, described in graph.inputs.items()
    }
    stopwatch.mark()
    context.compute(graph, feeds)
    stopwatch.mark("first run")
    for times in stopwatch.times.values():
        times["total"] = sum(times.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stopwatch.mark()
    context.compute(graph, feeds)
    stopwatch.mark("one run")
    executable, reported = executable_of(graph), graph.report().build_seconds
    if what == "empty caches":
        context.save_graph("cold", graph).result()
    stopwatch.times["clock"] |= {stage: reported[stage] for stage in _REPORTED if stage in reported}
    stopwatch.times["clock"]["set-up"] = stopwatch.times["clock"]["build"] - sum(reported.values())
    return {
        **stopwatch.times,
        "device": str(context.device_info),
        "peak": peak,
        "weights": graph.report().weight_bytes / 1e6,
        "pipelines": len({(s.spec, s.constants) for s in executable.program.dispatches}),
        "origins": executable.device.shaders.origins,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], sys.argv[3] or None)))
