"""Pooling over one, two and three spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .convolution import (
    Window,
    WindowAttributes,
    channels_first,
    channels_last,
    check_window,
    with_rows,
    without_rows,
)


def window_of(x: Tensor, given: WindowAttributes, ceil_mode: int) -> Window:
    """The window that a node's attributes describe, with the output's sizes."""
    spatial = x.shape[2:]
    window, sizes = given.on(spatial), []
    for n, k, s, d, (before, after) in zip(
        spatial, window.kernel, window.strides, window.dilations, window.padding, strict=True
    ):
        room = n + before + after - (k - 1) * d - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        refuse_if(count < 1, f"a window of {k} does not fit into {n} elements and their padding")
        # A window that would start in the padding behind is left out.
        if ceil_mode and (count - 1) * s >= n + before:
            count -= 1
        sizes.append(count)
    return replace(window, sizes=sizes)


def pool(c: NodeContext, kind: str, x: MLOperand, window: Window) -> MLOperand:
    """``max_pool2d``, ``average_pool2d`` or ``l2_pool2d`` over 1, 2 or 3 dimensions. A window
    covers a product of ranges, so three dimensions can be pooled two and one at a time."""
    spatial = len(window.kernel)
    n, channels = x.shape[:2]
    if spatial == 1:
        return without_rows(c, pool(c, kind, with_rows(c, x), window.with_rows()))
    if spatial == 3:
        depth = x.shape[2]
        flat = pool(
            c, kind, c.reshape(x, [n, channels * depth, *x.shape[3:]]), window.part(1)
        )
        columns = math.prod(window.sizes[1:])
        # Along the depth only: the images' elements are columns.
        deep = Window(
            [window.kernel[0], 1], [window.strides[0], 1], [window.dilations[0], 1],
            [window.padding[0], (0, 0)], [window.sizes[0], columns],
        )
        result = pool(c, kind, c.reshape(flat, [n, channels, depth, columns]), deep)
        return c.reshape(result, [n, channels, *window.sizes])
    refuse_if(spatial != 2, f"{spatial} spatial dimensions; 1 to 3 are supported")
    after = []
    for i, (before, _) in enumerate(window.padding):
        # The elements that the windows reach, in each dimension: WebNN rounds both alike.
        reach = (window.sizes[i] - 1) * window.strides[i]
        reach += (window.kernel[i] - 1) * window.dilations[i] + 1
        after.append(max(0, reach - x.shape[2 + i] - before))
    (top, _), (left, _) = window.padding
    return getattr(c.b, kind)(
        x, window_dimensions=window.kernel, strides=window.strides, dilations=window.dilations,
        padding=[top, after[0], left, after[1]],
    )


@onnx_operator("MaxPool")
def max_pool(
    c: NodeContext, x: Tensor, *, given: WindowAttributes, ceil_mode: int = 0,
    storage_order: int = 0,
) -> list[MLOperand | None]:
    window = window_of(x, given, ceil_mode)
    result = pool(c, "max_pool2d", x.operand, window) if c.wants(0) else None
    return [result, _indices(c, x, window, storage_order) if c.wants(1) else None]


@onnx_operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    c: NodeContext, x: Tensor, *, given: WindowAttributes, ceil_mode: int = 0
) -> MLOperand:
    x = channels_first(c, x)
    return channels_last(c, pool(c, "max_pool2d", x.operand, window_of(x, given, ceil_mode)))


def positions(spatial: Sequence[int], window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Row-major positions [outputs, taps] of what windows cover, and which are inside."""
    axes = []
    for n, k, s, d, (before, _), size in zip(
        spatial, window.kernel, window.strides, window.dilations, window.padding, window.sizes,
        strict=True,
    ):
        axes.append((np.arange(size)[:, None] * s - before + np.arange(k) * d, n))
    rank = len(axes)
    total = np.zeros((), np.int64)
    inside = np.ones((), bool)
    for i, (at, n) in enumerate(axes):
        view = [1] * (2 * rank)
        view[i], view[rank + i] = at.shape
        total = total * n + np.clip(at, 0, n - 1).reshape(view)
        inside = inside & ((at >= 0) & (at < n)).reshape(view)
    shape = (math.prod(window.sizes), math.prod(window.kernel))
    return total.reshape(shape), np.broadcast_to(inside, total.shape).reshape(shape)


def _indices(c: NodeContext, x: Tensor, window: Window, storage_order: int) -> MLOperand:
    """Where in the whole input each maximum lies."""
    n, channels = x.shape[:2]
    check_made(math.prod(window.sizes), math.prod(window.kernel))
    table, inside = positions(x.shape[2:], window)
    size = math.prod(x.shape[2:])
    flat = c.reshape(x, [n * channels, size])
    values = c.b.gather(flat, table.astype(np.int32), axis=1)
    if not inside.all():
        lowest = -np.inf if flat.data_type.startswith("float") else np.iinfo(flat.data_type).min
        mask = c.constant(inside, "uint8")
        values = c.b.where(mask, values, c.constant(lowest, flat.data_type))
    best = c.b.arg_max(values, 2, output_data_type="int64")
    taps = np.arange(table.shape[0], dtype=np.int64) * table.shape[1]
    if storage_order:
        h, w = x.shape[2:]
        table = (table % w) * h + table // w
    chosen = c.b.add(best, c.constant(taps, "int64"))
    found = c.b.gather(c.constant(table.reshape(-1), "int64"), chosen)
    start = np.arange(n * channels, dtype=np.int64)[:, None] * size
    return c.reshape(c.b.add(found, c.constant(start, "int64")), [n, channels, *window.sizes])


@onnx_operator("AveragePool")
def average_pool(
    c: NodeContext, x: Tensor, *, given: WindowAttributes, ceil_mode: int = 0,
    count_include_pad: int = 0,
) -> MLOperand:
    window = window_of(x, given, ceil_mode)
    operand = x.operand
    if count_include_pad and any(map(any, window.padding)):
        operand = c.pad(operand, [(0, 0), (0, 0), *window.padding])
        window = replace(window, padding=[(0, 0)] * len(window.kernel))
    return pool(c, "average_pool2d", operand, window)


@onnx_operator("LpPool")
def lp_pool(
    c: NodeContext, x: Tensor, *, given: WindowAttributes, ceil_mode: int = 0, p: int = 2
) -> MLOperand:
    window = window_of(x, given, ceil_mode)
    if p == 2:
        return pool(c, "l2_pool2d", x.operand, window)

    def of(v: MLOperand) -> MLOperand:
        # Σ|x|^p = l2(|x|^(p/2))²
        halves = c.b.pow(c.b.abs(v), p / 2)
        return c.b.pow(pool(c, "l2_pool2d", halves, window), 2 / p)

    return c.widened(x, of)


@onnx_operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(c: NodeContext, x: Tensor) -> MLOperand:
    name = "reduce_mean" if c.operator == "GlobalAveragePool" else "reduce_max"
    return getattr(c.b, name)(x, axes=list(range(2, x.rank)), keep_dimensions=True)


@onnx_operator("GlobalLpPool")
def global_lp_pool(c: NodeContext, x: Tensor, *, p: int = 2) -> MLOperand:
    options = {"axes": list(range(2, x.rank)), "keep_dimensions": True}
    if p == 2:
        return c.b.reduce_l2(x, **options)

    def of(v: MLOperand) -> MLOperand:
        return c.b.pow(c.b.reduce_sum(c.b.pow(c.b.abs(v), p), **options), 1 / p)

    return c.widened(x, of)


@onnx_operator("MaxUnpool")
def max_unpool(
    c: NodeContext,
    x: Tensor,
    indices: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    rank = x.rank - 2
    strides, pads = strides or [1] * rank, pads or [0] * (2 * rank)
    check_window(rank, kernel_shape=kernel_shape, strides=strides)
    shape = [
        *x.shape[:2],
        *(
            (n - 1) * s - pads[i] - pads[i + rank] + k
            for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel_shape, strict=True))
        ),
    ]
    zeros = c.b.expand(c.constant(0, x.operand.data_type), [math.prod(shape)])
    flat = c.b.scatter_elements(zeros, c.reshape(indices, [x.size]), c.reshape(x, [x.size]))
    result = c.reshape(flat, shape)
    if output_shape is None:
        return result
    wanted = c.ints(output_shape, "the output's shape")
    return c.pad(result, [(0, b - a) for a, b in zip(shape, wanted, strict=True)])
