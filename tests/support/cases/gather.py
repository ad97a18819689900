"""Nodes for the tests of gather's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.running import node_of, random_bits
from webnn_vk.compiler.ops.gather import INDEX_TYPES
from webnn_vk.compiler.types.data_types import ALL_TYPES

OPERATORS = ("gather", "gather_elements", "gather_nd")
# Far outside on both sides, and values whose low or high 32 bits alone would be in range.
HUGE = {
    "int32": (-(2**31), -(2**31) + 1, 2**31 - 1),
    "uint32": (2**31, 2**32 - 1, 2**32 - 2),
    "int64": (-(2**63), 2**63 - 1, 2**32, 2**32 + 1, -(2**32), -(2**32) - 1, 1 - 2**32, 2**31),
}


def random_indices(
    rng: np.random.Generator, index_type: str, shape: tuple[int, ...], size: int
) -> np.ndarray:
    """Mostly valid indices, some of them negative, some outside, some very far outside."""
    low = 0 if index_type == "uint32" else -size - 2
    values = rng.integers(low, size + 2, shape)
    huge = rng.choice(np.array(HUGE[index_type], np.int64), shape)
    return np.where(rng.random(shape) < 0.15, huge, values).astype(index_type)


def random_case(rng: np.random.Generator, name: str, data_type: str, index_type: str) -> tuple:
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


def any_case(rng: np.random.Generator, name: str, i: int) -> tuple:
    return random_case(rng, name, ALL_TYPES[i % 8], INDEX_TYPES[i % 3])
