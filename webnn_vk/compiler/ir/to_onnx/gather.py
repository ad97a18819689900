"""Gathers and scatters. ONNX does not define indices out of range, which WebNN clamps: they are
clamped before, unless they are known to be in range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...types.sizes import Size
from .writer import Tensor, Writer, rule


def _clamped(w: Writer, indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Indices clamped to ``sizes``: one size for each index of the last dimension, or one for
    all."""
    if any(isinstance(size, Size) for size in sizes):
        # As lists of one element for each index, or of one; a scalar's is no list.
        lists = (w.integers([-s for s in sizes]), w.integers([s - 1 for s in sizes]))
        low, high = (w.reshape(t, ()) if not indices.rank else t for t in lists)
        return w.between(w.cast(indices, "int64"), low, high)
    # One size fits indices of any shape, a scalar's too.
    bounds = np.array(sizes if len(set(sizes)) > 1 else sizes[0], np.int64)
    low, high = -bounds, bounds - 1
    if indices.array is not None:
        wide = indices.array.astype(np.int64)
        if ((wide >= low) & (wide <= high)).all():
            return indices if indices.data_type != "uint32" else w.constant(wide)
        return w.constant(np.clip(wide, low, high))
    if indices.data_type == "uint32":
        indices = w.cast(indices, "int64")
    return w.between(indices, low, high)


@rule("gather")
def gather(w: Writer, input: Tensor, indices: Tensor, axis: int) -> Tensor:
    indices = _clamped(w, indices, [input.shape[axis]])
    return w.op("Gather", input, indices, shape=w.result.shape, axis=axis)


@rule("gather_elements")
def gather_elements(w: Writer, input: Tensor, indices: Tensor, axis: int) -> Tensor:
    indices = _clamped(w, indices, [input.shape[axis]])
    return w.op("GatherElements", input, indices, shape=w.result.shape, axis=axis)


@rule("gather_nd")
def gather_nd(w: Writer, input: Tensor, indices: Tensor) -> Tensor:
    indices = _clamped(w, indices, input.shape[: indices.shape[-1]])
    return w.op("GatherND", input, w.cast(indices, "int64"), shape=w.result.shape)


@rule("scatter_elements")
def scatter_elements(
    w: Writer, input: Tensor, indices: Tensor, updates: Tensor, axis: int
) -> Tensor:
    indices = _clamped(w, indices, [input.shape[axis]])
    return w.op("ScatterElements", input, indices, updates, shape=input.shape, axis=axis)


@rule("scatter_nd")
def scatter_nd(w: Writer, input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    depth = indices.shape[-1]
    indices = w.cast(_clamped(w, indices, input.shape[:depth]), "int64")
    count, length = math.prod(indices.shape[:-1]), math.prod(input.shape[depth:])
    if not w.careful or count == 1 or _distinct(indices):
        return w.op("ScatterND", input, indices, updates, shape=input.shape)
    # ONNX Runtime's ScatterND applies several updates of one element in no fixed order, its
    # ScatterElements in theirs: row by row, of an input [slices, elements of a slice].
    sizes = input.shape[:depth]
    strides = [math.prod(sizes[axis + 1 :]) for axis in range(depth)]
    rows = _row_numbers(w, w.reshape(indices, (count, depth)), sizes, strides)
    scattered = w.op(
        "ScatterElements", w.reshape(input, (math.prod(sizes), length)),
        w.expand(rows, (count, length)), w.reshape(updates, (count, length)),
        shape=(math.prod(sizes), length), axis=0,
    )
    return w.reshape(scattered, input.shape)


def _distinct(indices: Tensor) -> bool:
    """Whether they are known, and mean different elements: negative ones may be the same."""
    if indices.array is None or (indices.array < 0).any():
        return False
    rows = indices.array.reshape(-1, indices.shape[-1])
    return len(np.unique(rows, axis=0)) == len(rows)


def _row_numbers(
    w: Writer, indices: Tensor, sizes: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """[count, 1]: the numbers of the slices that ``indices`` [count, depth] mean."""
    # Negative ones count from the end.
    bounds = w.constant(np.array(sizes, np.int64))
    wrapped = w.select(
        w.compare("Less", indices, w.scalar(0, indices)), w.op("Add", indices, bounds), indices
    )
    weights = w.constant(np.array(strides, np.int64)[:, None])
    return w.op("MatMul", wrapped, weights, shape=(indices.shape[0], 1))
