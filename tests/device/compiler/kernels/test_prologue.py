"""Kernels that compute their operand where they load it, against the references."""

from __future__ import annotations

import pytest

from tests.support.cases.prologue import CASES, FAR, prologued
from tests.support.comparing import assert_close
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile

ALL = CASES | FAR


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("case", ALL)
def test_results_are_those_of_the_operators(case: str, data_type: str) -> None:
    require_vulkan()
    profile = device_profile(device_type="discrete")
    made = ALL[case](data_type)
    node = prologued(made, profile)
    assert node.prologue is not None
    assert_close(node, made.arrays, profile, 2e-5 if data_type == "float32" else 4e-3)
