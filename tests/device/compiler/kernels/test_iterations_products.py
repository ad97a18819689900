"""Products and convolutions whose inner dimension is too long for one invocation of llvmpipe."""

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder

LONG = 200_001


def product(context, a: np.ndarray, b: np.ndarray):
    builder = MLGraphBuilder(context)
    x = builder.input("a", {"data_type": "float32", "shape": a.shape})
    y = builder.input("b", {"data_type": "float32", "shape": b.shape})
    graph = builder.build({"y": builder.matmul(x, y)}).result()
    return graph, context.compute(graph, {"a": a, "b": b})["y"]


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (1, 4), (4, 1)])
def test_long_inner_dimensions_are_summed_to_the_end(vulkan_context, rows, columns):
    random = np.random.default_rng(rows)
    a = random.random((rows, LONG), np.float32)
    b = random.random((LONG, columns), np.float32)
    graph, result = product(vulkan_context, a, b)
    assert graph.report().count("cpu") == 0
    assert_allclose(result, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-4)


def test_convolutions_over_the_limit_run_on_the_cpu_and_say_why(vulkan_context):
    if not vulkan_context.device_info.type == "cpu":
        pytest.skip("only software devices have the limit")
    builder = MLGraphBuilder(vulkan_context)
    x = builder.input("x", {"data_type": "float32", "shape": [1, 1, 300, 300]})
    w = builder.constant(np.ones((1, 1, 299, 299), np.float32))
    graph = builder.build({"y": builder.conv2d(x, w)}).result()
    (step,) = graph.report().steps
    assert step.device == "cpu" and "llvmpipe ends loops at 65535" in step.reason
    result = vulkan_context.compute(graph, {"x": np.ones((1, 1, 300, 300), np.float32)})["y"]
    np.testing.assert_array_equal(result, np.full((1, 1, 2, 2), 299.0**2, np.float32))
