"""Kernels with more iterations than llvmpipe makes are refused, if no plan has fewer."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.kernels import Unsupported


def test_what_is_too_long_is_refused() -> None:
    device = stored_profile("llvmpipe")
    node, _ = node_of("average_pool2d", np.zeros((1, 1, 300, 500), np.float32),
                      window_dimensions=[299, 499], padding=[1, 0, 0, 0])
    with pytest.raises(Unsupported, match="iterations"):
        plan(node, device)
    assert plan(node, stored_profile("nvidia_ampere"))
