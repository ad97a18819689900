"""Normalisation kernels against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.norm import affine_node
from tests.support.comparing import WAYS, assert_close, profile_for, random_array, random_shape
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, run
from webnn_vk.data_types import FLOAT_TYPES


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_layer_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 1])
    for shape in [random_shape(rng) for _ in range(8)] + [(2, 300), (3, 70, 5), (2, 3, 4, 40)]:
        axes = [int(a) for a in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
        affine = affine_node(rng, data_type, tuple(shape[a] for a in axes))
        x = random_array(rng, data_type, shape)
        node = node_of("layer_normalization", x, **affine, axes=axes, epsilon=1e-3)
        assert_close(*node, profile_for(way), 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_instance_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 2])
    for shape in [random_shape(rng, 4, 4) for _ in range(4)] + [(2, 3, 8, 9), (1, 8, 9, 2)]:
        for layout, channels in (("nchw", shape[1]), ("nhwc", shape[3])):
            affine = affine_node(rng, data_type, (channels,))
            x = random_array(rng, data_type, shape)
            node = node_of("instance_normalization", x, **affine, layout=layout, epsilon=1e-3)
            assert_close(*node, profile_for(way), 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_rows_of_vectors(data_type: str, way: str) -> None:
    """Rows that are loaded four elements at once: kept in registers, or too long for that."""
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 4])
    for shape in ((9, 4), (5, 132), (3, 768), (2, 4100)):
        for affine in (affine_node(rng, data_type, shape[1:]), {"scale": None, "bias": None}):
            x = random_array(rng, data_type, shape)
            node = node_of("layer_normalization", x, **affine, axes=[1], epsilon=1e-3)
            assert_close(*node, profile_for(way, 1 << 14), 1e-5)
        x = random_array(rng, data_type, (2, shape[0], 2, shape[1] // 2))
        affine = affine_node(rng, data_type, (shape[0],))
        node = node_of("instance_normalization", x, **affine, epsilon=1e-3)
        assert_close(*node, profile_for(way, 1 << 14), 1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_batch_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 3])
    for shape in [random_shape(rng, 1) for _ in range(8)] + [(29, 3, 40), (3, 5, 299)]:
        axis = 1 if len(shape) == 3 else int(rng.integers(len(shape)))
        channel = (shape[axis],)
        mean = random_array(rng, data_type, channel)
        variance = np.abs(random_array(rng, data_type, channel)) + np.dtype(data_type).type(0.1)
        affine = affine_node(rng, data_type, channel)
        x = random_array(rng, data_type, shape)
        node = node_of(
            "batch_normalization", x, mean, variance, **affine, axis=axis, epsilon=1e-3
        )
        assert_close(*node, profile_for(way, 2048), 4e-6)


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    require_vulkan()
    x = (np.arange(1000, dtype=np.float32) % 7) + np.float32(1e6)
    for way in ("software", "discrete"):
        (own,) = run(*node_of("layer_normalization", x, axes=[0]), profile_for(way))
        wide = x.astype(np.float64)
        expected = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
        np.testing.assert_allclose(own, expected, rtol=2e-6, atol=2e-6)
