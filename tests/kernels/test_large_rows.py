"""Tensors larger than one storage-buffer binding through kernels that bind them in windows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.drivers import require_vulkan
from tests.kernels.running import device_profile, node_of, run
from webnn_vk.kernels import plan

pytestmark = pytest.mark.large

SHAPE = (40, 1 << 20)  # 160 MiB of float32
BORDER = (128 << 20) // 4


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    x = np.zeros(SHAPE, np.float32)
    flat = x.reshape(-1)
    # Neighbours of the border between two windows of 128 MiB, and the very last element.
    flat[[BORDER - 2, BORDER - 1, BORDER, BORDER + 1, -1]] = [1, 2, 4, 8, 16]
    return x


def test_reductions(x: np.ndarray) -> None:
    require_vulkan()
    profile = device_profile(max_storage_buffer_range=128 << 20)
    node, arrays = node_of("reduce_sum", x, axes=[1])
    assert len(plan(node, profile)[0].bindings) == 3
    (own,) = run(node, arrays, profile)
    assert own[30:34].tolist() == [0, 3, 12, 0] and own[39] == 16 and own.sum() == 31
    (own,) = run(*node_of("arg_max", x, 1), profile)
    assert own[[31, 32, 39]].tolist() == [(1 << 20) - 1, 1, (1 << 20) - 1]


def test_outputs_in_windows(x: np.ndarray) -> None:
    require_vulkan()
    profile = device_profile(max_storage_buffer_range=128 << 20)
    (own,) = run(*node_of("cumulative_sum", x, 0), profile)
    np.testing.assert_array_equal(own, np.cumsum(x, axis=0))
