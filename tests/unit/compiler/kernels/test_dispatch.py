"""Workgroups and strides as plain numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from tests.support.strides import broadcast_strides
from webnn_vk.compiler.kernels.dispatch import grid
from webnn_vk.compiler.types.access import collapse, strides
from webnn_vk.support.integers import padded

SMALL = stored_profile().replace(max_workgroup_count=(7, 5, 3))


@given(st.integers(0, 7 * 5 * 3))
def test_a_grid_covers_the_workgroups_within_the_limits(groups: int) -> None:
    made = grid(groups, SMALL)
    assert all(1 <= n <= most for n, most in zip(made, (7, 5, 3), strict=True))
    assert math.prod(made) >= groups
    if groups <= 35:
        assert made[2] == 1 and math.prod(made) < groups + max(made[1], 2)


def test_what_exceeds_the_grid_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"106 workgroups exceed the device's \(7, 5, 3\)"):
        grid(106, SMALL)


def test_values_occupy_whole_vectors() -> None:
    assert [padded(n) for n in (0, 1, 16, 17, 32)] == [16, 16, 16, 32, 32]


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """A shape and some that broadcast to it."""
    target = tuple(draw(st.lists(st.integers(1, 3), max_size=5)))
    shapes = []
    for _ in range(draw(st.integers(1, 3))):
        own = [d if draw(st.booleans()) else 1 for d in target]
        shapes.append(tuple(own[draw(st.integers(0, len(own))) :]))
    return target, shapes


def positions(shape: tuple[int, ...], own: tuple[int, ...]) -> list[int]:
    """The elements that the strides address, in row-major order of ``shape``."""
    grids = np.indices(shape).reshape(len(shape), math.prod(shape))
    return (np.array(own, int) @ grids if own else np.zeros(1, int)).tolist()


@given(broadcasts())
def test_strides_read_what_broadcasting_does(case: tuple) -> None:
    target, shapes = case
    for shape in shapes:
        numbers = np.arange(math.prod(shape)).reshape(shape)
        own = broadcast_strides(shape, target)
        assert positions(target, own) == np.broadcast_to(numbers, target).ravel().tolist()


@given(broadcasts())
def test_collapsed_dimensions_address_the_same_elements(case: tuple) -> None:
    target, shapes = case
    own = [broadcast_strides(shape, target) for shape in shapes]
    dims, merged = collapse(target, *own)
    assert math.prod(dims) == math.prod(target) and (1 not in dims or dims == (1,))
    for before, after in zip(own, merged, strict=True):
        assert positions(dims, after) == positions(target, before)


def test_as_few_dimensions_as_possible() -> None:
    assert collapse((2, 3, 4), strides((2, 3, 4))) == ((24,), [(1,)])
    assert collapse((2, 3, 4), (12, 4, 1), (0, 4, 1)) == ((2, 12), [(12, 1), (0, 1)])
    assert collapse((2, 1, 4), (4, 0, 1), (0, 0, 0)) == ((8,), [(1,), (0,)])
    assert collapse((1, 1), (0, 0)) == ((1,), [(0,)])
