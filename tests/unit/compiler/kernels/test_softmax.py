"""Plans of the softmax kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.types.data_types import FLOAT_TYPES


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "softmax"))
    for data_type in FLOAT_TYPES:
        for shape in ((4, 5), (4, 500)):
            (dispatch,) = plan(node_of("softmax", np.zeros(shape, data_type), 1)[0], device)
            assert dispatch.spec in known
            assert dispatch.constants["LX"] <= device.max_workgroup_invocations
