"""Plans of the scan kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.ops.reduction import ARITHMETIC_TYPES


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "scan"))
    for data_type in ARITHMETIC_TYPES:
        for shape in ((4, 5), (4, 500), (1, 200000)):
            node, _ = node_of("cumulative_sum", np.zeros(shape, data_type), 1)
            assert all(dispatch.spec in known for dispatch in plan(node, device))
