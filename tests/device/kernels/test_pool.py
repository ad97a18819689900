"""Pooling kernels against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import node_of, run
from webnn_vk.kernels import Unsupported, catalogue, plan
from webnn_vk.ops import OPERATORS

POOLS = ("average_pool2d", "l2_pool2d", "max_pool2d")


def _case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    layout = str(rng.choice(["nchw", "nhwc"]))
    size = [int(n) for n in rng.integers(4, 12, 2)]
    batches, channels = (int(n) for n in rng.integers(1, 4, 2))
    shape = (batches, channels, *size) if layout == "nchw" else (batches, *size, channels)
    x = random_array(rng, data_type, shape)
    if rng.random() < 0.2:
        return node_of(name, x, layout=layout)
    return node_of(
        name, x, layout=layout,
        window_dimensions=[int(n) for n in rng.integers(1, 4, 2)],
        padding=[int(n) for n in rng.integers(0, 4, 4)],
        strides=[int(n) for n in rng.integers(1, 5, 2)],
        dilations=[int(n) for n in rng.integers(1, 3, 2)] if min(size) > 5 else [1, 1],
        output_shape_rounding=str(rng.choice(["floor", "ceil"])),
    )


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", POOLS)
def test_random(name: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), POOLS.index(name)])
    for data_type in OPERATORS[name].limit("input").types:
        for _ in range(6):
            assert_close(*_case(rng, name, data_type), profile_for(way), 2e-6)


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


def test_pooling_everything_is_a_reduction() -> None:
    gpu = stored_profile("nvidia_h200")
    x = np.zeros((1, 8, 112, 112), np.float32)
    (dispatch,) = plan(node_of("average_pool2d", x)[0], gpu)
    assert (dispatch.kernel, dispatch.variant) == ("reduce", "sum group")
    assert dispatch.groups == (8, 1, 1)
    (dispatch,) = plan(node_of("average_pool2d", x, window_dimensions=[7, 7])[0], gpu)
    assert dispatch.kernel == "pool" and dispatch.params["columns"] == 106


def test_windows_of_millions_of_taps_are_left_to_the_cpu() -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    gpu = stored_profile("nvidia_h200")
    for size, fits in ((2048, True), (2049, False)):
        node, _ = node_of("max_pool2d", x, window_dimensions=[size, size], padding=[size] * 4)
        if fits:
            assert plan(node, gpu)[0].kernel == "pool"
        else:
            with pytest.raises(Unsupported, match="2049 × 2049 taps"):
                plan(node, gpu)


@pytest.mark.parametrize("profile", ["nvidia_h200", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features))
    rng = np.random.default_rng(5)
    for name in POOLS:
        for data_type in OPERATORS[name].limit("input").types:
            for _ in range(5):
                node, _ = _case(rng, name, data_type)
                assert all(dispatch.spec in known for dispatch in plan(node, device))
