"""Plans of the norm kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.norm import affine_node
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.kernels import FAMILIES
from webnn_vk.compiler.types.data_types import FLOAT_TYPES


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    families = FAMILIES["norm"], FAMILIES["batch_norm"]
    known = {spec for family in families for spec in catalogue(device.features, family.name)}
    rng = np.random.default_rng(4)
    for data_type in FLOAT_TYPES:
        x, channel = np.zeros((2, 3, 4, 500), data_type), np.zeros(3, data_type)
        nodes = [
            node_of("layer_normalization", x, scale=None, bias=None),
            node_of("layer_normalization", x, scale=x[0], bias=x[0], axes=[1, 2, 3]),
            node_of("layer_normalization", x, scale=x[0, 0].T, bias=None, axes=[3, 2]),
            node_of("instance_normalization", x, **affine_node(rng, data_type, (3,))),
            node_of("batch_normalization", x, channel, channel, scale=None, bias=None),
        ]
        for node, _ in nodes:
            for dispatch in plan(node, device):
                assert dispatch.spec in known
                assert len(dispatch.bindings) + (
                    dispatch.spec.param_storage == "buffer"
                ) == dispatch.spec.binding_count


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
