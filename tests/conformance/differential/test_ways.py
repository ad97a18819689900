"""Every further run of a graph is compared with the first: a difference in any run is noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance import ways
from webnn_vk import MLContext, MLGraph, MLGraphBuilder, MLPromise


def _times(context: MLContext, factor: float) -> MLPromise[MLGraph]:
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [3]})
    return builder.build({"y": builder.mul(x, builder.constant(np.float32([factor])))})


class _Wrong:
    """A context on which one kind of call goes wrong after ``right`` correct calls."""

    def __init__(self, context: MLContext, call: str, right: int) -> None:
        self._context, self._call, self._right = context, call, right

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._context, name)
        if name != self._call:
            return method
        self._right -= 1
        return method if self._right >= 0 else getattr(self, f"_{name}")

    def _compute(self, graph: MLGraph, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        # One bit of the result.
        return {"y": np.nextafter(self._context.compute(graph, feeds)["y"], np.float32(9))}

    def _write_tensor(self, *_: Any) -> None:
        pass  # the previous contents stay

    def _load_graph(self, _: str) -> MLPromise[MLGraph]:
        return _times(self._context, 3)


FEEDS = {"x": np.float32([1, 2, 4])}


def test_results_are_of_the_inputs_and_of_others(cpu_context: MLContext) -> None:
    with _times(cpu_context, 2).result() as graph:
        first, second = ways.runs(cpu_context, graph, FEEDS)
    assert first["y"].tolist() == [2, 4, 8]
    assert second["y"].tolist() == [8, 4, 2]


@pytest.mark.parametrize(("call", "right", "noticed"), [
    ("compute", 2, "after other inputs"), ("write_tensor", 0, "on tensors"),
    ("write_tensor", 1, "on tensors"), ("load_graph", 0, "loaded"),
    ("compute", 4, "loaded, other inputs"),
])
def test_a_wrong_run_is_noticed(
    cpu_context: MLContext, call: str, right: int, noticed: str
) -> None:
    wrong: Any = _Wrong(cpu_context, call, right)
    with (
        _times(cpu_context, 2).result() as graph,
        pytest.raises(AssertionError, match=f"{noticed}: y"),
    ):
        ways.runs(wrong, graph, FEEDS)
