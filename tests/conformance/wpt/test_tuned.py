"""Tuned schedules compute what the usual ones do: every vector of the suite by each legal schedule
of its kernels in turn, on the test device and on one that pretends to be a GPU (other passes and
rules; cooperative matrices emulated)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.wpt import conformance, suite
from tests.support import selection
from tests.support.contexts import open_context
from tests.support.drivers import require_vulkan
from tests.support.forced import Forced, forced, pretended_gpu
from webnn_vk import MLContext, MLGraphBuilder

pytestmark = [
    pytest.mark.skipif(
        not suite.PRESENT, reason="the web-platform-tests are not beside this checkout"
    ),
    pytest.mark.device,
    pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning"),
]
FILES = [f for f in suite.files("conformance") if any(conformance.cases(f))]
#: By name: what the test device pretends.
DEVICES: dict[str, dict[str, Any]] = {"software": {}, "gpu": pretended_gpu()}
#: Cases of the run by day on each device, each by one schedule of each kernel.
BY_DAY = 8


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, MLContext]]:
    """The usual one, and by device one whose schedules are forced."""
    require_vulkan()
    opened = {"usual": open_context("vulkan", tune=False)}
    for name, limits in DEVICES.items():
        folder: Path = tmp_path_factory.mktemp(name)  # other tests are to find nothing of it
        opened[name] = open_context("vulkan", tune=True, cache=folder, limits=limits)
    yield opened
    for context in opened.values():
        context.destroy()


def _cases(file: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    return [found for found in conformance.cases(file) if not found[1].get("nonSpecDataType")]


def _computed(context: MLContext, case: dict[str, Any]) -> dict[str, np.ndarray]:
    builder = MLGraphBuilder(context)
    operands, feeds = conformance.build(builder, case["graph"], True)
    outputs = {name: operands[name] for name in case["graph"]["expectedOutputs"]}
    with builder.build(outputs).result() as graph:
        return context.compute(graph, {name: feeds[name] for name in graph.inputs})


def _difference(
    case: dict[str, Any], got: dict[str, np.ndarray], usual: dict[str, np.ndarray]
) -> str:
    """Why results are not those of the vector within its tolerance, or, where they are integers,
    not the usual ones; "" where they are."""
    for name, resource in case["graph"]["expectedOutputs"].items():
        ok, worst, limit = suite.comparer().check(got[name], resource, case["tolerance"])
        if not ok:
            return f"{name}: {worst} exceeds {limit}"
        if got[name].dtype.kind != "f" and not np.array_equal(got[name], usual[name]):
            return f"{name}: not the usual integers"
    return ""


def _by(
    schedule: int, context: MLContext, case: dict[str, Any], usual: dict[str, np.ndarray],
    forced: Forced,
) -> str:
    """What is wrong with a case by the schedule of this number of each kernel, wrapping around."""
    forced.pick = lambda count: schedule % count
    try:
        wrong = _difference(case, _computed(context, case), usual)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
    return wrong and f"{case['name']} by schedule {schedule}: {wrong}"


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("device", DEVICES)
def test_every_schedule(
    contexts: dict[str, MLContext], monkeypatch: pytest.MonkeyPatch, record_property: Any,
    device: str, file: str,
) -> None:
    tried, wrong = forced(monkeypatch), []
    for _, case in _cases(file):
        usual = _computed(contexts["usual"], case)
        schedule = 0
        while schedule < max(tried.most, 1):
            wrong.append(_by(schedule, contexts[device], case, usual, tried))
            schedule += 1
        tried.most = 1
    record_property("forced", sum(tried.counts.values()))
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("device", DEVICES)
def test_some_schedules(
    contexts: dict[str, MLContext], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Other vectors and other schedules each day."""
    chance, tried = random.Random(f"{selection.seed()} {device}"), forced(monkeypatch)
    wrong = [
        _by(chance.randrange(1000), contexts[device], case, _computed(contexts["usual"], case),
            tried)
        for _, case in chance.sample(_cases(), BY_DAY)
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert sum(tried.counts.values()) > BY_DAY // 4
