"""Products of one row that also normalise it or combine the halves of the result, against the
references."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.row_products import GATED, NORMALISED, only_kernel
from tests.support.comparing import assert_close
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile

CASES = NORMALISED | GATED


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_operators(case: str, data_type: str) -> None:
    """Halves are not rounded between the operators: errors are measured by the largest sum."""
    require_vulkan()
    profile = device_profile(device_type="discrete")
    made = CASES[case](data_type)
    node = only_kernel(made, profile)
    assert node.gated == (case in GATED) and (node.prologue is not None or node.gated)
    (expected,) = node.evaluate(made.arrays.get)
    halves = "float16" in {data_type, *(v.data_type for v in made.arrays)}
    error = 2e-3 if halves else 5e-6
    assert_close(node, made.arrays, profile, error, least=float(np.abs(expected).max()))


@pytest.mark.parametrize("case", ["row_by_rows", "row_by_columns", "row_of_blocks"])
@pytest.mark.parametrize("special", [np.inf, np.nan, 1e30, 1e-30])
def test_a_row_of_special_values(case: str, special: float) -> None:
    """An infinite element makes NaN of all sums; squares that overflow make zeros, and of squares
    that vanish epsilon is left."""
    require_vulkan()
    profile = device_profile(device_type="discrete")
    made = CASES[case]("float32")
    row = next(iter(made.arrays.values()))
    if abs(special) < 1:
        row *= special
    else:
        row[0, 5:7] = special
    node = only_kernel(made, profile)
    with np.errstate(all="ignore"):
        (expected,) = node.evaluate(made.arrays.get)
        finite = np.abs(expected[np.isfinite(expected)])
        assert_close(node, made.arrays, profile, 1e-5, least=float(finite.max(initial=0)))
