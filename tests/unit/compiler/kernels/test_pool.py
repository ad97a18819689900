"""Plans of the pool kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.kernels import Unsupported


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
