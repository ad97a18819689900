"""Reading and writing by index tensors."""

from __future__ import annotations

import math

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made, view_along
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor

#: Scatters with a reduction become one step per update; more than this are refused.
MAX_STEPS = 1024


def index_operand(c: NodeContext, indices: Tensor) -> MLOperand:
    """Indices in a type that WebNN takes."""
    operand = indices.operand
    allowed = ("int32", "uint32", "int64")
    return operand if operand.data_type in allowed else c.b.cast(operand, "int32")


@onnx_operator("Gather", storage=True)
def gather(c: NodeContext, x: Tensor, indices: Tensor, *, axis: int = 0) -> MLOperand:
    return c.b.gather(x, index_operand(c, indices), axis=c.axis(axis, x.rank))


@onnx_operator("GatherElements", storage=True)
def gather_elements(c: NodeContext, x: Tensor, indices: Tensor, *, axis: int = 0) -> MLOperand:
    axis = c.axis(axis, x.rank)
    source, lengths = x.operand, list(x.shape)
    # WebNN's other dimensions have to agree; ONNX's indices may be shorter.
    wanted = [d if i == axis else indices.shape[i] for i, d in enumerate(lengths)]
    if wanted != lengths:
        source = c.b.slice(source, [0] * x.rank, wanted)
    return c.b.gather_elements(source, index_operand(c, indices), axis=axis)


@onnx_operator("GatherND", storage=True)
@onnx_operator("GatherND", domain=MICROSOFT, storage=True)
def gather_nd(c: NodeContext, x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> MLOperand:
    given = index_operand(c, indices)
    if batch_dims:
        check_made(*indices.shape)
        # The batch's own coordinates go before those given.
        batch = x.shape[:batch_dims]
        grid = np.stack(np.indices(batch), -1)
        view = (*batch, *[1] * (indices.rank - 1 - batch_dims), batch_dims)
        grid = np.broadcast_to(grid.reshape(view), (*indices.shape[:-1], batch_dims))
        given = c.b.concat([c.constant(grid, given.data_type), given], indices.rank - 1)
    return c.b.gather_nd(x, given)


@onnx_operator("ScatterElements", "Scatter", storage=True)
def scatter_elements(
    c: NodeContext, x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str =
    "none"
) -> MLOperand:
    axis = c.axis(axis, x.rank)
    data, at = x.operand, index_operand(c, indices)
    region = [d if i == axis else indices.shape[i] for i, d in enumerate(x.shape)]
    part = data if region == list(x.shape) else c.b.slice(data, [0] * x.rank, region)
    if reduction == "none":
        part = c.b.scatter_elements(part, at, updates, axis=axis)
    else:
        steps = indices.shape[axis]
        _check_steps(steps)
        for i in range(steps):
            here = c.slice(at, axis, i, 1)
            new = _combine(
                c, reduction, c.b.gather_elements(part, here, axis=axis),
                c.slice(updates, axis, i, 1),
            )
            part = c.b.scatter_elements(part, here, new, axis=axis)
    return part if region == list(x.shape) else _put_back(c, data, part, axis)


def _put_back(c: NodeContext, data: MLOperand, part: MLOperand, axis: int) -> MLOperand:
    """``data`` with its first elements along all axes replaced by ``part``."""
    for i in reversed(range(len(data.shape))):
        length = part.shape[i]
        if length < data.shape[i]:
            starts, sizes = [0] * len(data.shape), list(part.shape)
            starts[i], sizes[i] = length, data.shape[i] - length
            part = c.b.concat([part, c.b.slice(data, starts, sizes)], i)
    return part


@onnx_operator("ScatterND", storage=True)
def scatter_nd(
    c: NodeContext, x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none"
) -> MLOperand:
    data, at = x.operand, index_operand(c, indices)
    if reduction == "none":
        return c.b.scatter_nd(data, at, updates)
    depth = indices.shape[-1]
    count = math.prod(indices.shape[:-1])
    _check_steps(count)
    at = c.reshape(at, [count, depth])
    values = c.reshape(updates, [count, *x.shape[depth:]])
    for i in range(count):
        here = c.slice(at, 0, i, 1)
        new = _combine(c, reduction, c.b.gather_nd(data, here), c.slice(values, 0, i, 1))
        data = c.b.scatter_nd(data, here, new)
    return data


def _check_steps(count: int) -> None:
    if count > MAX_STEPS:
        raise Unsupported(f"a scatter with a reduction of {count} updates, {MAX_STEPS} at most")


def _combine(c: NodeContext, reduction: str, old: MLOperand, new: MLOperand) -> MLOperand:
    refuse_if(reduction not in ("add", "mul", "min", "max"), f"reduction {reduction!r} is unknown")
    return getattr(c.b, reduction)(old, new)


@onnx_operator("TensorScatter", storage=True)
def tensor_scatter(
    c: NodeContext,
    cache: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> MLOperand:
    axis = c.axis(axis, cache.rank)
    steps = np.arange(update.shape[axis], dtype=np.int64)
    batch, length = cache.shape[0], update.shape[axis]
    view = [1] * cache.rank
    view[axis] = length
    at = c.constant(np.broadcast_to(steps.reshape(view), (batch, *view[1:])), "int64")
    if write_indices is not None:
        first = c.cast(write_indices, "int64")
        at = c.b.add(at, c.reshape(first, [batch, *[1] * (cache.rank - 1)]))
    if mode == "circular":
        size = cache.shape[axis]
        at = c.b.sub(at, c.b.mul(c.b.div(at, size), size))
    at = c.b.expand(at, list(update.shape))
    return c.b.scatter_elements(cache, at, update, axis=axis)


@onnx_operator("OneHot")
def one_hot(
    c: NodeContext, indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1
) -> MLOperand:
    count = int(depth.value("the depth").reshape(()))
    check_made(count)
    axis = c.axis(axis, indices.rank + 1)
    given = c.cast(indices, "int64") if indices.type != "int32" else indices.operand
    given = c.b.where(c.b.lesser(given, 0), c.b.add(given, count), given)
    shape = list(indices.shape)
    shape.insert(axis, 1)
    view = view_along(axis, len(shape))
    classes = c.constant(np.arange(count).reshape(view), given.data_type)
    hit = c.b.equal(c.reshape(given, shape), classes)
    off, on = (c.reshape(c.slice(values, 0, i, 1), []) for i in (0, 1))
    return c.b.where(hit, on, off)


@onnx_operator("Compress", storage=True)
def compress(
    c: NodeContext, x: Tensor, condition: Tensor, *, axis: int | None = None
) -> MLOperand | np.ndarray:
    chosen = np.flatnonzero(condition.value("the condition").reshape(-1))
    data = c.reshape(x, [x.size]) if axis is None else x.operand
    axis = 0 if axis is None else c.axis(axis, x.rank)
    refuse_if(not chosen.size, "nothing is selected: the result is empty, WebNN has no such tensor")
    return c.b.gather(data, chosen.astype(np.int32), axis=axis)
