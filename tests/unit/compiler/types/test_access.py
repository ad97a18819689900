"""Accesses: movements, composition and inverses compared with NumPy's indexing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.strides import broadcast_strides
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels.node import view
from webnn_vk.compiler.types.access import (
    Access,
    collapse,
    compose,
    inverse,
    strides,
)
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def value(*shape: int) -> Value:
    return Value(MLOperandDescriptor("int32", shape))


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """An array in which each element is its own position."""
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


def positions(access: Access) -> np.ndarray:
    """The positions in the value's memory that an access reads, by its definition."""
    grid = np.indices(access.shape).reshape(len(access.shape), math.prod(access.shape))
    return (access.offset + np.array(access.strides, int) @ grid).reshape(access.shape)


SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@dataclass(frozen=True)
class Moved:
    """An access of a tensor of ``shape`` and the elements that it should read."""

    shape: tuple[int, ...]
    access: Access
    array: np.ndarray


def step(draw: st.DrawFn, access: Access, array: np.ndarray) -> tuple[Access, np.ndarray]:
    """One random movement, of the access and of the array."""
    shape = access.shape
    axes = range(len(shape))
    match draw(st.sampled_from(["permute", "slice", "broadcast", "reverse", "tile"])):
        case "permute":
            order = draw(st.permutations(axes))
            return access.permuted(order), array.transpose(order)
        case "slice":
            starts = [draw(st.integers(0, d - 1)) for d in shape]
            steps = [draw(st.integers(1, 3)) for _ in shape]
            sizes = [
                draw(st.integers(1, -(-(d - s) // n)))
                for d, s, n in zip(shape, starts, steps, strict=True)
            ]
            cut = tuple(
                slice(s, s + (c - 1) * n + 1, n)
                for s, n, c in zip(starts, steps, sizes, strict=True)
            )
            return access.sliced(starts, sizes, steps), array[cut]
        case "broadcast" if len(shape) < 6:
            wider = tuple(3 if d == 1 and draw(st.booleans()) else d for d in shape)
            wider = (*draw(st.lists(st.integers(1, 3), max_size=1)), *wider)
            return access.broadcast(wider), np.broadcast_to(array, wider)
        case "reverse":
            chosen = sorted(draw(st.sets(st.sampled_from(axes))))
            return access.reversed(chosen), np.flip(array, chosen)
        case "tile" if len(shape) < 4:
            times = [draw(st.integers(1, 2)) for _ in shape]
            finer = tuple(n for pair in zip(times, shape, strict=True) for n in pair)
            whole = np.tile(array, times)
            return access.tiled(times), whole.reshape(finer)
        case _:
            return access, array


@st.composite
def moved(draw: st.DrawFn, target: Value | None = None, most: int = 3) -> Moved:
    """A value seen through a few movements."""
    target = target or value(*draw(SHAPES))
    access, array = Access.dense(target), numbers(target.shape)
    for _ in range(draw(st.integers(0, most))):
        access, array = step(draw, access, array)
        assume(array.size <= 2000)
    return Moved(target.shape, access, array)


@given(moved())
def test_movements_are_those_of_numpy(case: Moved) -> None:
    assert case.access.shape == case.array.shape
    np.testing.assert_array_equal(positions(case.access), case.array)
    np.testing.assert_array_equal(view(numbers(case.shape), case.access), case.array)
    assert case.access.size == case.array.size


@given(moved())
def test_properties_are_those_of_the_elements(case: Moved) -> None:
    access, flat = case.access, case.array.ravel()
    assert access.span == (flat.min(), flat.max() + 1)
    assert access.is_dense == np.array_equal(flat, np.arange(flat.size))
    assert access.is_permutation == is_order_of_dimensions(case)


def is_order_of_dimensions(case: Moved) -> bool:
    """Whether each of the first elements occurs once, and none before a smaller one along any
    dimension."""
    flat = np.sort(case.array.ravel())
    forwards = all((np.diff(case.array, axis=axis) > 0).all() for axis in range(case.array.ndim))
    return forwards and np.array_equal(flat, np.arange(flat.size))


def test_a_dense_access_may_have_another_shape() -> None:
    a = value(4, 6)
    access = Access.dense(a, (2, 12))
    assert (access.shape, access.strides, access.offset) == ((2, 12), (12, 1), 0)
    assert access.data_type == "int32" and access.is_dense and access.is_permutation
    assert Access.dense(a, (3, 2)).span == (0, 6)


def test_writing_outside_is_an_error() -> None:
    access = Access.dense(value(4)).sliced((2,), (3,))
    with pytest.raises(IndexError, match="leaves an array of 4 elements"):
        view(numbers((4,)), access)
    with pytest.raises(IndexError, match="leaves an array of 4 elements"):
        view(numbers((4,)), Access(value(4), (2,), (-1,)))


# -- composition
@st.composite
def composed(draw: st.DrawFn) -> tuple[Access, Access, np.ndarray]:
    """(outer, inner, the elements that outer should read): inner fills a tensor row by row,
    possibly under another shape, and outer reads it."""
    inner = draw(moved())
    size = inner.array.size
    shape = inner.array.shape
    if draw(st.booleans()):
        shape = draw(reshaped(size))
    middle = value(*shape)
    outer = draw(moved(middle))
    return outer.access, inner.access, inner.array.ravel()[outer.array]


@st.composite
def reshaped(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape of ``size`` elements."""
    dims = []
    while size > 1 and len(dims) < 5:
        divisor = draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0]))
        dims.append(divisor)
        size //= divisor
    if size > 1:
        dims.append(size)
    return tuple(dims) or (1,)


@settings(max_examples=max(300, settings.default.max_examples))
@given(composed())
def test_a_composition_names_the_same_elements(case: tuple) -> None:
    outer, inner, expected = case
    done = compose(outer, inner)
    if done is None:
        assert crosses(outer, inner), f"{outer}\n{inner}"
        return
    assert done.value is inner.value and done.shape == outer.shape
    np.testing.assert_array_equal(positions(done), expected)


def crosses(outer: Access, inner: Access) -> bool:
    """Whether a step along a dimension of ``outer`` changes several coordinates of ``inner``, or
    not always the same one; evenly consecutive dimensions count as one."""
    dims, _ = collapse(inner.shape, inner.strides)
    coordinates = np.array(np.unravel_index(positions(outer), dims))
    for axis in range(1, coordinates.ndim):
        steps = np.diff(coordinates, axis=axis).reshape(len(dims), -1)
        if np.count_nonzero(steps.any(axis=1)) > 1:
            return True
    return False


def test_compositions_that_attention_needs() -> None:
    x = value(2, 8, 32)
    split = Access.dense(value(2, 8, 4, 8))
    heads = compose(split.permuted((0, 2, 1, 3)), Access.dense(x))
    assert heads == Access(x, (2, 4, 8, 8), (256, 8, 32, 1))
    turned = compose(Access.dense(value(2, 4, 8, 8)).permuted((0, 1, 3, 2)), heads)
    assert turned == Access(x, (2, 4, 8, 8), (256, 8, 1, 32))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        # A row of 6 crosses the rows of 3 that are 4 apart.
        (Access(value(6), (6,), (1,)), Access(value(2, 4), (2, 3), (4, 1))),
        # Columns of a transpose, read as rows of another length.
        (Access(value(3, 4), (3, 4), (4, 1)), Access(value(6, 2), (2, 6), (1, 2))),
        # Twice around a row that is repeated, then the next one.
        (Access(value(4, 3), (12,), (1,)), Access(value(2, 3), (2, 2, 3), (3, 0, 1))),
    ],
)
def test_what_no_strides_can_say(outer: Access, inner: Access) -> None:
    assert compose(outer, inner) is None


def test_what_leaves_the_tensor_between_is_none() -> None:
    inner = Access.dense(value(2, 3))
    assert compose(Access(value(6), (2,), (1,), 6), inner) is None
    assert compose(Access(value(6), (2,), (1,), -1), inner) is None
    assert compose(Access(value(6), (3,), (1,), 4), inner) is None
    assert compose(Access(value(6), (3,), (-1,), 1), inner) is None
    assert compose(Access(value(6), (3,), (-1,), 2), inner).strides == (-1,)


# -- inverses
@st.composite
def orders(draw: st.DrawFn) -> Moved:
    """A tensor's dimensions in another order, some of them split in two."""
    shape = draw(SHAPES)
    finer = []
    for d in shape:
        divisors = [n for n in range(1, d + 1) if d % n == 0]
        n = draw(st.sampled_from(divisors))
        finer += [n, d // n]
    order = draw(st.permutations(range(len(finer))))
    target = value(*shape)
    return Moved(
        shape,
        Access.dense(target, finer).permuted(order),
        numbers(shape).reshape(finer).transpose(order),
    )


@given(orders())
def test_an_inverse_leads_each_element_to_where_it_goes(case: Moved) -> None:
    assert case.access.is_permutation
    filled = value(*case.access.shape)
    place = inverse(case.access, filled)
    assert place is not None and place.value is filled
    # Scattering the source by the inverse equals gathering it by the access.
    memory = np.zeros(case.access.shape, np.int32)
    view(memory, place, writable=True)[...] = numbers(case.shape).reshape(place.shape)
    np.testing.assert_array_equal(memory, case.array)
    # There and back again.
    back = inverse(place, case.access.value)
    assert collapse(back.shape, back.strides) == collapse(
        case.access.shape, case.access.strides
    )


@given(moved())
def test_only_permutations_have_an_inverse(case: Moved) -> None:
    place = inverse(case.access, value(*case.access.shape))
    assert (place is not None) == is_order_of_dimensions(case)


# -- strides
@given(SHAPES, st.data())
def test_broadcast_strides_are_those_of_a_broadcast_access(shape, data) -> None:
    own = tuple(d if data.draw(st.booleans()) else 1 for d in shape)
    own = own[data.draw(st.integers(0, len(own))) :]
    access = Access.dense(value(*own)).broadcast(shape)
    assert access.strides == broadcast_strides(own, shape)
    expected = np.broadcast_to(numbers(own), shape)
    np.testing.assert_array_equal(positions(access), expected)


def test_row_major_strides() -> None:
    assert strides((2, 3, 4)) == (12, 4, 1)
    assert strides(()) == ()
