"""Tensors larger than a binding: blocks, ranges and bindings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import Unsupported, raw_copy
from webnn_vk.compiler.kernels.dispatch import Binding
from webnn_vk.compiler.kernels.parts import (
    Items,
    Reach,
    alignment,
    bind,
    bind_range,
    block_shape,
    blocks,
    ranges,
)
from webnn_vk.compiler.types.access import span
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.support.integers import padded

DEVICE = stored_profile("llvmpipe").replace(
    max_storage_buffer_range=512, min_storage_buffer_offset_alignment=64
)


@st.composite
def computations(draw: st.DrawFn) -> tuple[list[int], list[Reach]]:
    dims = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
    steps = st.tuples(*(st.integers(-100, 100) for _ in dims))
    reach = st.builds(Reach, steps, st.sampled_from(raw_copy.WIDTHS), st.integers(0, 100))
    return dims, draw(st.lists(reach, max_size=3))


@given(computations(), st.booleans())
@example(([4], [Reach((-75,), 2)]), False)
def test_blocks_cover_all_and_fit_a_binding(
    made: tuple[list[int], list[Reach]], in_order: bool
) -> None:
    dims, reaches = made
    block = block_shape(dims, reaches, DEVICE, in_order=in_order)
    met = np.zeros(dims, int)
    numbers = np.arange(met.size).reshape(dims)
    for start, shape in blocks(dims, block):
        part = tuple(slice(i, i + n) for i, n in zip(start, shape, strict=True))
        met[part] += 1
        if in_order:
            inside = numbers[part].reshape(-1)
            assert inside.tolist() == [*range(inside[0], inside[0] + inside.size)]
        for reach in reaches:
            first = reach.start + int(np.dot(start, reach.strides))
            low, high = (n * reach.size for n in span(shape, reach.strides, first))
            assert high - low // 64 * 64 <= 512
    assert (met == 1).all()


def test_what_fits_is_not_cut() -> None:
    rows = Reach((32, 1), 4)
    assert block_shape([4, 32], [rows], DEVICE) == [4, 32]
    assert block_shape([5, 32], [rows], DEVICE) == [4, 32]
    # A block that begins within an alignment needs the bytes before it too.
    assert block_shape([4, 32], [Reach((32, 1), 4, 1)], DEVICE) == [3, 32]
    assert block_shape([5, 30], [Reach((30, 1), 4)], DEVICE) == [4, 30]
    assert block_shape([5, 31], [Reach((31, 1), 4)], DEVICE) == [3, 31]
    assert block_shape([2, 100], [Reach((100, 1), 4)], DEVICE, [1, 90]) == [1, 90]


def test_the_dimension_that_spans_most_is_cut() -> None:
    across = Reach((1, 64), 4)
    assert block_shape([64, 64], [across], DEVICE) == [64, 2]
    assert block_shape([64, 64], [across], DEVICE, in_order=True) == [1, 2]
    assert block_shape([64, 64], [across, Reach((64, 1), 4)], DEVICE) == [2, 2]


def test_less_than_an_element_is_refused() -> None:
    with pytest.raises(Unsupported, match="bindings of 512 bytes are too small"):
        block_shape([8], [Reach((1,), 1024)], DEVICE)


@given(st.integers(1, 3000), st.sampled_from(raw_copy.WIDTHS), st.integers(1, 8))
def test_ranges_cover_all_and_fit_a_binding(count: int, size: int, multiple: int) -> None:
    made = list(ranges(count, size, DEVICE, multiple))
    assert [i for part in made for i in range(part.start, part.stop)] == list(range(count))
    assert len(made) == 1 or all(part.start % multiple == 0 for part in made)
    for part in made:
        assert part.start * size % 64 == 0
        assert padded(part.count * size) <= 512


def test_no_more_than_needed_is_bound() -> None:
    value = Value(MLOperandDescriptor("uint8", (1000,)), name="x")
    assert alignment(DEVICE) == 64
    assert bind(value, DEVICE, 0, 1000) == (Binding(value), 0)
    assert bind(value, DEVICE, 100, 200) == (Binding(value, 64, 144), 64)
    assert bind(value, DEVICE, 960, 1000) == (Binding(value, 960, 48), 960)
    assert bind_range(value, DEVICE, Items(64, 100), 4) == Binding(value, 256, 144)
    assert bind_range(value, DEVICE, Items(0, 250), 4) == Binding(value)
