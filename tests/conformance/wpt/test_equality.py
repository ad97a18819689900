"""However a graph of the vectors is compiled and run (`tests.conformance.ways`), its results equal
the vector's, integers exactly.

Each vector's operators are surrounded by movements and a negation, for passes to fuse and absorb.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from tests.conformance import ways
from tests.conformance.wpt import conformance, suite
from tests.support import selection
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from tests.support.forced import Forced, forced
from webnn_vk import MLContext, MLGraphBuilder

pytestmark = [
    pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT),
    pytest.mark.device,
    pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning"),
]
#: Number of vectors in an ordinary run on each device, besides one whose kernel has many schedules.
SOME = 4
_NEGATED = ("float32", "float16", "int32", "int8", "int64")
Contexts = dict[str, dict[str, MLContext]]


class _Wrapping:
    """A builder whose multi-dimensional inputs are passed transposed and are transposed back."""

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
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contexts]:
    """By device and way, opened on first use."""
    require_vulkan()
    with ExitStack() as stack:
        class Opened(dict[str, dict[str, MLContext]]):
            def __missing__(self, device: str) -> dict[str, MLContext]:
                folder = tmp_path_factory.mktemp(device)
                self[device] = stack.enter_context(ways.contexts(device, folder))
                return self[device]

        yield Opened()


@pytest.fixture(scope="module")
def usual() -> Iterator[MLContext]:
    require_vulkan()
    with open_context(tune=False) as context:
        yield context


def _cases(file: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    return [found for found in conformance.cases(file) if not found[1].get("nonSpecDataType")]


def _difference(
    case: dict[str, Any], got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]
) -> str:
    """Why results differ from the vector's by more than its tolerance, or, for integers, from the
    expected ones; "" if they don't."""
    for name, resource in case["graph"]["expectedOutputs"].items():
        ok, worst, limit = suite.comparer().check(got[name], resource, case["tolerance"])
        if not ok:
            return f"{name}: {worst} exceeds {limit}"
        if got[name].dtype.kind != "f" and not np.array_equal(got[name], wanted[name]):
            return f"{name}: not the usual integers"
    return ""


def _by_way(context: MLContext, case: dict[str, Any]) -> dict[str, np.ndarray]:
    expected = case["graph"]["expectedOutputs"]
    builder = _Wrapping(MLGraphBuilder(context))
    operands, fed = conformance.build(builder, case["graph"], False)  # type: ignore[arg-type]
    signed = {n for n in expected if operands[n].data_type in _NEGATED}
    outputs = {n: builder.neg(operands[n]) if n in signed else operands[n] for n in expected}
    feeds = {n: np.ascontiguousarray(a.T) if n in builder.transposed else a for n, a in fed.items()}
    with builder.build(outputs).result() as graph:
        results, _ = ways.runs(context, graph, feeds)
    return {name: -a if name in signed else a for name, a in results.items()}


def _wrong(contexts: dict[str, MLContext], tried: Forced, case: dict[str, Any]) -> Iterator[str]:
    """The errors of a vector by way."""
    wanted: dict[str, np.ndarray] | None = None
    for way, context in contexts.items():
        ways.by_chance(tried, f"{selection.seed()} {case['name']}")
        try:
            results = _by_way(context, case)
            wanted = wanted or results
            wrong = _difference(case, results, wanted)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            yield f"{case['name']}: {way}: {wrong}"


def _some(device: str, about: str, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Some vectors, different ones for each seed, including one whose kernel has many schedules;
    all of them with --explore."""
    if request.config.option.explore:
        return [case for _, case in _cases()]
    chance = selection.chance(about, device)
    return [case for _, case in (chance.choice(_cases("matmul")), *chance.sample(_cases(), SOME))]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", ways.DEVICES)
def test_every_way(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, device: str
) -> None:
    tried = forced(monkeypatch)
    cases = _some(device, "every way", request)
    wrong = [w for case in cases for w in _wrong(contexts[device], tried, case)]
    assert not wrong, "\n".join(wrong)
    assert any(family == "matmul" for family, _, _ in tried.counts)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", ways.DEVICES)
def test_every_schedule(
    contexts: Contexts, usual: MLContext, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest, device: str,
) -> None:
    """Each legal schedule of the kernels in turn, whatever the tuner may choose: the number of the
    schedule applies to every kernel, modulo its number of schedules."""
    tried, wrong = forced(monkeypatch), []
    for case in _some(device, "every schedule", request):
        wanted, schedule = _alone(usual, case), 0
        while schedule < max(tried.most, 1):
            tried.pick = lambda count, number=schedule: number % count  # type: ignore[misc]
            try:
                found = _difference(case, _alone(contexts[device]["tuned"], case), wanted)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            if found:
                wrong.append(f"{case['name']} by schedule {schedule}: {found}")
            schedule += 1
        tried.most = 1
    assert not wrong, "\n".join(wrong)
    assert any(family == "matmul" for family, _, _ in tried.counts)


def _alone(context: MLContext, case: dict[str, Any]) -> dict[str, np.ndarray]:
    """The vector's operators alone, with inputs only."""
    builder = MLGraphBuilder(context)
    operands, feeds = conformance.build(builder, case["graph"], True)
    outputs = {name: operands[name] for name in case["graph"]["expectedOutputs"]}
    with builder.build(outputs).result() as graph:
        return context.compute(graph, {name: feeds[name] for name in graph.inputs})
