"""Gather kernels equal the reference for any indices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.gather import OPERATORS, any_case, random_indices
from tests.support.moving import assert_moved_in_parts
from tests.support.running import assert_same_bits, device_profile, node_of, plan, random_bits, run
from webnn_vk.compiler.ops.gather import INDEX_TYPES


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_over_the_binding_limit_are_covered_in_ranges(name: str) -> None:
    assert_moved_in_parts(any_case, name, len(name), 18, 12_000, 2)


def test_coordinates_are_never_cut_in_two() -> None:
    """Indices over the binding limit are read in ranges of whole coordinates."""
    rng = np.random.default_rng(6)
    x = random_bits(rng, "float32", (4, 5, 6))
    for index_type in INDEX_TYPES:
        parts = [random_indices(rng, index_type, (100,), n) for n in x.shape]
        node, arrays = node_of("gather_nd", x, np.stack(parts, -1))
        profile = device_profile(max_storage_buffer_range=512)
        assert len(plan(node, profile)) > 2
        assert_same_bits(node, arrays, profile)


@pytest.mark.parametrize(
    ("index_type", "index", "expected"),
    [
        ("int32", -1, 9), ("int32", -10, 0), ("int32", -11, 0), ("int32", 10, 9),
        ("int32", -(2**31), 0), ("uint32", 2**32 - 1, 9), ("int64", -(2**63), 0),
        ("int64", 2**32, 9), ("int64", -(2**32) + 3, 0), ("int64", -10, 0), ("int64", -3, 7),
    ],
)
def test_an_index_counts_from_the_end_and_is_clamped(
    index_type: str, index: int, expected: int
) -> None:
    node, arrays = node_of("gather", np.arange(10, dtype=np.int32), np.array(index, index_type))
    (out,) = run(node, arrays, device_profile())
    assert out.tolist() == expected
