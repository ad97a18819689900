"""Random graphs: fused and unfused, folded and not, packed and plain, built and loaded, run once
and again, on the device and on the CPU, by the usual schedules and by others, all agree."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.graphs import assert_equal, graphs
from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context
from tests.support.forced import forced, pretended_gpu

_SETTINGS = dict(
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
EXAMPLES = 75
#: Graphs by other schedules, on each of two devices.
FORCED = 3
WAYS = (("fuse",), ("fold",), ("pack",), ALL_PASSES)


@pytest.fixture(scope="module")
def variants(vulkan):
    """A context for each set of optimisations left out."""
    made = [open_context(skip_passes=skipped) for skipped in WAYS]
    yield made
    for context in made:
        context.destroy()


def test_with_and_without_optimisations(vulkan_context, cpu_context, variants):
    fused = folded = count = 0

    @settings(max_examples=max(EXAMPLES, settings.default.max_examples), **_SETTINGS)
    @given(graphs())
    def check(graph):
        nonlocal fused, folded, count
        count += 1
        wanted, _ = graph.run(cpu_context)
        got, program = graph.run(vulkan_context, again=count % 5 == 0)
        assert_equal(got, wanted)
        assert not program.report.count("cpu")
        fused += any(len(step.operators) > 1 for step in program.report.steps)
        folded += bool(program.report.folded)
        for context, skipped in zip(variants, WAYS, strict=True):
            got, program = graph.run(context)
            assert_equal(got, wanted)
            if "fold" in skipped:
                assert not program.report.folded
            if "fuse" in skipped:
                assert all(len(step.operators) == 1 for step in program.report.steps)

    check()
    # Otherwise there was nothing to compare.
    assert fused > EXAMPLES // 4 and folded > EXAMPLES // 4


@pytest.mark.device
@pytest.mark.sample(0.5)
@pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")
@pytest.mark.parametrize("limits", [{}, pretended_gpu()], ids=["software", "gpu"])
def test_by_other_schedules(
    vulkan_context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limits: dict
) -> None:
    """Each kernel of a graph by a schedule that chance picks among the legal ones."""
    tried, count = forced(monkeypatch), 0

    with open_context(tune=True, cache=tmp_path, limits=limits) as other:
        @settings(max_examples=max(FORCED, settings.default.max_examples), **_SETTINGS)
        @given(graphs(), st.integers(0, 2**32))
        def check(graph, seed):
            nonlocal count
            count += 1
            usual, _ = graph.run(vulkan_context)
            tried.pick = random.Random(seed).randrange
            got, _ = graph.run(other)
            assert_equal(got, usual)

        check()
    assert sum(tried.counts.values()) > count
