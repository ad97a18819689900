"""The schedules of a problem compute the same: loads from storage buffers and as texels, several
elements per invocation, rows alone, shared by workgroups, and in chunks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile, node_of, run, schedules_of


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-2, 2, shape).astype(np.float32)


NODES: dict[str, Callable[[np.random.Generator], tuple]] = {
    "add, flat": lambda rng: node_of("add", _floats(rng, 33, 130), _floats(rng, 33, 130)),
    "add, vectors": lambda rng: node_of("add", _floats(rng, 33, 128), _floats(rng, 128)),
    "add, splat": lambda rng: node_of("add", _floats(rng, 33, 128), _floats(rng, 33, 1)),
    "add, gathered": lambda rng: node_of("add", _floats(rng, 33, 7, 3), _floats(rng, 7, 1)),
    "where, of two types": lambda rng: node_of(
        "where", rng.integers(0, 2, (40, 1), np.uint8), _floats(rng, 40, 60), _floats(rng, 60)
    ),
    "softmax, side by side": lambda rng: node_of("softmax", _floats(rng, 5, 1300), 1),
    "softmax, kept": lambda rng: node_of("softmax", _floats(rng, 11, 100), 1),
    "softmax, odd": lambda rng: node_of("softmax", _floats(rng, 5, 77), 1),
    "softmax, apart": lambda rng: node_of("softmax", _floats(rng, 70, 9), 0),
    "norm, side by side": lambda rng: node_of(
        "layer_normalization", _floats(rng, 5, 1300), scale=_floats(rng, 1300),
        bias=_floats(rng, 1300), axes=[1],
    ),
    "norm, without bias": lambda rng: node_of(
        "layer_normalization", _floats(rng, 5, 64), scale=_floats(rng, 64), bias=None, axes=[1]
    ),
    "norm, permuted": lambda rng: node_of(
        "layer_normalization", _floats(rng, 3, 8, 9), scale=_floats(rng, 9, 8), bias=None,
        axes=[2, 1],
    ),
    "norm, channels": lambda rng: node_of(
        "instance_normalization", _floats(rng, 2, 3, 8, 9), scale=_floats(rng, 3),
        bias=_floats(rng, 3),
    ),
    "norm, channels last": lambda rng: node_of(
        "instance_normalization", _floats(rng, 2, 8, 9, 3), scale=_floats(rng, 3),
        bias=_floats(rng, 3), layout="nhwc",
    ),
    "sum, side by side": lambda rng: node_of("reduce_sum", _floats(rng, 3, 1300), axes=[1]),
    "sum, in chunks": lambda rng: node_of("reduce_mean", _floats(rng, 1, 20004), axes=[1]),
    "logarithm, apart": lambda rng: node_of("reduce_log_sum_exp", _floats(rng, 70, 9), axes=[0]),
    "maximum, of a box": lambda rng: node_of("reduce_max", _floats(rng, 4, 5, 6, 7), axes=[0, 2]),
    "position": lambda rng: node_of("arg_max", _floats(rng, 5, 64), 1),
}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", NODES)
def test_schedules_agree(name: str, rng: np.random.Generator) -> None:
    require_vulkan()
    node, arrays = NODES[name](rng)
    profile = device_profile()
    schedules = schedules_of(node, profile)
    assert {schedule.load for schedule in schedules} == {"storage", "texel"}
    (expected,) = node.evaluate(arrays.get)
    for schedule in schedules[[*NODES].index(name) % 2 :: 2]:  # the next problem has the others
        (computed,) = run(node, arrays, profile, schedule)
        assert_allclose(
            computed, expected, rtol=1e-5, atol=1e-5, err_msg=str(schedule)
        )
