"""Random graphs with named dimensions, some of size 0, are equal to the graphs of single shapes."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.graphs import assert_equal
from tests.conformance.differential.shaped import MAX, ShapedGraph
from tests.support.contexts import open_context
from webnn_vk import MLDynamicDimension

#: Graphs in usual runs, by device; with --long 2,000 on each. Each is run for four shapes.
EXAMPLES = {"cpu": 25, "vulkan": 10}
LONG = 2000

pytestmark = pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")


@pytest.fixture
def context(request: pytest.FixtureRequest, device: str):
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=device, experimental=["dynamic-shapes"]) as context:
        yield context


def check(context, seed: int) -> int:
    """Compares one graph for a few shapes; returns for how many."""
    graph, pick, compared = ShapedGraph(seed), random.Random(seed), 0
    if not graph.outputs:
        return 0
    least = pick.randint(0, 1)
    dimensions = {name: MLDynamicDimension(name, size, least) for name, size in MAX.items()}
    try:
        shaped = graph.build(context, dimensions)
    except TypeError as error:
        assert "no input that an output depends on" in str(error)
        return 0
    with shaped:
        for _ in range(4):
            sizes = {name: pick.choice((least, pick.randint(1, m), m)) for name, m in MAX.items()}
            given_ = graph.feeds(sizes, list(shaped.inputs))
            try:
                static = graph.build(context, sizes)
            except TypeError as error:
                # Of nothing some operators have no result; then both say so.
                with pytest.raises(TypeError) as refused:
                    context.compute(shaped, given_)
                # The message has the names of dimensions that aren't 0, and the sizes.
                assert str(refused.value).split(":")[0] == str(error).split(":")[0]
                continue
            with static:
                wanted = context.compute(static, graph.feeds(sizes, list(static.inputs)))
            shapes = shaped.compute_shapes({name: a.shape for name, a in given_.items()})
            assert shapes == {name: array.shape for name, array in wanted.items()}
            assert_equal(context.compute(shaped, given_), wanted, f"{sizes}")
            compared += 1
    return compared


@pytest.mark.device
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("device", EXAMPLES)
def test_random_graphs(context, device: str, request: pytest.FixtureRequest) -> None:
    count = LONG if request.config.option.long else EXAMPLES[device]
    compared = 0

    @settings(
        max_examples=count, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**31))
    def each(seed: int) -> None:
        nonlocal compared
        compared += check(context, seed)

    each()
    assert compared > count  # otherwise there was nothing to compare
