"""Plans of the reduce kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan


def test_one_long_row_fills_a_gpu() -> None:
    gpu = stored_profile("nvidia_ampere")
    node, _ = node_of("reduce_sum", np.zeros((1, 1 << 20), np.float32))
    assert len(plan(node, gpu)) == 2 and plan(node, gpu)[0].groups[0] == 64
