"""Plans of the reduce kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.comparing import random_array
from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.ops import OPERATORS

REDUCTIONS = sorted(n for n, op in OPERATORS.items() if n.startswith("reduce_"))


def test_one_long_row_fills_a_gpu() -> None:
    gpu = stored_profile("nvidia_ampere")
    node, _ = node_of("reduce_sum", np.zeros((1, 1 << 20), np.float32))
    assert len(plan(node, gpu)) == 2 and plan(node, gpu)[0].groups[0] == 64


@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    device = stored_profile(profile)
    known = set(catalogue(device.features, "reduce"))
    rng = np.random.default_rng(4)
    for name in (*REDUCTIONS, "arg_min", "arg_max"):
        for data_type in OPERATORS[name].limit("input").types:
            for shape in ((3, 5), (2, 40011), (5, 70)):
                arguments = {"axis": 1} if name.startswith("arg") else {"axes": [1]}
                node, _ = node_of(name, random_array(rng, data_type, shape), **arguments)
                for dispatch in plan(node, device):
                    assert dispatch.spec in known, dispatch.spec.key()
                    assert len(dispatch.bindings) == dispatch.spec.binding_count
