"""The scan kernel compared with the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import GPU_WAYS, assert_close, profile_for, random_array, random_shape
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, plan, run
from webnn_vk.compiler.ops.reduction import ARITHMETIC_TYPES


@pytest.mark.parametrize("data_type", ARITHMETIC_TYPES)
def test_random(data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(1)
    for shape in [random_shape(rng, 1) for _ in range(2)] + [(2, 300), (3, 70, 5), (1, 555)]:
        options = {"exclusive": bool(rng.integers(2)), "reversed": bool(rng.integers(2))}
        x = random_array(rng, data_type, shape)
        node, arrays = node_of("cumulative_sum", x, int(rng.integers(len(shape))), **options)
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way), 1e-5)


@pytest.mark.parametrize("reversed", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("data_type", ["float16", "int32", "int64"])
def test_long_rows_in_chunks(data_type: str, exclusive: bool, reversed: bool) -> None:
    require_vulkan()
    rng = np.random.default_rng(2)
    x = random_array(rng, data_type, (2, 40011, 1))
    if data_type == "float16":
        x = (np.abs(x) / 512).astype(data_type)
    for way in ("discrete", "masked"):
        profile = profile_for(way).replace(device_type="discrete")
        node, arrays = node_of("cumulative_sum", x, 1, exclusive=exclusive, reversed=reversed)
        assert [d.variant for d in plan(node, profile)] == ["totals", "invocation", "group"]
        assert_close(node, arrays, profile)


def test_hand_computed() -> None:
    require_vulkan()
    x = np.array([1, 2, 3, 4], np.float32)
    for options, expected in (
        ({}, [1, 3, 6, 10]),
        ({"exclusive": True}, [0, 1, 3, 6]),
        ({"reversed": True}, [10, 9, 7, 4]),
        ({"exclusive": True, "reversed": True}, [9, 7, 4, 0]),
    ):
        (own,) = run(*node_of("cumulative_sum", x, 0, **options), profile_for("software"))
        assert own.tolist() == expected
