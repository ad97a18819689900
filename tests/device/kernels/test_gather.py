"""Gather kernels: equal to the reference, whatever the indices hold."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.moving import (
    assert_every_bit_kept,
    assert_moved_in_parts,
    assert_plans_in_catalogue,
)
from tests.support.profiles import stored_profile
from tests.support.running import assert_same_bits, device_profile, node_of, random_bits, run
from webnn_vk.data_types import ALL_TYPES, MLOperandDescriptor
from webnn_vk.kernels import plan
from webnn_vk.ops.gather import INDEX_TYPES

OPERATORS = ("gather", "gather_elements", "gather_nd")

# Far outside on both sides, and values whose low or high 32 bits alone would be in range.
_HUGE = {
    "int32": (-(2**31), -(2**31) + 1, 2**31 - 1),
    "uint32": (2**31, 2**32 - 1, 2**32 - 2),
    "int64": (-(2**63), 2**63 - 1, 2**32, 2**32 + 1, -(2**32), -(2**32) - 1, 1 - 2**32, 2**31),
}


def random_indices(
    rng: np.random.Generator, index_type: str, shape: tuple[int, ...], size: int
) -> np.ndarray:
    """Mostly valid indices, negative ones among them, some outside, some very far outside."""
    low = 0 if index_type == "uint32" else -size - 2
    values = rng.integers(low, size + 2, shape)
    huge = rng.choice(np.array(_HUGE[index_type], np.int64), shape)
    return np.where(rng.random(shape) < 0.15, huge, values).astype(index_type)


def _case(rng: np.random.Generator, name: str, data_type: str, index_type: str) -> tuple:
    rank = int(rng.integers(1, 6))
    shape = tuple(int(n) for n in rng.choice((1, 2, 3, 4, 5, 8, 16), rank))
    x = random_bits(rng, data_type, shape)
    axis = int(rng.integers(rank))
    if name == "gather_nd":
        count = int(rng.integers(1, rank + 1))
        outer = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(0, 3))))
        parts = [random_indices(rng, index_type, outer, n) for n in shape[:count]]
        return node_of(name, x, np.stack(parts, -1).astype(index_type))
    if name == "gather":
        own = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(0, 4))))
    else:
        own = (*shape[:axis], int(rng.integers(1, 7)), *shape[axis + 1 :])
    return node_of(name, x, random_indices(rng, index_type, own, shape[axis]), axis=axis)


def _any_case(rng: np.random.Generator, name: str, i: int) -> tuple:
    return _case(rng, name, ALL_TYPES[i % 8], INDEX_TYPES[i % 3])


@pytest.mark.parametrize("masked", (False, True), ids=("native", "emulated"))
@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_random_gathers_keep_every_bit(name: str, index_type: str, masked: bool) -> None:
    def case(rng: np.random.Generator, name: str, i: int) -> tuple:
        return _case(rng, name, ALL_TYPES[i % 8], index_type)

    assert_every_bit_kept(case, name, len(name) + len(index_type), 24, masked)


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_over_the_binding_limit_are_covered_in_ranges(name: str) -> None:
    assert_moved_in_parts(_any_case, name, len(name), 18, 12_000, 2)


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


def test_embedding_rows_move_as_vectors() -> None:
    """A word embedding: one dispatch, 16 bytes per invocation."""
    table = MLOperandDescriptor("float32", (30522, 384))
    node, _ = node_of("gather", table, np.zeros((4, 128), np.int64))
    (dispatch,) = plan(node, stored_profile("adreno_minimum"))
    assert dispatch.variant == "axis int64 128 bit"
    assert dispatch.params["count"] == 4 * 128 * 384 // 4
    assert dispatch.constants["LX"] == 128  # that device has no larger workgroups


def test_a_table_over_the_binding_limit_is_read_in_slices() -> None:
    table = MLOperandDescriptor("float32", (250_002, 384))  # 366 MiB
    node, _ = node_of("gather", table, np.zeros(16, np.int32))
    profile = stored_profile("llvmpipe")
    dispatches = plan(node, profile)
    assert len(dispatches) == 3
    ends = [d.params["src_first"] + d.params["src_count"] for d in dispatches]
    assert [d.params["src_first"] for d in dispatches] == [0, *ends[:-1]]
    assert ends[-1] == table.size // 4
    for dispatch in dispatches:
        assert dispatch.bindings[0].size <= profile.max_storage_buffer_range


def test_every_planned_kernel_is_in_the_catalogue() -> None:
    assert_plans_in_catalogue(_any_case, OPERATORS, 30)
