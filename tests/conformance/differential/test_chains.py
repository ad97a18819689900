"""Random chains of element-wise operators over all eight data types, with several outputs: fused
and unfused, with native and with emulated data types. They have to equal the reference, bit for bit
where it is exact. 25 examples, 250 with --explore.

Many more, and ONNX Runtime as well: ``python -m tests.conformance.differential.many``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.differential.chains import chains, difference, make
from tests.conformance.differential.graphs import RandomGraph
from tests.conformance.differential.many import MASK, Runs
from tests.conformance.wpt.conformance import ALL_PASSES
from tests.support.contexts import open_context
from tests.support.selection import chance
from webnn_vk import MLContext
from webnn_vk.compiler.types.data_types import ALL_TYPES


@pytest.fixture(scope="module")
def variants(vulkan: None) -> Iterator[dict[str, MLContext]]:
    """Contexts that fuse nothing, and contexts that emulate data types."""
    with ExitStack() as stack:
        yield {
            "unfused": stack.enter_context(open_context(skip_passes=ALL_PASSES)),
            "masked": stack.enter_context(open_context(mask=MASK)),
        }


@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")
def test_chains_as_the_reference(
    vulkan_context: MLContext, cpu_context: MLContext, variants: dict[str, MLContext]
) -> None:
    examples = settings.default.max_examples // 2
    ways = {"fused": vulkan_context, **variants}
    count: Counter[str] = Counter()

    @settings(
        max_examples=examples, deadline=None, database=None, print_blob=False,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )
    @given(chains())
    def check(graph: RandomGraph) -> None:
        compare(graph)

    def compare(graph: RandomGraph) -> None:
        with np.errstate(all="ignore"):
            wanted, _ = graph.run(cpu_context)
        for way, context in ways.items():
            got, program = graph.run(context)
            wrong = difference(graph, got, wanted)
            assert wrong is None, f"{way}: {wrong}"
            assert not program.report.count("cpu")
            if way == "fused":
                steps = [*program.dispatches]
                count["fused"] += any(len(s.operators) > 1 for s in program.report.steps)
                count["stored on the way"] += any(s.spec.option("extra_outputs") for s in steps)
        count["examples"] += 1
        count.update({array.dtype.name for array in wanted.values()})
        count["not finite"] += any(
            not np.isfinite(a).all() for a in wanted.values() if a.dtype.kind == "f"
        )

    check()
    assert count["examples"] >= examples
    # Hypothesis may draw some rarely: more graphs until each occurred often enough.
    wanted = dict.fromkeys((*ALL_TYPES, "not finite", "stored on the way"), examples // 20)
    wanted["fused"] = examples // 3
    more = chance("chains")
    while short := {kind: count[kind] for kind, least in wanted.items() if count[kind] <= least}:
        assert count["examples"] < 10 * examples, f"hardly ever: {short}"
        compare(make(more.choice))


@pytest.mark.device
def test_a_wrong_result_is_noticed(vulkan: None) -> None:
    """In every way, and by ONNX Runtime, which computes the graphs unchanged."""
    with ExitStack() as stack:
        runs = Runs(stack)
        graph = make(random.Random(8).choice, portable=True)
        assert runs.check(graph, portable=True) == {}
        assert runs.counts["onnxruntime graphs"] == 1
        run = RandomGraph.run

        def spoilt(self: RandomGraph, context: MLContext, feeds: object = None) -> object:
            results, program = run(self, context)
            if context is runs.reference:
                name = next(iter(results))
                results[name] = results[name].copy()
                results[name].reshape(-1)[-1] += 1
            return results, program

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RandomGraph, "run", spoilt)
            assert runs.check(graph, portable=True).keys() == {
                "fused", "unfused", "masked", "onnxruntime"
            }
