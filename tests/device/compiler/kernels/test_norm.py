"""Normalisation kernels against the NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.norm import affine_node
from tests.support.comparing import (
    EACH_WAY,
    WAYS,
    assert_close,
    profile_for,
    random_array,
    random_shape,
)
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.forced import pretended_gpu
from tests.support.running import device_profile, node_of, run, schedules_of
from webnn_vk import MLGraphBuilder, MLOperandDescriptor
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.loads import SUBGROUP_SUMS
from webnn_vk.compiler.types.data_types import FLOAT_TYPES


@EACH_WAY
def test_layer_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 1])
    for shape in [random_shape(rng) for _ in range(6)] + [(2, 300), (3, 70, 5), (2, 3, 4, 40)]:
        axes = [int(a) for a in rng.permutation(len(shape))[: rng.integers(len(shape) + 1)]]
        affine = affine_node(rng, data_type, tuple(shape[a] for a in axes))
        x = random_array(rng, data_type, shape)
        node = node_of("layer_normalization", x, **affine, axes=axes, epsilon=1e-3)
        assert_close(*node, profile_for(way), 1e-5)


@EACH_WAY
def test_instance_normalization(data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 2])
    for shape in [random_shape(rng, 4, 4) for _ in range(4)] + [(2, 3, 8, 9), (1, 8, 9, 2)]:
        for layout, channels in (("nchw", shape[1]), ("nhwc", shape[3])):
            affine = affine_node(rng, data_type, (channels,))
            x = random_array(rng, data_type, shape)
            node = node_of("instance_normalization", x, **affine, layout=layout, epsilon=1e-3)
            assert_close(*node, profile_for(way), 1e-5)


@EACH_WAY
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


@EACH_WAY
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
        assert_allclose(own, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_rows_summed_by_subgroups(data_type: str) -> None:
    """Alone and two at a time, with and without invocations that have fewer elements; a workgroup
    of one subgroup, and of several."""
    require_vulkan()
    rng = np.random.default_rng(5)
    profile = device_profile(device_type="discrete")
    if not profile.features >= SUBGROUP_SUMS:
        pytest.skip("the device has no subgroup arithmetic")
    seen = set()
    few = {profile.subgroup_size, 2 * profile.subgroup_size, 32}
    for shape in ((5, 96), (3, 128), (3, 64)):
        x = random_array(rng, data_type, shape)
        nodes = [
            node_of(
                "layer_normalization", x, axes=[1], scale=random_array(rng, data_type, shape[1:]),
                bias=random_array(rng, data_type, shape[1:]),
            ),
            node_of("rms_normalization", x, [1], epsilon=1e-3),
            node_of(
                "instance_normalization", x.reshape(1, *shape, 1),
                scale=random_array(rng, data_type, shape[:1]), bias=None,
            ),
        ]
        for node, arrays in nodes:
            for schedule in schedules_of(node, profile):
                if schedule.kernel == "subgroups" and schedule["lanes"] in few:
                    assert_close(KernelNode.of(node), arrays, profile, 1e-5, schedule)
                    seen.add((schedule["lanes"] == profile.subgroup_size, schedule["rows"]))
    assert seen >= {(True, 1), (False, 1)}
    if "subgroup_full" in profile.features:
        assert (True, 2) in seen


@pytest.mark.parametrize("way", ["software", "discrete"])
def test_extreme_variances(way: str) -> None:
    """Denormal variances, none at all, infinite ones and what is no number: as the formula."""
    require_vulkan()
    x = np.zeros((6, 64), np.float32)
    x[0, ::2], x[1, ::2], x[2], x[3, 0], x[4, 0] = 3e-20, 2e-15, 1.5, np.inf, np.nan
    x[5, ::2] = 1e18
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        centred = wide - wide.mean(1, keepdims=True)
        variance = np.mean(centred**2, 1, keepdims=True)
    for epsilon in (0.0, 1e-5):
        node = node_of("layer_normalization", x, axes=[1], epsilon=epsilon)
        (own,) = run(*node, profile_for(way))
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = centred / np.sqrt(variance + epsilon)
        # A denormal variance may be flushed to 0.
        rows = slice(1, None) if epsilon == 0 else slice(None)
        for row, wanted in zip(own[rows], expected[rows], strict=True):
            assert_allclose(row, wanted, rtol=1e-5, atol=0)


def _overflowing(length: int) -> tuple[np.ndarray, list[str]]:
    """Rows whose squares overflow, or that are no numbers, and what becomes of each."""
    rng = np.random.default_rng(6)
    ordinary = rng.uniform(-2, 2, (8, length)).astype(np.float32)
    x = ordinary.copy()
    x[0] *= np.float32(1e25)
    x[1] = x[1] * np.float32(1e25) + np.float32(3e35)
    x[2] *= np.float32(1e36)
    x[3, 1] = 3e38
    x[4, length // 2] = np.nan
    x[5, 0] = np.inf
    x[6, :2] = np.inf, -np.inf
    return x, ["0", "0", "0", "0", "nan", "infinite", "infinite", "ordinary"]


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("way", ["software", "discrete"])
@pytest.mark.parametrize("name", ["layer", "instance", "rms"])
def test_variances_that_overflow(name: str, way: str) -> None:
    """By every schedule: 0 where the squares overflow, as x / √∞ is, and never a number that no
    row of this length has, above √n; NaN in all of a row that has one."""
    require_vulkan()
    profile, seen = profile_for(way), set()
    for length in (63, 64, 1024):
        x, kinds = _overflowing(length)
        node, arrays = {
            "layer": lambda x: node_of("layer_normalization", x, axes=[1]),
            "instance": lambda x: node_of("instance_normalization", x[None, :, :, None]),
            "rms": lambda x: node_of("rms_normalization", x, [1]),
        }[name](x)
        (expected,) = node.evaluate(arrays.get)
        for schedule in schedules_of(node, profile):
            (own,) = run(node, arrays, profile, schedule)
            assert_allclose(own, expected, rtol=1e-5, atol=1e-5, err_msg=str(schedule))
            seen.add(schedule.kernel)
            for row, kind in zip(own.reshape(len(kinds), -1), kinds, strict=True):
                assert kind != "0" or not row.any(), (kind, schedule)
                assert kind != "nan" or np.isnan(row).all(), (kind, schedule)
                assert kind != "infinite" or not row[np.isfinite(row)].any(), (kind, schedule)
    assert len(seen) > 1


@pytest.mark.parametrize("device", ["software", "gpu"])
def test_variances_that_overflow_behind_a_residual(device: str) -> None:
    """The sum before it and the operators behind it are fused into the kernel."""
    require_vulkan()
    limits = pretended_gpu(device_profile()) if device == "gpu" else None
    x, kinds = _overflowing(64)
    scale = np.random.default_rng(7).uniform(1, 2, 64).astype(np.float32)
    rows = np.array(kinds)
    with open_context(limits=limits) as context:
        for centred in (True, False):
            builder = MLGraphBuilder(context)
            a, b = (
                builder.input(n, MLOperandDescriptor("float32", (8, 64))) for n in ("a", "b")
            )
            s, weights = builder.add(a, b), builder.constant(scale)
            if centred:
                y = builder.layer_normalization(s, axes=[1], scale=weights)
            else:
                mean = builder.reduce_mean(builder.mul(s, s), axes=[1], keep_dimensions=True)
                root = builder.sqrt(builder.add(mean, builder.constant(np.float32(1e-5))))
                y = builder.mul(builder.div(s, root), weights)
            graph = builder.build({"y": builder.abs(y), "s": s}).result()
            kernels = str(graph.report())
            assert ("layer_normalization" if centred else "rms_normalization") in kernels
            y = context.compute(graph, {"a": x / 2, "b": x / 2})["y"]
            assert (y[rows == "0"] == 0).all() and np.isnan(y[rows == "nan"]).all()
            assert not y[rows == "infinite"][np.isfinite(y[rows == "infinite"])].any()
            assert 0.5 < y[rows == "ordinary"].mean() < 3
