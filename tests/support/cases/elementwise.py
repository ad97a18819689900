"""Nodes for the tests of elementwise's plans and kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.support.running import node_of
from webnn_vk.compiler.ir import Node, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.lowering import Elementwise
from webnn_vk.compiler.types.data_types import ALL_TYPES, DATA_TYPES

MASKED = pytest.mark.parametrize("masked", [False, True], ids=["native", "emulated"])
OPERATOR_NAMES = sorted(
    name for name, o in OPERATORS.items() if isinstance(o.lowering, Elementwise)
)


def values(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes, including the type's special ones."""
    dtype = DATA_TYPES[data_type].numpy
    count = math.prod(shape)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        small = rng.integers(max(-9, info.min), 10, count)
        large = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
        array = np.where(rng.random(count) < 0.5, small.astype(dtype), large)
        special = np.array([0, 1, info.min, info.max, info.max // 2], dtype)
    else:
        array = rng.normal(size=count) * 10.0 ** rng.integers(-3, 3, count)
        special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan])
    chosen = rng.random(count) < 0.15
    array = np.where(chosen, special[rng.integers(0, len(special), count)], array)
    return array.astype(dtype).reshape(shape)


@st.composite
def shapes(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast to each other, of rank 0 to 8."""
    rank = draw(st.integers(0, 8))
    size = st.sampled_from([1, 1, 2, 3, 4, 5, 8] if rank > 4 else [1, 2, 3, 4, 7, 12, 16])
    full: list[int] = []
    for _ in range(rank):
        d = draw(size)
        full.append(d if math.prod(full) * d <= 4096 else 1)
    result = []
    for _ in range(count):
        kept = draw(st.integers(0, rank)) if draw(st.booleans()) else rank
        mask = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
        whole = draw(st.booleans())
        shape = tuple(d if m or whole else 1 for d, m in zip(full, mask, strict=True))
        result.append(shape[rank - kept :])
    return result


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A shape and a divisor of it, twice."""
    rank = draw(st.integers(0, 8))
    counts = [draw(st.sampled_from([1, 2, 3] if rank < 5 else [1, 2])) for _ in range(rank)]
    sizes = [draw(st.sampled_from([1, 2, 3, 4] if rank < 5 else [1, 2])) for _ in range(rank)]
    full = tuple(c * s for c, s in zip(counts, sizes, strict=True))
    return [full, tuple(counts), tuple(counts)]


@st.composite
def nodes(draw: st.DrawFn, name: str) -> tuple[Node, dict[Value, np.ndarray]]:
    """Any allowed node of the operator with random elements."""
    operator = OPERATORS[name]
    count = len(operator.operands)
    chosen = draw(blocks() if operator.lowering.blockwise else shapes(count))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    types: dict[str, str] = {}
    for p in operator.operands:
        types[p.name] = draw(st.sampled_from(operator.limit(p.name).types))
    for p in operator.operands:
        row = operator.limits[p.name]
        types[p.name] = types.get(getattr(row, "operand", ""), types[p.name])
    operands = {
        p.name: values(rng, types[p.name], shape)
        for p, shape in zip(operator.operands, chosen, strict=True)
    }
    if name in ("quantize_linear", "dequantize_linear"):
        scale = np.abs(operands["scale"])
        operands["scale"] = np.where(np.isfinite(scale) & (scale > 0.01), scale, 1).astype(
            scale.dtype
        )
    arguments: dict[str, object] = {}
    for p in operator.arguments:
        if p.name == "data_type":
            arguments["data_type"] = draw(st.sampled_from(ALL_TYPES))
        elif p.name == "min_value":
            arguments["min_value"] = draw(st.integers(0, 3) | st.just(float("-inf")))
        elif p.name == "max_value":
            arguments["max_value"] = draw(st.integers(3, 300) | st.just(float("nan")))
        else:
            arguments[p.name] = draw(st.sampled_from([0.0, 0.5, -1.25, 3.0]))
    return node_of(name, *operands.values(), **arguments)
