"""A new process from its start to the first MiniLM embedding, in stages."""

from __future__ import annotations

import json
import sys
import tempfile
import time

from .processes import begun, cold_environment, json_of

STAGES = ("import", "weights", "build", "driver compile", "run")
SENTENCE = "How long does it take from nothing to the first embedding?"


def main(device: str | None, runs: int) -> None:
    """Start one process with empty caches, then `runs` processes with its caches; show all and the
    best."""
    from .table import show

    command = ["-m", "bench.startup", *([device] if device else [])]
    with tempfile.TemporaryDirectory() as folder:
        results = [json_of(*command, variables=cold_environment(folder))
                   for _ in range(runs + 1)]
    print(f"{results[0]['device']}; seconds from start to the first embedding; one sentence")
    warm = results[1:]
    best = min(warm, key=lambda result: result["total"])
    named = [("empty caches", results[0])]
    named += [(f"run {index + 1}", result) for index, result in enumerate(warm)]
    named += [("best", best)]
    show(
        ["", *STAGES, "total"],
        [
            [name, *(f"{result[stage]:.2f}" for stage in (*STAGES, "total"))]
            for name, result in named
        ],
    )


def measure(device: str | None) -> dict[str, float | str]:
    """This process's stages in seconds, from its start."""
    start = begun()
    from webnn_vk.examples.sentence_encoder import SentenceEncoder, load_model
    from webnn_vk.tools.devices import open_context

    imported = time.perf_counter()
    model = load_model()
    context = open_context(device)
    encoder = SentenceEncoder(context, model)
    loaded = time.perf_counter()
    encoder.prepare(encoder.plan([SENTENCE])[1])
    built = time.perf_counter()
    encoder.encode([SENTENCE])
    end = time.perf_counter()
    encoder.encode([SENTENCE])
    run = min(time.perf_counter() - end, end - built)
    graphs = encoder.graphs.values()
    pipelines = sum(graph.report().build_seconds.get("pipelines", 0.0) for graph in graphs)
    return {
        "device": str(context.device_info),
        "import": imported - start,
        "weights": loaded - imported,
        "build": built - loaded - pipelines,
        # The creation of pipelines, and work that the driver leaves for the first run.
        "driver compile": pipelines + end - built - run,
        "run": run,
        "total": end - start,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:2] or [None])))
