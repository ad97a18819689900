"""TopK of rows that are too long for a table of comparisons."""

import numpy as np
import pytest

from tests.support.onnx_nodes import Node
from webnn_vk.onnx.ops import selection

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("data_type", [np.float32, np.float16])
@pytest.mark.parametrize("largest", [1, 0])
def test_elements_that_are_infinite(cpu_context, data_type, largest):
    """Masked scores: fewer are finite than are asked for. Infinite ones come in order, after the
    finite ones, and none comes twice."""
    worst = -np.inf if largest else np.inf
    limit = np.finfo(data_type).max * (-1 if largest else 1)
    x = np.full((2, 4200), worst, data_type)
    assert x.size * x.shape[1] > selection._MAX_TABLE
    x[0, [0, 7, 4199]] = 5, limit, -3
    x[1, [3, 9]] = -worst, limit
    node = Node("TopK", [x, np.array([6])], {"largest": largest}, 2, "", opset=13)
    got, expected = node.results(cpu_context)
    places = [4199, 0] if not largest else [0, 4199]
    assert got[1].tolist() == [[*places, 7, 1, 2, 3], [3, 9, 0, 1, 2, 4]]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
