"""Comparisons that can fail. If zeros, the right numbers in another order, or twice the right
numbers would pass a tolerance too, then the comparison says nothing about the result.

Tests call `assert_allclose` from here in place of NumPy's. Other comparisons call
`assert_discriminating` with the elements that they accept. A random example of hypothesis may show
nothing by chance: the examples of a test are judged together at its end (`examples_together`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis
import numpy as np
from hypothesis.control import current_build_context

#: Share of the differing elements of a wrong result that has to be found wrong.
SHARE = 0.5
#: Share of the random examples of a test that have to notice a wrong result; many may be small or
#: alike.
SHARE_TOGETHER = 0.1
#: Numbers that lie closer, relative to the largest, count as the same in another order: long sums
#: of random numbers are nearly alike.
ALIKE = 2.0**-8
_excused: list[str] = []
#: By the name of a wrong result: which examples of the running test could notice it, and whether
#: they did. Each counts once, however large it is and however often it is compared.
_together: dict[str, dict[int, bool]] = {}
#: The example that runs, and its number.
_example: tuple[Any, int] = (None, 0)


def wrong_results(expected: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Wrong results of the right size, by name. Elements that aren't finite keep their places."""
    finite = np.isfinite(expected)
    yield "zeros", np.where(finite, 0, expected)
    numbers = expected[finite]
    shuffled = expected.copy()
    shuffled[finite] = np.random.default_rng(0).permutation(numbers)
    yield "the expected numbers in another order", shuffled
    with np.errstate(over="ignore"):
        yield "twice the expected numbers", np.where(finite, 2 * expected, expected)


def assert_discriminating(
    expected: Any, passes: Callable[[np.ndarray], np.ndarray], what: str = ""
) -> None:
    """Raises AssertionError if a wrong result would pass. ``passes`` says by element whether a
    result is close enough. A wrong result that equals the expected one (doubled zeros, a constant
    in another order) shows nothing: results that are constant or zero by their nature need no
    excuse."""
    if _excused:
        return
    expected = np.atleast_1d(np.asarray(expected))
    expected = expected.astype(np.complex128 if expected.dtype.kind == "c" else np.float64)
    for name, wrong in wrong_results(expected):
        otherwise = np.isfinite(expected) & (wrong != expected)
        if "order" in name:
            largest = np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
            with np.errstate(invalid="ignore"):
                otherwise &= np.abs(wrong - expected) > ALIKE * largest
        count = int(np.count_nonzero(otherwise))
        if not count:
            continue
        found = int(np.count_nonzero(otherwise & ~passes(wrong)))
        if hypothesis.currently_in_test_context():
            told = _together.setdefault(name, {})
            number = _example_number()
            told[number] = told.get(number, False) or found >= max(1, SHARE * count)
            continue
        assert found >= max(1, SHARE * count), (
            f"the tolerance would let {name} pass: of {count} wrong elements it finds {found}"
            + (f"\n{what}" if what else "")
        )


def assert_allclose(
    actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, *rest: Any, **more: Any
) -> None:
    """NumPy's, which also has to be discriminating."""
    __tracebackhide__ = True
    np.testing.assert_allclose(actual, desired, rtol, atol, *rest, **more)
    wanted = np.broadcast_to(np.asarray(desired), np.broadcast_shapes(
        np.shape(actual), np.shape(desired)
    ))
    if wanted.dtype.kind not in "fiuc":
        return
    wide = np.atleast_1d(wanted).astype(np.float64 if wanted.dtype.kind != "c" else complex)

    def passes(wrong: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.asarray(np.abs(wrong - wide) <= atol + rtol * np.abs(wide))

    assert_discriminating(wanted, passes, f"rtol={rtol}, atol={atol}")


def _example_number() -> int:
    global _example
    data = current_build_context().data
    if _example[0] is not data:
        _example = data, _example[1] + 1
    return _example[1]


@contextmanager
def examples_together() -> Iterator[None]:
    """Surrounds one test: AssertionError at its end if a wrong result would pass for its random
    examples taken together."""
    _together.clear()
    yield
    shown = dict(_together)
    _together.clear()
    for name, told in shown.items():
        noticed = sum(told.values())
        assert noticed >= max(1, SHARE_TOGETHER * len(told)), (
            f"over all random examples the tolerances would let {name} pass: {noticed} of "
            f"{len(told)} notice"
        )


@contextmanager
def anything_passes(reason: str) -> Iterator[None]:
    """Comparisons in this block need not discriminate; ``reason`` says why they can't."""
    _excused.append(reason)
    try:
        yield
    finally:
        _excused.pop()


class Judged:
    """Comparisons of random examples, each of which may show nothing by chance, judged together:
    `add` takes the allowed distance of each result from the expected one; `assert_discriminating`
    checks that over all of them most nonzero elements are further than that from 0."""

    def __init__(self) -> None:
        self.told = self.count = 0

    def add(self, expected: np.ndarray, allowed: float | np.ndarray) -> None:
        numbers = np.abs(expected.astype(np.float64))
        judged = np.isfinite(numbers) & (numbers > 0)
        self.told += int(np.count_nonzero(judged & (numbers > allowed)))
        self.count += int(np.count_nonzero(judged))

    def assert_discriminating(self) -> None:
        assert self.told >= SHARE * self.count, (
            f"zeros would pass for all but {self.told} of {self.count} numbers"
        )
