"""Tensors of hundreds of MiB, beyond the 128 MiB of one binding on llvmpipe: computed on the device
in several dispatches, and checked around every 128 MiB border."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import webnn_vk
from tests.support.contexts import open_context
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.program import DispatchStep

pytestmark = pytest.mark.large

MIB = 2**20
BORDER = 128 * MIB


@pytest.fixture(scope="module")
def context(vulkan: None) -> Iterator[webnn_vk.MLContext]:
    with open_context() as context:
        yield context


def positions(count: int, size: int) -> np.ndarray:
    """Indices of elements around every 128 MiB border of a tensor of ``count`` elements of ``size``
    bytes, at both ends and at random."""
    borders = np.arange(0, count * size + 1, BORDER) // size
    near = (borders[:, None] + np.arange(-5, 6)).reshape(-1)
    spread = np.random.default_rng(11).integers(0, count, 2000)
    return np.unique(np.clip(np.concatenate([near, spread]), 0, count - 1))


def compute(
    context: webnn_vk.MLContext, operator: str, arrays: Mapping[str, np.ndarray], *,
    portions: bool = False, **arguments: Any,
) -> np.ndarray:
    """The result of one operator. It ran on the device, in several dispatches, with several
    bindings of one tensor (``portions``), or with one tensor read as texels."""
    builder = MLGraphBuilder(context)
    inputs = [
        builder.input(name, {"data_type": array.dtype.name, "shape": array.shape})
        for name, array in arrays.items()
    ]
    made = getattr(builder, operator)(*inputs, **arguments)
    with builder.build({"y": made}).result() as graph:
        (step,) = graph.report().steps
        assert step.device == "vulkan"
        limit = context._state.device.profile.max_storage_buffer_range
        dispatches = [
            step
            for segment in graph._executable.program.segments
            for step in segment.steps
            if isinstance(step, DispatchStep)
        ]
        beyond = [
            (n, place.size) for one in dispatches for n, place in enumerate(one.bindings)
            if place.size > limit
        ]
        # The limit applies to storage buffers: texel buffers have their own.
        texels = {n for one in dispatches for n, _ in one.spec.texels}
        room = 4 * context._state.device.profile.max_texel_buffer_elements
        assert all(n in texels and size <= room for n, size in beyond)
        if limit <= BORDER:
            in_portions = portions and len(dispatches[0].bindings) > len(arrays) + 1
            assert step.dispatches > 1 or in_portions or beyond
        return context.compute(graph, arrays)["y"]


def small_integers(*shape: int) -> np.ndarray:
    """float32 numbers from -3 to 3: their products and sums are exact. The period is not a power of
    two."""
    pattern = np.random.default_rng(2).integers(-3, 4, 1_000_003).astype(np.float32)
    return np.resize(pattern, shape)


def test_element_wise_on_512_mib(context):
    rows, columns = 2**17 - 1, 1025  # odd, so that slices begin within rows
    x = np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns)
    row = (np.arange(columns, dtype=np.uint32) ** 2) << 8
    y = compute(context, "add", {"x": x, "row": row})
    assert y.nbytes > 512 * MIB
    at = positions(y.size, 4)
    expected = at.astype(np.uint32) + row[at % columns]
    assert np.array_equal(y.reshape(-1)[at], expected)


@pytest.mark.explore
def test_a_repeated_operand_of_200_mib(context):
    """The smaller operand also exceeds a binding: slices end where it is repeated."""
    count = 200 * MIB + 5
    x = np.resize(np.arange(251, dtype=np.uint8), (1, count))
    two = np.array([[1], [100]], np.uint8)
    y = compute(context, "add", {"x": x, "two": two}).reshape(-1)
    at = np.union1d(positions(y.size, 1), count + np.arange(-9, 10))
    expected = (at % count % 251 + np.where(at < count, 1, 100)) % 256
    assert np.array_equal(y[at], expected)


def test_result_larger_than_its_operand(context):
    """128 MiB of bytes become 512 MiB of floats: slices have different sizes."""
    x = np.resize(np.random.default_rng(4).integers(0, 256, 1_000_003, np.uint8), 128 * MIB)
    y = compute(context, "cast", {"x": x}, data_type="float32")
    at = np.union1d(positions(y.size, 4), positions(x.size, 1))
    assert np.array_equal(y[at], x[at].astype(np.float32))


@pytest.mark.parametrize(
    ("a", "b"),
    [((32768, 4096), (4096, 2)), ((3, 2048), (2048, 65536)), ((1, 131072), (131072, 1024))],
    ids=["first operand", "second operand", "second operand, one row"],
)
def test_matmul_with_an_operand_of_512_mib(context, a, b):
    a, b = small_integers(*a), small_integers(*b)
    assert 512 * MIB in (a.nbytes, b.nbytes)
    y = compute(context, "matmul", {"a": a, "b": b})
    if a.nbytes > b.nbytes:
        rows = np.unique(positions(a.size, 4) // a.shape[1])
        assert np.array_equal(y[rows], a[rows] @ b)
    else:
        # Each border of b splits rows: every result depends on all portions.
        columns = np.unique(positions(b.size, 4) % b.shape[1])[:64]
        assert np.array_equal(y[:, columns], a @ np.ascontiguousarray(b[:, columns]))


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_reduction_of_256_mib(context, axes):
    x = np.arange(64 * MIB, dtype=np.uint32).reshape(4096, 16384)
    y = compute(context, "reduce_sum", {"x": x}, axes=axes, portions=True)
    assert np.array_equal(y, x.sum(axis=tuple(axes), dtype=np.uint32))


def test_positions_and_sums_across_the_borders(context):
    x = np.zeros((40, MIB), np.float32)
    border = BORDER // 4
    # Neighbours of the border between two portions, and the very last element.
    x.reshape(-1)[[border - 2, border - 1, border, border + 1, -1]] = [1, 2, 4, 8, 16]
    largest = compute(context, "arg_max", {"x": x}, axis=1, portions=True)
    assert largest[[31, 32, 39]].tolist() == [MIB - 1, 1, MIB - 1]
    sums = compute(context, "cumulative_sum", {"x": x}, axis=0, portions=True)
    assert np.array_equal(sums, np.cumsum(x, axis=0))


def test_transpose_of_256_mib(context):
    x = np.arange(64 * MIB, dtype=np.uint32).reshape(4096, 16384)
    y = compute(context, "transpose", {"x": x}).reshape(-1)
    at = positions(y.size, 4)
    assert np.array_equal(y[at], at % 4096 * 16384 + at // 4096)


def test_gather_from_250_mib(context):
    """Rows of 384 elements straddle the borders. Every bit is kept, also in NaN."""
    bits = np.arange(0x7F000000, 0x7F000000 + 170_666 * 384, dtype=np.uint32)
    table = bits.view(np.float32).reshape(-1, 384)
    rows = np.unique(positions(table.size, 4) // 384)
    indices = np.concatenate([rows, rows - len(table)]).astype(np.int64)
    y = compute(context, "gather", {"table": table, "indices": indices})
    assert y.tobytes() == table[indices].tobytes()
