"""Random graphs computed in many ways agree: fused and unfused, folded and not, packed and plain,
with usual and other schedules, built and loaded, run once and again, on the device and on the CPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.conformance import ways
from tests.conformance.differential.chains import chains
from tests.conformance.differential.graphs import RandomGraph, assert_equal, graphs
from tests.conformance.differential.networks import networks
from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context
from tests.support.forced import forced
from tests.support.selection import chance
from webnn_vk import MLContext

_SETTINGS = dict(
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
EXAMPLES, LOTS = 20, 4
#: How many graphs of each kind are computed in every way on each device, of how many examples: one
#: takes seconds.
SHARE = 1 / 50
KINDS = {"small": graphs(), "networks": networks(), "chains": chains()}
WAYS = (("fuse",), ("fold",), ("pack",), ALL_PASSES)


@pytest.fixture(scope="module")
def variants(vulkan):
    """A context for each set of skipped passes."""
    made = [open_context(skip_passes=skipped) for skipped in WAYS]
    yield made
    for context in made:
        context.destroy()


def test_with_and_without_optimisations(vulkan_context, cpu_context, variants):
    fused = folded = 0

    @settings(max_examples=max(EXAMPLES, settings.default.max_examples // 4), **_SETTINGS)
    @given(graphs())
    def check(graph):
        nonlocal fused, folded
        wanted, _ = graph.run(cpu_context)
        got, program = graph.run(vulkan_context)
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
    # More graphs until there was enough to compare: half of them have something to fuse.
    for number in range(LOTS):
        if min(fused, folded) <= EXAMPLES // 4:
            seed(chance("graphs", number).getrandbits(64))(check)()
    assert min(fused, folded) > EXAMPLES // 4


@pytest.mark.device
@pytest.mark.sample(0.5)
@pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", ways.DEVICES)
def test_every_way(
    vulkan: None, cpu_context: MLContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    device: str, kind: str,
) -> None:
    """Compiled and run in every way; kernels use random schedules."""
    tried, count = forced(monkeypatch), 0

    with ways.contexts(device, tmp_path) as contexts:
        @settings(max_examples=max(2, int(settings.default.max_examples * SHARE)), **_SETTINGS)
        @given(KINDS[kind])
        def check(graph: RandomGraph) -> None:
            nonlocal count
            count += 1
            feeds = graph.feeds()
            wanted = [graph.run(cpu_context, each)[0] for each in (feeds, ways.others(feeds))]
            for way, context in contexts.items():
                ways.by_chance(tried, repr(graph))
                with graph.build(context) as built:
                    for got, expected in zip(ways.runs(context, built, feeds), wanted, strict=True):
                        assert_equal(got, expected, way)

        check()
    assert tried.counts or count < 20  # a few graphs may contain no kernel with a choice
