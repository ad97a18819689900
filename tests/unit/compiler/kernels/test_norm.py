"""Plans of the norm kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan


def test_lanes_exchange_scale_and_bias_of_many_rows() -> None:
    """On processors that can, where each lane has a row."""
    device = stored_profile("llvmpipe")
    blind = device.replace(features=device.features - {"subgroup_shuffle"})
    scale, bias = (np.ones(64, np.float32) for _ in "ab")
    for rows, profile, exchange in (
        (128, device, True), (128, blind, False), (128, stored_profile("nvidia_ampere"), False),
    ):
        x = np.zeros((rows, 64), np.float32)
        node, _ = node_of("layer_normalization", x, scale=scale, bias=bias, axes=[1])
        (dispatch,) = plan(node, profile)
        assert dict(dispatch.spec.options).get("shuffle", False) == exchange
        assert ("SHUFFLE" in dispatch.constants) == exchange
