"""Rows too long for one invocation of llvmpipe, whose loops stop silently after 65535 iterations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import assert_close, profile_for
from tests.support.drivers import require_vulkan
from tests.support.running import node_of

LENGTH = 150_000
# So many rows that their number alone would not lead to groups.
ROWS = np.random.default_rng(0).uniform(-1, 1, (70, LENGTH)).astype(np.float32)
ROWS[:, -1] = 9


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("reduce_l1", {"axes": [1]}),
        ("reduce_log_sum_exp", {"axes": [1]}),
        ("reduce_max", {"axes": [1]}),
        ("arg_max", {"axis": 1}),
        ("softmax", {"axis": 1}),
        ("layer_normalization", {"axes": [1]}),
        ("cumulative_sum", {"axis": 1}),
    ],
)
def test_long_rows(name: str, arguments: dict[str, Any]) -> None:
    require_vulkan()
    error = 2e-3 if name == "cumulative_sum" else 1e-5
    least = 1e-30 if name == "softmax" else 1.0
    assert_close(*node_of(name, ROWS, **arguments), profile_for("software"), error, least=least)


def test_permuted_scale() -> None:
    require_vulkan()
    x = ROWS[:8].reshape(1, 400, 3000)
    scale = np.ascontiguousarray(ROWS[8:16].reshape(400, 3000).T)
    node = node_of("layer_normalization", x, scale=scale, bias=None, axes=[2, 1])
    assert_close(*node, profile_for("software"), 1e-5)


def test_large_windows() -> None:
    require_vulkan()
    x = ROWS[:6].reshape(9, 1, 250, 400)
    node = node_of("max_pool2d", x, window_dimensions=[200, 230], strides=[40, 90])
    assert_close(*node, profile_for("software"))
