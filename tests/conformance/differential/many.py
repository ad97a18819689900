"""Computes many random chains in each way: fused and unfused Vulkan, with native and with emulated
data types, the NumPy reference, and ONNX Runtime by the exported model.

    python -m tests.conformance.differential.many --seed 1 --count 20000

or many random graphs with named dimensions, some of size 0, and the graphs of single shapes:

    python -m tests.conformance.differential.many --shapes cpu --count 2000
    python -m tests.conformance.differential.many --shapes vulkan --count 2000

Prints each difference with its graph, and counts at the end. The exit status is 1 if anything
differs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from tests.conformance.differential.chains import difference, make
from tests.conformance.differential.graphs import RandomGraph
from tests.conformance.differential.shaped import ShapedGraph, compare
from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context
from tests.support.discriminating import anything_passes
from webnn_vk import MLContext, MLGraphBuilder, onnx

MASK = ("float16", "int8", "int16", "int64")


class Runs:
    """The contexts, and counts of the graphs' outcomes."""

    def __init__(self, stack: ExitStack) -> None:
        def opened(device: str, **settings: Any) -> MLContext:
            return stack.enter_context(open_context(device, **settings))

        self.reference = opened("cpu", cpu_engine="numpy")
        self.ways = {
            "fused": opened("vulkan"),
            "unfused": opened("vulkan", skip_passes=ALL_PASSES),
            "masked": opened("vulkan", mask=MASK),
        }
        self.counts: Counter[str] = Counter()

    def check(self, graph: RandomGraph, portable: bool) -> dict[str, str]:
        """The differences, by the way that shows them."""
        with np.errstate(all="ignore"):
            wanted, _ = graph.run(self.reference)
        found: dict[str, str] = {}
        for name, context in self.ways.items():
            try:
                got, program = graph.run(context)
                self.counts[f"{name} graphs"] += 1
                steps = program.report.steps
                self.counts[f"{name} fused kernels"] += sum(len(s.operators) > 1 for s in steps)
                elsewhere = [s.reason for s in steps if s.reason != "has a kernel for it"]
                wrong = difference(graph, got, wanted) or "; ".join(elsewhere)
            except Exception:
                wrong = traceback.format_exc(limit=4)
            if wrong:
                found[name] = wrong
        if portable:
            wrong = self._onnx_runtime(graph, wanted)
            if wrong:
                found["onnxruntime"] = wrong
        return found

    def _onnx_runtime(self, graph: RandomGraph, wanted: dict[str, np.ndarray]) -> str | None:
        import onnxruntime

        values, builder = [], MLGraphBuilder(self.reference)
        for i, source in enumerate(graph.sources):
            described = {"data_type": source.dtype.name, "shape": source.shape}
            values.append(
                builder.constant(described, source) if i in graph.constant
                else builder.input(f"x{i}", described)
            )
        for step in graph.steps:
            values += step.apply(builder, values)
        model = onnx.export({f"y{i}": values[i] for i in graph.outputs}, opset=21)
        assert model is not None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            reason = "no kernel" if "NOT_IMPLEMENTED" in str(error) else None
            if reason is None:
                return f"ONNX Runtime refuses the model: {error}"
            self.counts["onnxruntime has no kernel"] += 1
            return None
        feeds = graph.feeds()
        given = {i.name: feeds[i.name] for i in session.get_inputs()}
        names = [o.name for o in session.get_outputs()]
        got = dict(zip(names, session.run(None, given), strict=True))
        self.counts["onnxruntime graphs"] += 1
        got = {name: got[name] for name in wanted}
        wrong = difference(graph, got, wanted)
        if wrong and "float16" in repr(graph):
            wrong = difference(graph, got, self._either(graph, got, wanted))
            self.counts["ONNX Runtime keeps more digits of float16"] += not wrong
        return wrong

    def _either(
        self, graph: RandomGraph, got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The expected result, or, if ``got`` equals it, the result without rounding intermediate
        values to float16: ONNX Runtime's CPU kernels compute in float32, and leave out casts
        between consecutive kernels."""
        wide = RandomGraph(
            tuple(a.astype(np.float32) if a.dtype == np.float16 else a for a in graph.sources),
            graph.constant,
            tuple(
                replace(step, arguments={**step.arguments, "data_type": "float32"})
                if step.arguments.get("data_type") == "float16" else step for step in graph.steps
            ),
            graph.outputs,
        )
        with np.errstate(all="ignore"):
            exact, _ = wide.run(self.reference)
            exact = {name: array.astype(wanted[name].dtype) for name, array in exact.items()}
        same = {
            name: (array == got[name]) | ((array != array) & (got[name] != got[name]))
            for name, array in exact.items()
        }
        return {name: np.where(same[name], got[name], array) for name, array in wanted.items()}


def shapes(device: str, numbers: range, seconds: float) -> int:
    """Compares graphs with named dimensions with the graphs of single shapes; see the module."""
    start, failed, compared, done = time.monotonic(), 0, 0, 0
    with open_context(device=device, experimental=["dynamic-shapes"]) as context:
        for number in numbers:
            if time.monotonic() - start > seconds:
                break
            try:
                compared += compare(context, number)
            except Exception:
                failed += 1
                print(f"-- {number}\n{ShapedGraph(number)}\n{traceback.format_exc()}", flush=True)
            done += 1
            if done % 100 == 0:
                print(f"{done} graphs, {compared} shapes equal, {failed} failed", flush=True)
    print(f"end: {device}, {done} graphs in {time.monotonic() - start:.0f} s, "
          f"{compared} shapes equal, {failed} graphs failed")
    return 1 if failed or not compared else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="the first graph's number")
    parser.add_argument("--count", type=int, default=20000, help="how many graphs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the longest to run")
    parser.add_argument("--shapes", choices=("cpu", "vulkan"), help="graphs with named dimensions")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    start, failures, done = time.monotonic(), Counter[str](), 0
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(anything_passes("one random graph may show nothing by chance"))
        os.environ["WEBNN_VK_CACHE"] = folder
        os.environ["WEBNN_VK_VERIFY_PASSES"] = "1"  # GLSL that doesn't compile is an error
        if given.shapes:
            numbers = range(given.seed, given.seed + given.count)
            return shapes(given.shapes, numbers, given.seconds)
        runs = Runs(stack)
        for number in range(given.seed, given.seed + given.count):
            if time.monotonic() - start > given.seconds:
                break
            portable = number % 2 == 0
            graph = make(random.Random(number).choice, portable)
            for way, wrong in runs.check(graph, portable).items():
                failures[way] += 1
                print(f"-- {number}: {way}\n{graph}\n{wrong}\n", flush=True)
            done += 1
            if done % 100 == 0:
                print(f"{done} graphs, {dict(failures)}, {dict(runs.counts)}", flush=True)
        print(f"end: {done} graphs in {time.monotonic() - start:.0f} s, differences "
              f"{dict(failures)}, {dict(runs.counts)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
