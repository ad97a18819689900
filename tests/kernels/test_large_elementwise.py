"""Element-wise operators on tensors over the binding limit (128 MiB on llvmpipe), end to end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import webnn_vk
from tests.drivers import require_vulkan

pytestmark = pytest.mark.large

BORDER = 128 * 2**20  # bytes


@pytest.fixture(scope="module")
def context() -> Iterator[webnn_vk.MLContext]:
    require_vulkan()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEBNN_VK_DEVICE", "vulkan")
        with webnn_vk.ml.create_context().result() as context:
            yield context


def _near_borders(count: int, size: int) -> np.ndarray:
    """Element indices around every 128 MiB border, at both ends, and at random."""
    borders = np.arange(0, count * size + 1, BORDER) // size
    near = (borders[:, None] + np.arange(-9, 10)).reshape(-1)
    spread = np.random.default_rng(4).integers(0, count, 1000)
    return np.unique(np.clip(np.concatenate([near, spread]), 0, count - 1))


def test_512_mib_with_a_broadcast_row(context: webnn_vk.MLContext) -> None:
    shape = (2**17 - 1, 1024 + 1)  # odd: slices begin within rows
    x = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape)
    row = np.arange(shape[1], dtype=np.uint32) * 7
    builder = webnn_vk.MLGraphBuilder(context)
    a = builder.input("a", {"data_type": "uint32", "shape": x.shape})
    b = builder.input("b", {"data_type": "uint32", "shape": row.shape})
    graph = builder.build({"y": builder.add(a, b)}).result()
    (step,) = graph.report().steps
    limit = context.device_info.limits["max_storage_buffer_range"]
    assert step.device == "vulkan" and step.dispatches == -(-x.nbytes // limit)
    y = context.compute(graph, {"a": x, "b": row})["y"].reshape(-1)
    at = _near_borders(y.size, 4)
    np.testing.assert_array_equal(y[at], at + at % shape[1] * 7)


def test_a_repeated_operand_of_200_mib(context: webnn_vk.MLContext) -> None:
    """The smaller operand exceeds a binding too: slices end where it is repeated."""
    shape = (2, 200 * 2**20 + 5)
    x = (np.arange(shape[1], dtype=np.uint32) % 251).astype(np.uint8)
    two = np.array([[1], [100]], np.uint8)
    builder = webnn_vk.MLGraphBuilder(context)
    a = builder.input("a", {"data_type": "uint8", "shape": x.shape})
    b = builder.input("b", {"data_type": "uint8", "shape": two.shape})
    graph = builder.build({"y": builder.add(a, b)}).result()
    (step,) = graph.report().steps
    assert step.device == "vulkan" and step.dispatches > 3
    y = context.compute(graph, {"a": x, "b": two})["y"].reshape(-1)
    at = np.union1d(_near_borders(y.size, 1), shape[1] + np.arange(-9, 10))
    expected = (at % shape[1] % 251 + np.where(at < shape[1], 1, 100)) % 256
    np.testing.assert_array_equal(y[at], expected)
