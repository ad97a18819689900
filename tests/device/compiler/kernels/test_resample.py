"""The resampling kernel compared with the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import GPU_WAYS, assert_close, profile_for, random_array
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, plan, run

TYPES = ("float32", "float16", "uint8", "int8")


@pytest.mark.parametrize("mode", ["nearest-neighbor", "linear"])
def test_random(mode: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(1)
    for data_type in TYPES:
        for _ in range(3):
            shape = tuple(int(n) for n in rng.integers(1, 8, 4))
            axes = [int(a) for a in rng.permutation(4)[:2]]
            sizes = [int(n) for n in rng.integers(1, 15, 2)]
            x = random_array(rng, data_type, shape)
            node, arrays = node_of("resample2d", x, mode=mode, sizes=sizes, axes=axes)
            for way in GPU_WAYS:
                assert_close(node, arrays, profile_for(way))


@pytest.mark.parametrize("axes", [[2, 3], [1, 2], [0, 2], [0, 1]])
@pytest.mark.parametrize("mode", ["nearest-neighbor", "linear"])
def test_several_elements_per_invocation(mode: str, axes: list[int]) -> None:
    require_vulkan()
    x = random_array(np.random.default_rng(2), "float32", (5, 6, 11, 23))
    node, arrays = node_of("resample2d", x, mode=mode, sizes=[13, 12], axes=axes)
    profile = profile_for("software")
    (dispatch,) = plan(node, profile)
    assert (dispatch.params["items"] > 1) == profile.is_software
    assert_close(node, arrays, profile)


@pytest.mark.parametrize("mode", ["nearest-neighbor", "linear"])
def test_products_beyond_32_bits(mode: str) -> None:
    require_vulkan()
    # (2 o + 1) * size passes 2^32 near the end of the axis.
    x = np.arange(70000, dtype=np.float32).reshape(1, 1, 1, 70000)
    node, arrays = node_of("resample2d", x, mode=mode, sizes=[1, 69999])
    (own,) = run(node, arrays, profile_for("software"))
    o = np.arange(69999)
    exact = np.clip((o + 0.5) * 70000 / 69999 - 0.5, 0, 69999)
    expected = np.ceil(exact - 0.5) if mode == "nearest-neighbor" else exact
    assert_allclose(own.ravel(), expected, atol=0.01)
    if mode == "nearest-neighbor":
        assert_close(node, arrays, profile_for("software"))
