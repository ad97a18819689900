"""Random graphs with named dimensions, some of size 0, are equal to the graphs of single shapes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.shaped import compare
from tests.support.contexts import open_context

#: Graphs in usual runs, by device; with --explore 2,000 on each. Each is run for four shapes.
EXAMPLES = {"cpu": 25, "vulkan": 6}
LONG = 2000

pytestmark = pytest.mark.filterwarnings("ignore:build. no output depends:RuntimeWarning")


@pytest.fixture
def context(request: pytest.FixtureRequest, device: str):
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=device, experimental=["dynamic-shapes"]) as context:
        yield context


@pytest.mark.device
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("device", EXAMPLES)
def test_random_graphs(context, device: str, request: pytest.FixtureRequest) -> None:
    count = LONG if request.config.option.explore else EXAMPLES[device]
    compared = 0

    @settings(
        max_examples=count, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**31))
    def each(seed: int) -> None:
        nonlocal compared
        compared += compare(context, seed)

    each()
    assert compared > count  # otherwise there was nothing to compare
