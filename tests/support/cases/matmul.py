"""Nodes for the tests of matmul's plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.comparing import random_array
from tests.support.running import node_of
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

SIZES = (1, 2, 3, 4, 5, 8, 12, 16, 20, 31, 33, 64, 68)


def matmul_node(rng: np.random.Generator, data_type: str) -> tuple:
    m, n, k = (int(s) for s in rng.choice(SIZES, 3))
    batch = [int(s) for s in rng.choice((1, 2, 3), rng.integers(0, 5))]

    def operand(*shape: int) -> np.ndarray:
        own = [s if rng.random() < 0.6 else 1 for s in batch][int(rng.integers(len(batch) + 1)) :]
        return random_array(rng, data_type, (*own, *shape))

    return node_of("matmul", operand(m, k), operand(k, n))


def gemm_node(rng: np.random.Generator, data_type: str) -> tuple:
    m, n, k = (int(s) for s in rng.choice(SIZES, 3))
    ta, tb = (bool(t) for t in rng.integers(0, 2, 2))
    a = random_array(rng, data_type, (k, m) if ta else (m, k))
    b = random_array(rng, data_type, (n, k) if tb else (k, n))
    shapes = (None, (), (1,), (n,), (1, n), (m, 1), (m, n))
    shape = shapes[rng.integers(len(shapes))]
    c = None if shape is None else random_array(rng, data_type, shape)
    alpha, beta = (float(f) for f in rng.choice((1.0, 0.5, -2.0, 0.0), 2))
    return node_of("gemm", a, b, c=c, alpha=alpha, beta=beta, a_transpose=ta, b_transpose=tb)


def product_node(m: int, n: int, k: int, data_type: str = "float16", **arguments) -> KernelNode:
    """A product of operands that are not constants; with arguments a gemm."""
    a_transpose, b_transpose = (arguments.get(f"{name}_transpose") for name in "ab")
    a = MLOperandDescriptor(data_type, (k, m) if a_transpose else (m, k))
    b = MLOperandDescriptor(data_type, (n, k) if b_transpose else (k, n))
    return node_of("gemm" if arguments else "matmul", a, b, **arguments)[0]
