"""Plans of the resample kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan

TYPES = ("float32", "float16", "uint8", "int8")


@pytest.mark.parametrize("profile", ["nvidia_ampere", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "resample"))
    for data_type in TYPES:
        for mode in ("nearest-neighbor", "linear"):
            x = np.zeros((1, 2, 3, 4), data_type)
            node, _ = node_of("resample2d", x, mode=mode, scales=[2, 3], axes=[3, 1])
            (dispatch,) = plan(node, device)
            assert dispatch.spec in known
            # Sorted axes: dimension 1 grows by 3, dimension 3 by 2.
            assert dispatch.params["size"] == (2, 4) and dispatch.params["new_size"] == (6, 8)
