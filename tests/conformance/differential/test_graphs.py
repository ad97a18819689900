"""Random graphs: fused and unfused, folded and not, packed and plain, built and loaded, run once
and again, on the device and on the CPU, all agree."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.differential.graphs import assert_equal, graphs
from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context

_SETTINGS = dict(
    deadline=None,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)
EXAMPLES = 75
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
