"""Plans of the conv kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.conv import OPERATORS, random_case
from tests.support.profiles import stored_profile
from tests.support.running import node_of
from webnn_vk.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.kernels import catalogue, plan


def _describe(*shape: int) -> MLOperandDescriptor:
    return MLOperandDescriptor("float32", shape)


def _planned(
    profile: str, x: tuple[int, ...], w: tuple[int, ...], name: str = "conv2d", **arguments
):
    node, _ = node_of(name, _describe(*x), _describe(*w), **arguments)
    return plan(node, stored_profile(profile))


def test_plans() -> None:
    (expand,) = _planned("llvmpipe", (1, 16, 112, 112), (96, 16, 1, 1))
    assert expand.kernel == "matmul" and expand.params["N"] == 112 * 112
    (expand,) = _planned(
        "nvidia_h200", (4, 28, 28, 64), (128, 1, 1, 64), input_layout="nhwc", filter_layout="ohwi"
    )
    assert expand.kernel == "matmul_tiled" and expand.params["M"] == 4 * 28 * 28
    (strided,) = _planned("llvmpipe", (1, 16, 8, 8), (8, 16, 1, 1), strides=[2, 2])
    assert strided.kernel == "conv" and strided.flops == 2 * 8 * 16 * 16
    (depthwise,) = _planned("llvmpipe", (1, 96, 56, 56), (96, 1, 3, 3), groups=96)
    assert depthwise.kernel == "conv_depthwise"
    # A huge filter would unroll for ever.
    (huge,) = _planned("llvmpipe", (1, 4, 56, 56), (4, 1, 31, 31), groups=4)
    assert huge.kernel == "conv"
    (last,) = _planned(
        "llvmpipe", (1, 28, 28, 64), (64, 3, 3, 64), input_layout="nhwc", filter_layout="ohwi"
    )
    assert [b.width for b in last.spec.buffers] == [4, 4, 1]


@pytest.mark.parametrize("profile", ["nvidia_h200", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features))
    rng = np.random.default_rng(5)
    for name in OPERATORS:
        for data_type in FLOAT_TYPES:
            for _ in range(20):
                node, _ = random_case(rng, name, data_type)
                assert all(dispatch.spec in known for dispatch in plan(node, device))
