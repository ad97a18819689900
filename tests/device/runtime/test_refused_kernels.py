"""Kernels that the GLSL compiler or the driver refuses: a graph is built nevertheless, with other
schedules, unfused or on the CPU, and its report says so. One warning mentions the report."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over, returns_to, settled_bytes
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from webnn_vk import MLContext, MLGraph, MLGraphBuilder, OperationError
from webnn_vk.codegen.glsl import GlslError, Source
from webnn_vk.driver import PipelineRequest
from webnn_vk.driver.vulkan.errors import VulkanError
from webnn_vk.support import warnings as library_warnings

WARNING = r"webnn_vk: kernels that .* refuses are not used; graph\.report\(\) names them"
X, Y = np.random.default_rng(3).integers(-4, 5, (2, 7, 9))
FLOATS = np.random.default_rng(4).integers(-8, 9, (6, 16)).astype(np.float32)
WEIGHTS = np.random.default_rng(5).integers(-4, 5, (16, 12)).astype(np.float32) / 16


@dataclass
class Refusing:
    """The compiler of a context, which refuses the sources that ``refuses`` selects. ``asked``: how
    many of them it was given."""

    compiler: Any
    refuses: Callable[[Source], bool]
    asked: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compiler, name)

    def compile(self, sources: Sequence[Source]) -> list[bytes | GlslError]:
        results = self.compiler.compile(sources)
        for i, source in enumerate(sources):
            if self.refuses(source):
                self.asked += 1
                log = "ERROR: 0:1: 'planted' : no such function\nand more"
                results[i] = GlslError(source.name, log, source.text)
        return results


@dataclass
class Picky(DriverProxy):
    """A driver that refuses to make pipelines for the requests that ``refuses`` selects."""

    driver: Any
    refuses: Callable[[PipelineRequest], bool] = lambda request: False
    made: list[PipelineRequest] = field(default_factory=list)
    refused: list[PipelineRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.driver)

    def pipelines(self, requests: Sequence[PipelineRequest]) -> Any:
        found = [request for request in requests if self.refuses(request)]
        self.refused += found
        if found:
            raise VulkanError("no free register", "VK_ERROR_UNKNOWN")
        self.made += requests
        return self.driver.pipelines(requests)


@pytest.fixture(autouse=True)
def _as_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """No warnings so far, and the same strictness as for users."""
    monkeypatch.setattr(library_warnings, "_said", set())
    monkeypatch.setenv("WEBNN_VK_VERIFY_PASSES", "0")


@contextmanager
def _refusing(folder: Path, refuses: Callable[[Source], bool]) -> Iterator[tuple[MLContext, Any]]:
    """A context whose compiler refuses; nothing is in its cache yet."""
    with open_context(cache=folder) as context:
        shaders: Any = context._state.device.shaders
        shaders._compiler = Refusing(shaders._compiler, refuses)
        yield context, shaders._compiler


@contextmanager
def _warnings(count: int) -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(w.message) for w in caught]
    assert len(texts) == count, texts
    assert all(re.match(WARNING, text) for text in texts), texts


def _chain(context: MLContext) -> MLGraph:
    """The chain with a second output, which didn't compile."""
    builder = MLGraphBuilder(context)
    x, y = (builder.input(n, {"data_type": "int64", "shape": X.shape}) for n in "xy")
    d = builder.sub(x, y)
    chosen = builder.where(builder.equal(d, y), builder.add(d, y), d)
    return builder.build({"chosen": chosen, "d": d}).result(120)


def _check_chain(context: MLContext, graph: MLGraph) -> None:
    d = X - Y
    results = context.compute(graph, {"x": X, "y": Y})
    np.testing.assert_array_equal(results["d"], d)
    np.testing.assert_array_equal(results["chosen"], np.where(d == Y, d + Y, d))


def _network(context: MLContext) -> MLGraph:
    """A product with packed weights, a bias, and a softmax."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": FLOATS.shape})
    made = builder.matmul(x, builder.constant(WEIGHTS))
    bias = builder.constant(WEIGHTS[0])
    return builder.build({
        "y": builder.softmax(builder.add(made, bias), 1), "z": builder.div(x, x),
    }).result(120)


def _check_network(context: MLContext, graph: MLGraph) -> None:
    sums = FLOATS.astype(np.float64) @ WEIGHTS + WEIGHTS[0]
    powers = np.exp(sums - sums.max(1, keepdims=True))
    results = context.compute(graph, {"x": FLOATS})
    assert_allclose(
        results["y"], powers / powers.sum(1, keepdims=True), rtol=2e-5
    )
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(results["z"], FLOATS / FLOATS)


def _is_fused(source: Source) -> bool:
    return source.name == "elementwise.comp.j2" and " t1 = " in source.text


def test_a_fused_kernel_that_does_not_compile(vulkan: None, tmp_path: Path) -> None:
    with _refusing(tmp_path, _is_fused) as (context, compiler):
        held = settled_bytes(context)
        with _warnings(1):
            graph = _chain(context)
        asked = compiler.asked
        assert asked
        _check_chain(context, graph)
        steps = graph.report().steps
        assert [(len(s.operators), s.device) for s in steps] == 4 * [(1, "vulkan")]
        why = "the GLSL compiler refuses elementwise.comp.j2: ERROR: 0:1: 'planted'"
        assert all(why in step.reason for step in steps)
        with _warnings(0):
            again = _chain(context)
            _check_chain(context, again)
        # A refused kernel isn't compiled again.
        assert compiler.asked == asked
        graph.destroy()
        again.destroy()
        assert returns_to(context, held)


def test_tests_fail_on_it(
    vulkan: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNN_VK_VERIFY_PASSES", "1")
    with (
        _refusing(tmp_path, _is_fused) as (context, _),
        pytest.raises(OperationError, match="the GLSL compiler refuses elementwise"),
    ):
        _chain(context)


def test_a_kernel_that_never_compiles(vulkan: None, tmp_path: Path) -> None:
    """Not even alone: the CPU computes it."""
    with _refusing(tmp_path, lambda source: source.name == "softmax.comp.j2") as (context, _):
        shaders: Any = context._state.device.shaders
        shaders._pack = None
        with _warnings(1):
            graph = _network(context)
        _check_network(context, graph)
        (step,) = (s for s in graph.report().steps if s.device == "cpu")
        assert step.operators == ("softmax",)
        assert step.reason.startswith("the GLSL compiler refuses softmax.comp.j2: ERROR: 0:1:")
        graph.destroy()


def test_the_driver_refuses_a_schedule(vulkan: None, tmp_path: Path) -> None:
    """The next one is taken."""
    context, driver = open_over(Picky, cache=tmp_path)
    with context:
        plain = _network(context)
        usual = [step.reason for step in plain.report().steps]
        plain.destroy()
        (first, *_) = (r for r in driver.made if r.name == "softmax.comp.j2")
        driver.refuses = first.__eq__
        with _warnings(1):
            graph = _network(context)
        _check_network(context, graph)
        report = graph.report()
        assert report.count("cpu") == 0
        why = "the driver makes no pipeline of softmax.comp.j2: no free register"
        assert [step.reason for step in report.steps] == [
            f"{reason}; not the one meant for it: {why}" if "softmax" in step.operators else reason
            for reason, step in zip(usual, report.steps, strict=True)
        ]
        # Ahead of the others, with them, and by itself: never again.
        refused = len(driver.refused)
        assert refused in (2, 3)
        again = _network(context)
        assert len(driver.refused) == refused
        _check_network(context, again)


@pytest.mark.parametrize("template", ["softmax.comp.j2", "elementwise.comp.j2", "matmul", ""])
def test_the_driver_refuses_every_schedule(vulkan: None, tmp_path: Path, template: str) -> None:
    """Modules of one template, or all, are refused: the CPU computes the rest, and the same after
    saving."""
    context, driver = open_over(Picky, cache=tmp_path)
    with context:
        held = settled_bytes(context)
        driver.refuses = lambda request: request.name.startswith(template)
        with _warnings(1):
            graph = _network(context)
        assert driver.refused
        _check_network(context, graph)
        on_cpu = [step for step in graph.report().steps if step.device == "cpu"]
        assert on_cpu
        for step in on_cpu:
            assert step.reason.startswith(f"the driver makes no pipeline of {template}")
            assert step.reason.endswith(": no free register")
        if not template:
            assert not graph.report().count("vulkan")
        with _warnings(0):
            context.save_graph("picky", graph).result(120)
            loaded = context.load_graph("picky").result(120)
        _check_network(context, loaded)
        loaded.destroy()
        graph.destroy()
        assert returns_to(context, held)


def test_a_failure_that_passes_is_no_refusal(vulkan: None, tmp_path: Path) -> None:
    context, driver = open_over(Picky, cache=tmp_path)
    with context:
        driver.refuses = lambda request: not driver.refused
        with _warnings(0):
            graph = _network(context)
        assert driver.refused
        _check_network(context, graph)
        assert not graph.report().count("cpu")


def test_a_saved_graph_that_is_refused_later(vulkan: None, tmp_path: Path) -> None:
    """A saved program has no other kernels: the error names the kernel."""
    context, driver = open_over(Picky, cache=tmp_path)
    with context:
        graph = _network(context)
        context.save_graph("picky", graph).result(120)
        driver.refuses = lambda request: request.name == "softmax.comp.j2"
        with pytest.raises(OperationError, match=r"load_graph: .*softmax.*no free register"):
            context.load_graph("picky").result(120)
        _check_network(context, graph)
