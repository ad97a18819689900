"""Elements as bits: widths, bindings and ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import raw_copy
from webnn_vk.compiler.kernels.dispatch import Binding
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

DEVICE = stored_profile("llvmpipe").replace(
    max_storage_buffer_range=512, min_storage_buffer_offset_alignment=64
)


@pytest.mark.parametrize(
    ("size", "numbers", "width"),
    [(4, (), 16), (1, (16, 32), 16), (1, (16, 8), 8), (2, (6, 4), 4), (4, (3,), 4), (8, (2,), 16),
     (2, (-8, 0), 16)],
)
def test_the_widest_element(size: int, numbers: tuple[int, ...], width: int) -> None:
    assert raw_copy.widest(size, numbers) == width


@given(st.integers(1, 3000), st.sampled_from(raw_copy.WIDTHS), st.integers(1, 8))
def test_ranges_cover_all_and_fit_a_binding(count: int, size: int, multiple: int) -> None:
    made = list(raw_copy.ranges(count, size, DEVICE, multiple))
    assert [i for part in made for i in part] == list(range(count))
    assert len(made) == 1 or all(part.start % multiple == 0 for part in made)
    for part in made:
        assert part.start * size % 64 == 0
        if 64 * multiple * size <= 512:
            assert raw_copy.padded(len(part) * size) <= 512


def test_no_more_than_needed_is_bound() -> None:
    value = Value(MLOperandDescriptor("uint8", (1000,)), name="x")
    assert raw_copy.bind(value, DEVICE, 0, 1000) == (Binding(value), 0)
    assert raw_copy.bind(value, DEVICE, 100, 200) == (Binding(value, 64, 144), 64)
    assert raw_copy.bind(value, DEVICE, 960, 1000) == (Binding(value, 960, 48), 960)
    assert raw_copy.bind_range(value, range(64, 100), 4) == Binding(value, 256, 144)
    assert raw_copy.bind_range(value, range(0, 250), 4) == Binding(value)
    assert raw_copy.fits(value, DEVICE, 10, 500) and not raw_copy.fits(value, DEVICE, 10, 520)
    # What begins within an alignment takes the bytes before it too.
    assert not raw_copy.fits(value, DEVICE, 127, 640)
