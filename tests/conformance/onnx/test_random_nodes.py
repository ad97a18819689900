"""Random nodes beside ONNX Runtime: a few hundred, of each kind in turn."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np
import pytest

from tests.conformance.onnx.random_nodes import KINDS, described, difference, draw
from tests.support.onnx_nodes import Node
from tests.support.selection import chance
from webnn_vk import MLContext

pytest.importorskip("onnxruntime")
#: On Vulkan most of the time goes into pipelines for other shapes.
COUNTS = {"cpu": 400, "vulkan": 30}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("device", [
    "cpu", pytest.param("vulkan", marks=pytest.mark.device)
])
def test_as_onnx_runtime(device: str, request: pytest.FixtureRequest) -> None:
    context: MLContext = request.getfixturevalue(f"{device}_context")
    rng, wrong = chance("nodes", device), []
    for kind in islice(cycle(KINDS), COUNTS[device]):
        node = draw(rng, kind)
        found = difference(node, context)
        if found:
            wrong.append(f"{described(node)}: {found}")
    assert not wrong, "\n".join(wrong[:20])


def test_a_difference_is_seen(cpu_context: MLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("Relu", [np.array([-1, 2], np.float32)], domain="")
    assert difference(node, cpu_context) is None
    right = Node.here
    for change, expected in (
        (lambda y: y * np.float32(1.001), "output 0[1]: 2.00"),
        (lambda y: y.astype(np.float64), "output 0: float64[2] for float32[2]"),
        (lambda y: np.where(y > 0, np.nan, y), "output 0[1]: nan for 2.0"),
    ):
        monkeypatch.setattr(
            Node, "here",
            lambda node, context, change=change: [change(y) for y in right(node, context)],
        )
        found = difference(node, cpu_context)
        assert found is not None and found.startswith(expected)
