"""Nodes for the tests of scatter's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.cases.gather import random_indices
from tests.support.running import node_of, random_bits
from webnn_vk.compiler.ops.gather import INDEX_TYPES
from webnn_vk.compiler.types.data_types import ALL_TYPES

OPERATORS = ("scatter_elements", "scatter_nd")


def random_case(rng: np.random.Generator, name: str, data_type: str, index_type: str) -> tuple:
    rank = int(rng.integers(1, 6))
    shape = tuple(int(n) for n in rng.choice((1, 2, 3, 4, 5, 8, 16), rank))
    x = random_bits(rng, data_type, shape)
    if name == "scatter_nd":
        count = int(rng.integers(1, rank + 1))
        outer = tuple(int(n) for n in rng.integers(1, 6, int(rng.integers(0, 3))))
        parts = [random_indices(rng, index_type, outer, n) for n in shape[:count]]
        updates = random_bits(rng, data_type, (*outer, *shape[count:]))
        return node_of(name, x, np.stack(parts, -1).astype(index_type), updates)
    axis = int(rng.integers(rank))
    own = (*shape[:axis], int(rng.integers(1, 9)), *shape[axis + 1 :])
    indices = random_indices(rng, index_type, own, shape[axis])
    return node_of(name, x, indices, random_bits(rng, data_type, own), axis=axis)


def any_case(rng: np.random.Generator, name: str, i: int) -> tuple:
    return random_case(rng, name, ALL_TYPES[i % 8], INDEX_TYPES[i % 3])
