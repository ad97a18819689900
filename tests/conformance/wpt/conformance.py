"""Runs the conformance vectors on a device.

    python -m tests.conformance.wpt.conformance [--device vulkan|cpu] [--variant …]
                                                [--file NAME …] [--verbose]

Prints ``passed failed skipped cpu_steps``. Fails if a case fails, a step runs on the CPU of a
Vulkan device, or a skip is not listed in ``skipped.json``. Variants: ``default``; ``unfolded``
turns every optional pass off; ``inputs`` passes the vectors' constants as inputs too, so that the
kernels compute everything; ``saved`` saves each graph, loads it again, and requires the same bits
of both; ``tuned`` measures the kernels of each graph first.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import webnn_vk
from tests.conformance.wpt import suite
from webnn_vk import MLContext, MLGraphBuilder, Settings
from webnn_vk.compiler.program.compile import PASSES

VARIANTS = ("default", "unfolded", "inputs", "saved", "tuned")
#: Passes that ``unfolded`` leaves out: all optional ones.
ALL_PASSES = tuple(dict.fromkeys(p.name for p in PASSES if not p.required))


@dataclass
class Tally:
    """Counts of one run; ``failures`` has the messages."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    cpu_steps: int = 0
    unlisted: int = 0
    #: Skipped cases of which some expectations were checked.
    in_part: int = 0
    failures: list[str] = field(default_factory=list)
    by_operator: dict[str, list[int]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        ran = self.passed + self.skipped
        return ran > 0 and not (self.failed or self.cpu_steps or self.unlisted)

    def __str__(self) -> str:
        return (
            f"passed {self.passed} failed {self.failed} skipped {self.skipped} "
            f"cpu_steps {self.cpu_steps}"
        )


def settings_for(device: str, variant: str) -> Settings:
    """The environment's settings on ``device`` with the passes that the variant turns off."""
    settings = replace(Settings.from_environment(), device=device)
    if variant in ("unfolded", "inputs"):
        settings = replace(settings, skip_passes=ALL_PASSES)
    if variant == "tuned":
        settings = replace(settings, skip_passes=("fold",), tune=True)
    return settings


def cases(name: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file, case) of the whole suite or one file."""
    for file in suite.files("conformance"):
        if name in (None, file):
            for case in suite.load("conformance", file)["cases"]:
                yield file, case


def build(
    builder: MLGraphBuilder, graph: dict[str, Any], inputs_only: bool,
    decode: Callable[[dict[str, Any]], np.ndarray] | None = None,
) -> tuple[Any, Any]:
    """Replays a case's graph on a builder: (operands by name, arrays of the graph's inputs).
    ``decode`` makes the arrays, by default the suite's."""
    decode = decode or suite.comparer().decode
    operands: dict[str, Any] = {}
    fed: dict[str, np.ndarray] = {}
    for name, resource in graph["inputs"].items():
        descriptor = {
            "data_type": resource["descriptor"]["dataType"],
            "shape": resource["descriptor"]["shape"],
        }
        data = decode(resource)
        if resource.get("constant") and not inputs_only:
            operands[name] = builder.constant(descriptor, data)
        else:
            operands[name] = builder.input(name, descriptor)
            fed[name] = data

    def value(v: Any) -> Any:
        if isinstance(v, str) and v in operands:
            return operands[v]
        if isinstance(v, list):
            return [value(x) for x in v]
        return suite.comparer().arg(v)

    for step in graph["operators"]:
        positional: list[Any] = []
        options: dict[str, Any] = {}
        for argument in step["arguments"]:
            for key, given in argument.items():
                if key == "options":
                    options = {suite.snake(k): value(v) for k, v in given.items()}
                else:
                    positional.append(value(given))
        result = getattr(builder, suite.snake(step["name"]))(*positional, **options)
        outputs = step["outputs"]
        if isinstance(outputs, str):
            operands[outputs] = result
        else:
            operands.update(zip(outputs, result, strict=True))
    return operands, fed


def run_case(context: MLContext, case: dict[str, Any], variant: str) -> tuple[str | None, Any]:
    """(why it fails or None, the graph's report)."""
    graph = case["graph"]
    builder = MLGraphBuilder(context)
    operands, fed = build(builder, graph, variant == "inputs")
    expected = graph["expectedOutputs"]
    for name, resource in expected.items():
        wanted = (resource["descriptor"]["dataType"], tuple(resource["descriptor"]["shape"]))
        if (operands[name].data_type, operands[name].shape) != wanted:
            return f"{name} is {operands[name]}, not {wanted}", None
    with builder.build({name: operands[name] for name in expected}).result() as compiled:
        used = {name: fed[name] for name in compiled.inputs}
        results = context.compute(compiled, used)
        for name, resource in expected.items():
            ok, worst, limit = suite.comparer().check(results[name], resource, case["tolerance"])
            if not ok:
                return f"{name}: {worst} exceeds {limit}", compiled.report()
        if variant == "saved":
            return compare_saved(context, compiled, used, results), compiled.report()
        return None, compiled.report()


def compare_saved(
    context: MLContext, graph: Any, feeds: dict[str, Any], results: dict[str, np.ndarray]
) -> str | None:
    """Why the graph, saved and loaded again, is not the same, or None."""
    context.save_graph("conformance", graph).result()
    with context.load_graph("conformance").result() as loaded:
        if (loaded.inputs, loaded.outputs) != (graph.inputs, graph.outputs):
            return f"loaded {loaded} instead of {graph}"
        for name, array in context.compute(loaded, feeds).items():
            if array.tobytes() != results[name].tobytes():
                return f"{name} differs after loading"
    return None


def run(
    context: MLContext, tally: Tally, file: str, case: dict[str, Any], variant: str
) -> str | None:
    """Runs one case and counts it in ``tally``; why it fails, or None."""
    title = f"{file}: {case['name']}"
    counts = tally.by_operator.setdefault(file, [0, 0])
    if case.get("nonSpecDataType"):
        tally.skipped += 1
        if title not in suite.skipped()["conformance"]:
            tally.unlisted += 1
            tally.failures.append(f"{title}: skipped, but not in {suite.SKIPPED_FILE.name}")
        return None
    try:
        error, report = run_case(context, case, variant)
    except Exception as caught:
        error, report = f"{type(caught).__name__}: {caught}", None
    on_cpu = report.count("cpu") if report is not None and context.device_info.is_vulkan else 0
    tally.cpu_steps += on_cpu
    if on_cpu and error is None:
        error = f"{on_cpu} steps on the CPU"
    if error is None:
        tally.passed += 1
        counts[0] += 1
    else:
        tally.failed += 1
        counts[1] += 1
        tally.failures.append(f"{title}: {error}")
    return error


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="vulkan")
    parser.add_argument("--variant", choices=VARIANTS, default="default")
    parser.add_argument("--file", nargs="+", help="some files of the suite, without .json")
    parser.add_argument("--verbose", action="store_true", help="print every failure in full")
    options = parser.parse_args(arguments)
    if not suite.PRESENT:
        print(f"the suite is not at {suite.SUITE}", file=sys.stderr)
        return 2
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        settings = settings_for(options.device, options.variant)
        with webnn_vk.ml.create_context(settings=settings).result() as context:
            for name in options.file or [None]:
                for file, case in cases(name):
                    run(context, tally, file, case, options.variant)
    for failure in tally.failures:
        print(failure if options.verbose else failure[:200])
    print(tally)
    return 0 if tally.ok else 1


if __name__ == "__main__":
    sys.exit(main())
