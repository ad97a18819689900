"""Normalisation kernels against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for, random_array, random_shape
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import node_of, run
from webnn_vk.data_types import FLOAT_TYPES
from webnn_vk.kernels import plan
from webnn_vk.kernels.norm import catalogue


def _affine(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> dict:
    """scale and bias, each present or not."""
    return {
        name: random_array(rng, data_type, shape) if rng.random() < 0.7 else None
        for name in ("scale", "bias")
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_layer_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 1])
    for shape in [random_shape(rng) for _ in range(8)] + [(2, 300), (3, 70, 5), (2, 3, 4, 40)]:
        axes = [int(a) for a in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
        affine = _affine(rng, data_type, tuple(shape[a] for a in axes))
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
            affine = _affine(rng, data_type, (channels,))
            x = random_array(rng, data_type, shape)
            node = node_of("instance_normalization", x, **affine, layout=layout, epsilon=1e-3)
            assert_close(*node, profile_for(way), 1e-5)


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
        affine = _affine(rng, data_type, channel)
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


@pytest.mark.parametrize("profile", ["nvidia_h200", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features))
    rng = np.random.default_rng(4)
    for data_type in FLOAT_TYPES:
        x, channel = np.zeros((2, 3, 4, 500), data_type), np.zeros(3, data_type)
        nodes = [
            node_of("layer_normalization", x, scale=None, bias=None),
            node_of("layer_normalization", x, scale=x[0], bias=x[0], axes=[1, 2, 3]),
            node_of("layer_normalization", x, scale=x[0, 0].T, bias=None, axes=[3, 2]),
            node_of("instance_normalization", x, **_affine(rng, data_type, (3,))),
            node_of("batch_normalization", x, channel, channel, scale=None, bias=None),
        ]
        for node, _ in nodes:
            for dispatch in plan(node, device):
                assert dispatch.spec in known
                assert len(dispatch.bindings) + (
                    dispatch.spec.param_storage == "buffer"
                ) == dispatch.spec.binding_count
