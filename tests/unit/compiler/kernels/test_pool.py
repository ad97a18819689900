"""Plans of the pool kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.pool import POOLS, random_case
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.kernels import Unsupported
from webnn_vk.compiler.ops import OPERATORS


def test_pooling_everything_is_a_reduction() -> None:
    gpu = stored_profile("nvidia_ampere")
    x = np.zeros((1, 8, 112, 112), np.float32)
    (dispatch,) = plan(node_of("average_pool2d", x)[0], gpu)
    assert (dispatch.kernel, dispatch.variant) == ("reduce", "sum group vectors")
    assert dispatch.groups == (8, 1, 1)
    (dispatch,) = plan(node_of("average_pool2d", x, window_dimensions=[7, 7])[0], gpu)
    assert dispatch.kernel == "pool" and dispatch.params["columns"] == 106


def test_windows_of_millions_of_taps_are_left_to_the_cpu() -> None:
    x = np.zeros((1, 1, 2, 2), np.float32)
    gpu = stored_profile("nvidia_ampere")
    for size, fits in ((2048, True), (2049, False)):
        node, _ = node_of("max_pool2d", x, window_dimensions=[size, size], padding=[size] * 4)
        if fits:
            assert plan(node, gpu)[0].kernel == "pool"
        else:
            with pytest.raises(Unsupported, match="2049 × 2049 taps"):
                plan(node, gpu)


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "pool", "reduce"))
    rng = np.random.default_rng(5)
    for name in POOLS:
        for data_type in OPERATORS[name].limit("input").types:
            for _ in range(5):
                node, _ = random_case(rng, name, data_type)
                assert all(dispatch.spec in known for dispatch in plan(node, device))
