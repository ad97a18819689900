"""Movement and gather of tensors over the binding limit (128 MiB on llvmpipe), end to end."""

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
    near = (borders[:, None] + np.arange(-3, 4)).reshape(-1)
    spread = np.random.default_rng(3).integers(0, count, 1000)
    return np.unique(np.clip(np.concatenate([near, spread, [count - 1]]), 0, count - 1))


def test_transpose_of_256_mib(context: webnn_vk.MLContext) -> None:
    rows, columns = 4096, 16384
    x = np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns)
    builder = webnn_vk.MLGraphBuilder(context)
    graph = builder.build({"y": builder.transpose(builder.input("x", {
        "data_type": "uint32", "shape": x.shape,
    }))}).result()
    (step,) = graph.report().steps
    assert (step.device, step.dispatches > 1) == ("vulkan", True)
    y = context.compute(graph, {"x": x})["y"].reshape(-1)
    at = _near_borders(y.size, 4)
    assert np.array_equal(y[at], at % rows * columns + at // rows)


def test_gather_from_a_table_of_250_mib(context: webnn_vk.MLContext) -> None:
    """The rows of a multilingual vocabulary: read slice by slice, each row whole."""
    table = np.arange(170_000 * 384, dtype=np.uint32).view(np.float32).reshape(170_000, 384)
    rows = np.unique(_near_borders(table.size, 4) // 384)
    indices = np.concatenate([rows, rows - 170_000]).astype(np.int64)
    builder = webnn_vk.MLGraphBuilder(context)
    graph = builder.build({"y": builder.gather(
        builder.input("table", {"data_type": "float32", "shape": table.shape}),
        builder.input("indices", {"data_type": "int64", "shape": indices.shape}),
    )}).result()
    (step,) = graph.report().steps
    assert (step.device, step.dispatches) == ("vulkan", 2)
    y = context.compute(graph, {"table": table, "indices": indices})["y"]
    assert y.tobytes() == table[indices].tobytes()
