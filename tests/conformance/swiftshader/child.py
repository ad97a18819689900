"""The process that runs the sample: `python -m tests.conformance.swiftshader.child RESULT.json`.

Started by `test_swiftshader.py` with the driver's manifest in the environment. Writes JSON: the
device; how many vectors and examples ran; their coverage; failures, steps on the CPU and messages
of the validation layer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import webnn_vk
from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.example import Example, run
from tests.conformance.swiftshader import sample
from tests.conformance.wpt import conformance
from webnn_vk.driver.vulkan.instance import instance, reported

#: Random vectors, in addition to those that always run.
RANDOM = 25
#: Examples in one graph.
_BATCH = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--seed", default="", help="of the vectors chosen by chance")
    parser.add_argument("--operator", help="only what uses this one")
    options = parser.parse_args()
    start = time.perf_counter()
    warnings.simplefilter("ignore", RuntimeWarning)
    every = sample.vectors(options.operator)
    covering = sample.covering_vectors(every)
    chance = sample.random_vectors(every, RANDOM, options.seed)
    wanted = sample.allowed(options.operator)
    by_vectors = sample.triples(use for vector in covering for use in vector.uses)
    examples = sample.covering_examples(wanted - by_vectors)
    chosen = time.perf_counter() - start
    # As inputs, so that the kernels compute everything; and as users build it: folded and fused.
    device, tally = run_vectors(covering, "inputs")
    _, fused = run_vectors(chance, "default")
    failures, by_examples = run_examples(examples)
    covered = by_vectors | by_examples
    uses = {use for vector in every for use in vector.uses}
    result = {
        "device": device,
        "validating": instance().validating,
        "messages": reported,
        "vectors": {"passed": tally.passed, "failed": tally.failed},
        "chance": {"passed": fused.passed, "failed": fused.failed},
        "examples": len(examples),
        "cpu_steps": tally.cpu_steps + fused.cpu_steps,
        "failures": tally.failures + fused.failures + failures,
        "operators": len({name for name, _, _ in covered}),
        "uses": len(uses),
        "uses_not_covered": len(uses - {use for vector in covering for use in vector.uses}),
        "types_by_vectors": len(by_vectors),
        "types_by_examples": len(by_examples - by_vectors),
        "types": len(wanted),
        "types_not_covered": sorted(map(list, wanted - covered)),
        "seconds": time.perf_counter() - start,
        "seconds_choosing": chosen,
        "cpu_seconds": time.process_time(),
    }
    options.result.write_text(json.dumps(result), encoding="utf-8")
    return 0


def run_vectors(vectors: list[sample.Vector], variant: str) -> tuple[str, conformance.Tally]:
    """The device's description, and the outcome of the vectors."""
    tally = conformance.Tally()
    settings = conformance.settings_for("vulkan", variant)
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        for vector in vectors:
            conformance.run(context, tally, vector.file, vector.case, variant)
        return str(context.device_info), tally


def run_examples(examples: list[Example]) -> tuple[list[str], set[sample.Triple]]:
    """(failures, coverage of the examples that passed): results compared with the NumPy reference.
    """
    failures: list[str] = []
    had: set[sample.Triple] = set()
    with (
        context_on("vulkan") as device,
        context_on("cpu") as cpu,
    ):
        for at in range(0, len(examples), _BATCH):
            batch = examples[at : at + _BATCH]
            expected = run(cpu, batch)
            try:
                # Fails if a step runs on the CPU.
                results = run(device, batch)
            except Exception as error:
                failures.append(f"{batch}: {type(error).__name__}: {error}")
                continue
            for example, got, reference in zip(batch, results, expected, strict=True):
                error = mismatch(example, got, reference)
                if error:
                    failures.append(f"{error}\n{example.in_full()}")
                else:
                    had |= sample.triples([(example.operator, example.types())])
    return failures, had


def context_on(device: str) -> Any:
    """A context on "vulkan" or "cpu" with the conformance tests' settings."""
    return webnn_vk.ml.create_context(
        settings=conformance.settings_for(device, "default")
    ).result()


if __name__ == "__main__":
    sys.exit(main())
