"""A new process from import to the first MiniLM embedding, in stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

STAGES = ("import", "weights", "build", "driver compile", "run")
SENTENCE = "How long does it take from nothing to the first embedding?"


def main(device: str | None, runs: int) -> None:
    """Start `runs` processes with caches warm (one more goes first) and show each, and the best."""
    from .table import show

    command = [sys.executable, "-m", "bench.startup", *([device] if device else [])]
    environment = {**os.environ, "WEBNN_VK_VALIDATE": "0"}
    results = []
    for _ in range(runs + 1):
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            from webnn_vk.tools import ToolError

            raise ToolError((done.stderr.strip().splitlines() or ["no message"])[-1])
        results.append(json.loads(done.stdout))
    print(f"{results[0]['device']}; seconds from import to the first embedding; one sentence")
    warm = results[1:]
    best = min(warm, key=lambda result: result["total"])
    named = [("cold", results[0])]
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
    """This process's stages in seconds; the first line of the process has to be this call."""
    start = time.perf_counter()
    from webnn_vk.tools.devices import open_context
    from webnn_vk.tools.sentence_encoder import SentenceEncoder, load_model

    imported = time.perf_counter()
    model = load_model()
    context = open_context(device)
    encoder = SentenceEncoder(context, model)
    loaded = time.perf_counter()
    encoder.prepare(encoder.plan([SENTENCE])[1])
    built = time.perf_counter()
    encoder.encode([SENTENCE])
    end = time.perf_counter()
    # A driver may compile as late as the first submit: what the first run takes longer.
    encoder.encode([SENTENCE])
    run = min(time.perf_counter() - end, end - built)
    return {
        "device": str(context.device_info),
        "import": imported - start,
        "weights": loaded - imported,
        "build": built - loaded,
        "driver compile": end - built - run,
        "run": run,
        "total": end - start,
    }


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:2] or [None])))
