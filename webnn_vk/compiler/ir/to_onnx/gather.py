"""Gathers and scatters. ONNX does not define indices out of range, which WebNN clamps: they are
clamped before, unless they are known to be in range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .writer import Tensor, Writer, rule


def _clamped(w: Writer, indices: Tensor, sizes: Sequence[int]) -> Tensor:
    """Indices clamped to ``sizes``: one size for each index of the last dimension, or one for
    all."""
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
    indices = _clamped(w, indices, input.shape[: indices.shape[-1]])
    return w.op("ScatterND", input, w.cast(indices, "int64"), updates, shape=input.shape)
