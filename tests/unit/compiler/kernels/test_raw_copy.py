"""Elements as bits: widths."""

from __future__ import annotations

import pytest

from webnn_vk.compiler.kernels import raw_copy


@pytest.mark.parametrize(
    ("size", "numbers", "width"),
    [(4, (), 16), (1, (16, 32), 16), (1, (16, 8), 8), (2, (6, 4), 4), (4, (3,), 4), (8, (2,), 16),
     (2, (-8, 0), 16)],
)
def test_the_widest_element(size: int, numbers: tuple[int, ...], width: int) -> None:
    assert raw_copy.widest(size, numbers) == width
