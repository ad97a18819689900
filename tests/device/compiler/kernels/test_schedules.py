"""Every schedule of a problem computes the same: loads from storage buffers and as texels, several
elements per invocation, rows alone, shared by workgroups, and in chunks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.drivers import require_vulkan
from tests.support.running import device_profile, node_of, run, schedules_of

rng = np.random.default_rng(13)


def _floats(*shape: int) -> np.ndarray:
    return rng.uniform(-2, 2, shape).astype(np.float32)


NODES: dict[str, Callable[[], tuple]] = {
    "add, flat": lambda: node_of("add", _floats(33, 130), _floats(33, 130)),
    "add, vectors": lambda: node_of("add", _floats(33, 128), _floats(128)),
    "add, splat": lambda: node_of("add", _floats(33, 128), _floats(33, 1)),
    "add, gathered": lambda: node_of("add", _floats(33, 7, 3), _floats(7, 1)),
    "where, of two types": lambda: node_of(
        "where", rng.integers(0, 2, (40, 1), np.uint8), _floats(40, 60), _floats(60)
    ),
    "softmax, side by side": lambda: node_of("softmax", _floats(5, 1300), 1),
    "softmax, kept": lambda: node_of("softmax", _floats(11, 100), 1),
    "softmax, odd": lambda: node_of("softmax", _floats(5, 77), 1),
    "softmax, apart": lambda: node_of("softmax", _floats(70, 9), 0),
    "norm, side by side": lambda: node_of(
        "layer_normalization", _floats(5, 1300), scale=_floats(1300), bias=_floats(1300), axes=[1]
    ),
    "norm, without bias": lambda: node_of(
        "layer_normalization", _floats(5, 64), scale=_floats(64), bias=None, axes=[1]
    ),
    "norm, permuted": lambda: node_of(
        "layer_normalization", _floats(3, 8, 9), scale=_floats(9, 8), bias=None, axes=[2, 1]
    ),
    "norm, channels": lambda: node_of(
        "instance_normalization", _floats(2, 3, 8, 9), scale=_floats(3), bias=_floats(3)
    ),
    "norm, channels last": lambda: node_of(
        "instance_normalization", _floats(2, 8, 9, 3), scale=_floats(3), bias=_floats(3),
        layout="nhwc",
    ),
    "sum, side by side": lambda: node_of("reduce_sum", _floats(3, 1300), axes=[1]),
    "sum, in chunks": lambda: node_of("reduce_mean", _floats(1, 20004), axes=[1]),
    "logarithm, apart": lambda: node_of("reduce_log_sum_exp", _floats(70, 9), axes=[0]),
    "maximum, of a box": lambda: node_of("reduce_max", _floats(4, 5, 6, 7), axes=[0, 2]),
    "position": lambda: node_of("arg_max", _floats(5, 64), 1),
}


@pytest.mark.parametrize("name", NODES)
def test_schedules_agree(name: str) -> None:
    require_vulkan()
    node, arrays = NODES[name]()
    profile = device_profile()
    schedules = schedules_of(node, profile)
    assert {schedule.load for schedule in schedules} == {"storage", "texel"}
    (expected,) = node.evaluate(arrays.get)
    for schedule in schedules:
        (computed,) = run(node, arrays, profile, schedule)
        np.testing.assert_allclose(
            computed, expected, rtol=1e-5, atol=1e-5, err_msg=str(schedule)
        )
