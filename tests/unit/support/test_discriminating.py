"""Comparisons that would let wrong results pass are found, and only those."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.discriminating import anything_passes, assert_allclose, examples_together
from tests.support.paths import ROOT
from tests.support.ulp import assert_close

NUMBERS = np.arange(1, 41, dtype=np.float32)


@pytest.mark.parametrize("rtol, atol", [(1, 1), (0, 25), (0.9, 10)])
def test_tolerances_as_wide_as_the_numbers(rtol: float, atol: float) -> None:
    with pytest.raises(AssertionError, match="would let"):
        assert_allclose(NUMBERS, NUMBERS, rtol=rtol, atol=atol)
    with anything_passes("shows that it can be said"):
        assert_allclose(NUMBERS, NUMBERS, rtol=rtol, atol=atol)


def test_each_wrong_result_is_tried() -> None:
    apart = np.array([100.0, 104.0] * 8)
    with pytest.raises(AssertionError, match="in another order"):
        assert_allclose(apart, apart, rtol=0.05)
    # By units in the last place, equally far from zeros and from anything else.
    with pytest.raises(AssertionError, match="twice"):
        assert_close([NUMBERS], [NUMBERS], 1 << 23)
    small = np.where(np.arange(16) < 12, 1e-7, 1.0) * (1 + np.arange(16))
    with pytest.raises(AssertionError, match="zeros pass: of 16 wrong elements it finds 4"):
        assert_allclose(small, small, rtol=1e-6, atol=1e-5)


def test_units_in_the_last_place() -> None:
    assert_close([NUMBERS], [NUMBERS], 64)
    with pytest.raises(AssertionError, match="would let"):
        assert_close([NUMBERS], [NUMBERS], 1 << 25)


def test_what_shows_nothing_needs_no_excuse() -> None:
    """Zeros, constants, infinities and NaN; a wrong result still fails as before."""
    for expected in (
        np.zeros(8), np.full(8, 3.0), np.array([np.inf, np.nan]), np.array([]), np.float64(2),
        [1.0, 2.0], np.arange(5),
    ):
        assert_allclose(expected, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_allclose(NUMBERS + 1, NUMBERS, rtol=1e-3)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_allclose([1.0, 2.0], 3)


def test_random_examples_are_judged_together() -> None:
    """One example that shows nothing is fine among others; if all show nothing it is an error. A
    large one counts no more than a small one."""

    def compare(*factors: float) -> None:
        drawn = iter(factors)

        @settings(max_examples=len(factors), database=None, phases=[Phase.generate])
        @given(st.integers(0, 2**40))
        def run(number: int) -> None:
            factor = next(drawn, factors[-1])
            made = np.tile(NUMBERS * factor, 1 if factor > 2 else 100)
            for _ in range(3):
                assert_allclose(made, made, atol=100)

        with examples_together():
            run()

    compare(*[1] * 9, *[1e3] * 3)
    with pytest.raises(AssertionError, match="all random examples .* zeros pass: 0 of 9 notice"):
        compare(*[1] * 9)
    with pytest.raises(AssertionError, match="all random examples .* zeros pass: 0 of 10 notice"):
        compare(*[1] * 5, *[2] * 5)


def test_no_other_file_calls_numpys() -> None:
    """Except in programs for other processes, which are strings."""
    found = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "assert_allclose" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr == "assert_allclose" or (
                isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numpy")
                and any(alias.name == "assert_allclose" for alias in node.names)
            ):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == {"tests/support/discriminating.py"}
