"""Pooling kernels against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.pool import POOLS, random_case
from tests.support.comparing import GPU_WAYS, WAYS, assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, plan, run
from webnn_vk.compiler.ops import OPERATORS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_several_planes_per_invocation(layout: str, way: str) -> None:
    require_vulkan()
    # 29 planes or channels do not divide evenly.
    shape = (1, 29, 20, 21) if layout == "nchw" else (1, 20, 21, 29)
    x = random_array(np.random.default_rng(1), "float32", shape)
    options = {"window_dimensions": [3, 2], "padding": [1, 2, 0, 1], "layout": layout}
    profile = profile_for(way, 8192)
    for name in POOLS:
        node, arrays = node_of(name, x, **options)
        (dispatch,) = plan(node, profile)
        assert (dispatch.params["items"] > 1) == profile.is_software
        assert_close(node, arrays, profile, 2e-6)


# The largest windows that are unrolled take seconds to compile; the other tests' are, too.
@pytest.mark.parametrize(("window", "unrolled", "way"), [
    ([7, 7], True, "discrete"),
    *((window, False, way) for window in ([5, 10], [1, 50]) for way in WAYS),
])
def test_small_windows_are_unrolled(window: list[int], unrolled: bool, way: str) -> None:
    require_vulkan()
    x = random_array(np.random.default_rng(2), "float32", (2, 3, 9, 51))
    profile = profile_for(way)
    for name in POOLS:
        node, arrays = node_of(name, x, window_dimensions=window, padding=[0, 0, 9, 3],
                               strides=[2, 3])
        (dispatch,) = plan(node, profile)
        taps = dispatch.constants["KH"], dispatch.constants["KW"]
        assert taps == (tuple(window) if unrolled else (0, 0))
        assert_close(node, arrays, profile, 0 if name == "max_pool2d" else 2e-6)


@pytest.mark.parametrize("name", POOLS)
def test_random(name: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(POOLS.index(name))
    for data_type in OPERATORS[name].limit("input").types:
        for _ in range(2):
            node, arrays = random_case(rng, name, data_type)
            for way in GPU_WAYS:
                assert_close(node, arrays, profile_for(way), 0 if name == "max_pool2d" else 2e-6)


def test_special_values_and_empty_windows() -> None:
    require_vulkan()
    x = np.array([[-np.inf, -1], [np.nan, -3]], np.float32).reshape(1, 1, 2, 2)
    node = node_of("max_pool2d", x, window_dimensions=[1, 1], padding=[0, 0, 1, 1])
    (own,) = run(*node, profile_for("software"))
    np.testing.assert_array_equal(own[0, 0], [[0, -np.inf, -1, 0], [0, np.nan, -3, 0]])
    node = node_of("max_pool2d", x, window_dimensions=[2, 1])
    (own,) = run(*node, profile_for("software"))
    np.testing.assert_array_equal(own[0, 0], [[np.nan, -1]])
    ones = np.ones_like(x)
    node = node_of("average_pool2d", ones, window_dimensions=[1, 1], padding=[1, 0, 0, 0])
    (own,) = run(*node, profile_for("software"))
    np.testing.assert_array_equal(own[0, 0], [[0, 0], [1, 1], [1, 1]])
