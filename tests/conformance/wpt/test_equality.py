"""However a graph of the vectors is compiled and run, its results are the same: with and without
passes, packed and plain, built and loaded, at the first run and at the next.

Around each vector's operators stand movements and a negation, for passes to fuse and absorb.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.conformance.wpt import conformance, suite
from tests.support.drivers import require_vulkan
from webnn_vk import MLContext, MLGraphBuilder

#: By name: the passes left out.
WAYS = {
    "default": (),
    "unfused": conformance.ALL_PASSES,
    "plain": ("pack", "absorb", "in_place"),
}
_NEGATED = ("float32", "float16", "int32", "int8", "int64")

FILES = [f for f in suite.files("conformance") if any(conformance.cases(f))]


class _Wrapping:
    """A builder whose inputs of several dimensions come transposed and are transposed back."""

    def __init__(self, builder: MLGraphBuilder) -> None:
        self.builder = builder
        self.transposed: set[str] = set()

    def input(self, name: str, descriptor: dict[str, Any]) -> Any:
        shape = tuple(descriptor["shape"])
        if len(shape) < 2:
            return self.builder.input(name, descriptor)
        self.transposed.add(name)
        return self.builder.transpose(
            self.builder.input(name, {**descriptor, "shape": shape[::-1]})
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.builder, name)


@pytest.fixture(scope="module")
def contexts() -> Iterator[dict[str, MLContext]]:
    require_vulkan()
    default = conformance.settings_for("vulkan", "default")
    made = {
        name: webnn_vk.ml.create_context(settings=replace(default, skip_passes=skipped)).result()
        for name, skipped in WAYS.items()
    }
    yield made
    for context in made.values():
        context.destroy()


def _same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(other[name].tobytes() == array.tobytes() for name, array in one.items())


def compare(contexts: dict[str, MLContext], case: dict[str, Any]) -> None:
    expected = case["graph"]["expectedOutputs"]
    for way, context in contexts.items():
        builder = _Wrapping(MLGraphBuilder(context))
        operands, fed = conformance.build(builder, case["graph"], False)  # type: ignore[arg-type]
        signed = {n for n in expected if operands[n].data_type in _NEGATED}
        outputs = {n: builder.neg(operands[n]) if n in signed else operands[n] for n in expected}
        feeds = {
            n: np.ascontiguousarray(a.T) if n in builder.transposed else a for n, a in fed.items()
        }
        with builder.build(outputs).result() as graph:
            feeds = {name: feeds[name] for name in graph.inputs}
            results = context.compute(graph, feeds)
            assert _same_bits(results, context.compute(graph, feeds)), f"{way}: replayed"
            if way == "default":
                context.save_graph("equality", graph).result()
                with context.load_graph("equality").result() as loaded:
                    assert _same_bits(results, context.compute(loaded, feeds)), "loaded"
        for name, resource in expected.items():
            array = -results[name] if name in signed else results[name]
            ok, worst, limit = suite.comparer().check(array, resource, case["tolerance"])
            assert ok, f"{way}: {name}: {worst} exceeds {limit}"


@pytest.mark.skipif(not suite.PRESENT, reason="the web-platform-tests are not beside this checkout")
@pytest.mark.sample(0.02)
@pytest.mark.device
@pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", FILES)
def test_equal(contexts: dict[str, MLContext], file: str, record_property: Any) -> None:
    compared, failures = 0, []
    for _, case in conformance.cases(file):
        if case.get("nonSpecDataType"):
            continue
        try:
            compare(contexts, case)
        except AssertionError as error:
            failures.append(f"{case['name']}: {error}")
        compared += 1
    record_property("compared", compared)
    assert not failures, "\n".join(failures)
