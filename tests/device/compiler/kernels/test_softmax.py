"""The softmax kernel compared with the NumPy reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.comparing import (
    EACH_WAY,
    GPU_WAYS,
    WAYS,
    assert_close,
    profile_for,
    random_array,
    random_shape,
)
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, run, schedules_of
from webnn_vk.compiler.kernels.loads import SUBGROUP_SUMS
from webnn_vk.compiler.types.data_types import FLOAT_TYPES

#: Relative errors, however small an element is relative to its row's largest; for float16 down to
#: the least number above 0.
_LEAST = {"float32": 1e-30, "float16": 2.0**-24 / 1e-6}


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_random(data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(FLOAT_TYPES.index(data_type))
    for shape in [random_shape(rng, 1) for _ in range(3)] + [(2, 300), (3, 70, 5), (1, 1000, 1)]:
        x = random_array(rng, data_type, shape, 20)
        node, arrays = node_of("softmax", x, int(rng.integers(len(shape))))
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way), least=_LEAST[data_type])


@EACH_WAY
def test_rows_of_vectors(data_type: str, way: str) -> None:
    """Rows that are loaded four elements at once: kept in registers, or too long for that."""
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), 2])
    for shape in ((9, 4), (13, 64), (3, 5, 100), (3, 128), (3, 5, 132), (2, 768), (2, 4100)):
        x = random_array(rng, data_type, shape, 20)
        node = node_of("softmax", x, len(shape) - 1)
        assert_close(*node, profile_for(way, 4096), least=_LEAST[data_type])


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_rows_shared_by_subgroups(data_type: str) -> None:
    """Workgroups of one subgroup and of several, whose invocations have all the same number of
    vectors, or some none."""
    require_vulkan()
    profile = profile_for("discrete")
    if not profile.features >= SUBGROUP_SUMS:
        pytest.skip("the device has no subgroup arithmetic")
    rng, seen = np.random.default_rng(3), set()
    for length in (32, 96, 128, 1024, 1028):
        node, arrays = node_of("softmax", random_array(rng, data_type, (3, length), 20), 1)
        for schedule in schedules_of(node, profile):
            if schedule.kernel == "subgroups":
                assert_close(node, arrays, profile, schedule=schedule, least=_LEAST[data_type])
                seen.add((schedule["lanes"], length))
    one = profile.subgroup_size
    assert seen >= {(one, 32), (one, 96), (4 * one, 128), (32, 1024), (64, 1028)}


def test_large_inputs_do_not_overflow() -> None:
    require_vulkan()
    x = np.array([[1e38, -1e38, 0], [-3e38, -3e38, -3e38], [-np.inf, 0, 0]], np.float32)
    for way, times in itertools.product(("software", "discrete"), (20, 32)):
        (own,) = run(*node_of("softmax", np.repeat(x, times, 1), 1), profile_for(way))
        expected = np.repeat([[1, 0, 0], [1 / 3] * 3, [0, 0.5, 0.5]], times, 1) / times
        assert_allclose(own, expected, rtol=1e-6)


def test_rows_without_a_distribution_are_nan() -> None:
    require_vulkan()
    for way, length in itertools.product(("software", "discrete"), (40, 100)):
        x = np.zeros((4, length), np.float32)
        x[0, 5], x[1, 6], x[2] = np.inf, np.nan, -np.inf
        node, arrays = node_of("softmax", x, 1)
        (own,) = run(node, arrays, profile_for(way))
        assert np.isnan(own[:3]).all()
        assert_allclose(own[3], 1 / length, rtol=1e-6)
        assert np.isnan(node.evaluate(arrays.get)[0][:3]).all()
