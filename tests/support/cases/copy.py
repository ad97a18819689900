"""Nodes for the tests of copy's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.running import node_of, random_bits
from webnn_vk.compiler.types.data_types import ALL_TYPES

OPERATORS = (
    "transpose", "slice", "concat", "split", "expand", "tile", "reverse", "pad", "triangular",
)


def random_shape(rng: np.random.Generator, low: int = 0) -> tuple[int, ...]:
    rank = int(rng.integers(low, 9))
    # Sometimes multiples of 4 and 16: runs that move as wider elements.
    sizes = (1, 2, 3, 4, 5, 8, 16) if rank < 5 else (1, 2, 3, 4)
    return tuple(int(n) for n in rng.choice(sizes, rank))


def random_case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    """A random node of an operator, with its operands' arrays by value."""
    shape = random_shape(rng, {"concat": 1, "split": 1, "triangular": 2}.get(name, 0))
    rank = len(shape)
    x = random_bits(rng, data_type, shape)
    axis = int(rng.integers(rank)) if rank else 0
    match name:
        case "transpose":
            permutation = [int(i) for i in rng.permutation(rank)]
            return node_of(name, x, permutation=permutation)
        case "slice":
            starts = [int(rng.integers(n)) for n in shape]
            sizes = [int(rng.integers(1, n - s + 1)) for n, s in zip(shape, starts, strict=True)]
            steps = [int(rng.integers(1, n + 1)) if rng.random() < 0.4 else 1 for n in sizes]
            return node_of(name, x, starts, sizes, strides=steps)
        case "concat":
            others = [
                random_bits(rng, data_type, (*shape[:axis], int(n), *shape[axis + 1 :]))
                for n in rng.choice((1, 2, 4, 7), int(rng.integers(3)))
            ]
            return node_of(name, [x, *others], axis)
        case "split":
            cuts = sorted({int(c) for c in rng.integers(0, shape[axis], 2)} - {0})
            sizes = np.diff([0, *cuts, shape[axis]]).tolist()
            return node_of(name, x, sizes, axis=axis)
        case "expand":
            x = random_bits(rng, data_type, tuple(1 if rng.random() < 0.5 else n for n in shape))
            return node_of(name, x, [*[2] * int(rng.integers(0, min(3, 9 - rank))), *shape])
        case "tile":
            return node_of(name, x, [int(n) for n in rng.choice((1, 1, 2, 3), rank)])
        case "reverse":
            return node_of(name, x, axes=[i for i in range(rank) if rng.random() < 0.5])
        case "pad":
            mode = str(rng.choice(("constant", "edge", "reflection")))
            if rank > 6:
                x = x.reshape(*shape[:5], -1)

            def padding() -> list[int]:
                return [
                    0 if rng.random() < 0.5 else
                    int(rng.integers(0, n if mode == "reflection" else 5)) for n in x.shape
                ]

            value = float(rng.choice((0, 7, -1.5, np.nan, np.inf)))
            return node_of(name, x, padding(), padding(), mode=mode, value=value)
    upper = bool(rng.integers(2))
    return node_of(name, x, upper=upper, diagonal=int(rng.integers(-6, 7)))


def any_case(rng: np.random.Generator, name: str, i: int) -> tuple:
    return random_case(rng, name, ALL_TYPES[i % 8])
