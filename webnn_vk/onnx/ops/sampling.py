"""Sampling at computed positions: GridSample, DeformConv, RoiAlign, MaxRoiPool, Col2Im."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .convolution import Window, transposed

_CUBIC = -0.75


# -- positions ----------------------------------------------------------------------------------
def _reflect(c: NodeContext, x: MLOperand, low: float, high: float) -> MLOperand:
    """Mirrored at both borders until inside: a triangle wave."""
    reach = high - low
    if reach <= 0:
        return c.b.linear(x, alpha=0.0, beta=low)
    period = 2 * reach
    t = c.b.sub(x, low)
    t = c.b.sub(t, c.b.mul(c.b.floor(c.b.mul(t, 1 / period)), period))
    return c.b.add(c.b.neg(c.b.abs(c.b.sub(t, reach))), low + reach)


def _within(c: NodeContext, x: MLOperand, low: float, high: float) -> MLOperand:
    return c.b.logical_and(c.b.greater_or_equal(x, low), c.b.lesser_or_equal(x, high))


def _taps(
    c: NodeContext, x: MLOperand, size: int, mode: str, padding: str, aligned: bool
) -> list[tuple[MLOperand, MLOperand | None]]:
    """Taps of one axis at positions ``x``: whole indices and weights."""
    last = size - 1.0
    low, high = (0.0, last) if aligned else (-0.5, size - 0.5)

    def tap(at: MLOperand, weight: MLOperand | None) -> tuple[MLOperand, MLOperand | None]:
        if padding == "zeros":
            mask = c.b.cast(_within(c, at, 0.0, last), at.data_type)
            weight = mask if weight is None else c.b.mul(weight, mask)
        elif padding == "reflection":
            inside = _within(c, at, 0.0, last)
            mirrored = _reflect(c, at, low, high)
            # Cut to a whole number as the pixel's index is.
            whole = c.b.mul(c.b.sign(mirrored), c.b.floor(c.b.abs(mirrored)))
            at = c.b.where(inside, at, whole)
        at = c.b.clamp(at, min_value=0.0, max_value=last)
        return c.b.cast(at, "int32"), weight

    if padding == "reflection":
        inside = _within(c, x, low, high)
        x = c.b.where(inside, x, _reflect(c, x, low, high))
    elif padding == "border" and mode != "cubic":
        x = c.b.clamp(x, min_value=0.0, max_value=last)
    else:
        # Each tap is padded by itself. Farther outside none is inside either, and weights may be
        # infinite: 0 times ∞ is no 0.
        x = c.b.clamp(x, min_value=-3.0, max_value=size + 2.0)
    if mode == "nearest":
        return [tap(c.b.round_even(x), None)]
    base = c.b.floor(x)
    weights = _weights(c, c.b.sub(x, base), mode)
    return [tap(c.b.add(base, float(offset)), weight) for offset, weight in weights]


def _weights(c: NodeContext, t: MLOperand, mode: str) -> list[tuple[int, MLOperand]]:
    """Offsets of the taps and their weights at a fraction ``t``."""
    rest = c.b.linear(t, alpha=-1.0, beta=1.0)
    if mode == "linear":
        return [(0, rest), (1, t)]
    a = _CUBIC

    def far(d: MLOperand) -> MLOperand:
        inner = c.b.linear(d, alpha=a, beta=-5 * a)
        inner = c.b.add(c.b.mul(inner, d), 8 * a)
        return c.b.sub(c.b.mul(inner, d), 4 * a)

    def near(d: MLOperand) -> MLOperand:
        inner = c.b.linear(d, alpha=a + 2, beta=-(a + 3))
        return c.b.add(c.b.mul(c.b.mul(inner, d), d), 1.0)

    return [
        (-1, far(c.b.add(t, 1.0))), (0, near(t)), (1, near(rest)), (2, far(c.b.add(rest, 1.0)))
    ]


def sample(
    c: NodeContext, data: MLOperand, spatial: Sequence[int], positions: list[MLOperand],
    mode: str, padding: str, aligned: bool,
) -> MLOperand:
    """Data [batch, channels, elements] at positions [batch, points] per axis, in elements:
    [batch, channels, points]."""
    axes = [
        _taps(c, x, n, mode, padding, aligned) for x, n in zip(positions, spatial, strict=True)
    ]
    batch, channels = data.shape[:2]
    points = positions[0].shape[1]
    total = None
    for taps in itertools.product(*axes):
        at: MLOperand | None = None
        weight: MLOperand | None = None
        for (index, factor), n in zip(taps, spatial, strict=True):
            at = index if at is None else c.b.add(c.b.mul(at, n), index)
            if factor is not None:
                weight = factor if weight is None else c.b.mul(weight, factor)
        assert at is not None
        places = c.b.expand(c.reshape(at, [batch, 1, points]), [batch, channels, points])
        values = c.b.gather_elements(data, places, axis=2)
        if weight is not None:
            weight = c.cast(weight, values.data_type)
            values = c.b.mul(values, c.reshape(weight, [batch, 1, points]))
        total = values if total is None else c.b.add(total, values)
    return total


@onnx_operator("GridSample", first=16)
@onnx_operator("GridSample", domain=MICROSOFT)
def grid_sample(
    c: NodeContext, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> MLOperand:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic") or padding_mode not in (
        "zeros", "border", "reflection"
    ):
        raise Unsupported(f"mode {mode!r}, padding_mode {padding_mode!r}")
    spatial = x.shape[2:]
    batch, out = grid.shape[0], grid.shape[1:-1]
    points = math.prod(out)
    flat = c.reshape(c.cast(grid, "float32"), [batch, points, len(spatial)])
    positions = []
    for i, n in enumerate(spatial):
        # The grid names the last axis first.
        g = c.reshape(c.slice(flat, 2, len(spatial) - 1 - i, 1), [batch, points])
        if align_corners:
            positions.append(c.b.linear(g, alpha=(n - 1) / 2, beta=(n - 1) / 2))
        else:
            positions.append(c.b.linear(g, alpha=n / 2, beta=(n - 1) / 2))
    data = c.reshape(x, [*x.shape[:2], math.prod(spatial)])
    result = sample(c, data, spatial, positions, mode, padding_mode, bool(align_corners))
    return c.reshape(result, [*x.shape[:2], *out])


@onnx_operator("DeformConv", first=19)
def deform_conv(
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    refuse_if(x.rank != 4, f"an input of rank {x.rank}; 4 is supported")
    n, channels, *spatial = x.shape
    kernel, out = w.shape[2:], offset.shape[2:]
    strides, dilations, pads = strides or [1, 1], dilations or [1, 1], pads or [0] * 4
    taps, points = math.prod(kernel), math.prod(out)
    groups = n * offset_group
    moved = c.reshape(c.cast(offset, "float32"), [groups, taps, 2, points])
    check_made(taps, 2, points)
    fixed = np.zeros((taps, 2, points), np.float32)
    for i, tap in enumerate(itertools.product(*map(range, kernel))):
        for axis in range(2):
            first = np.arange(out[axis]) * strides[axis] - pads[axis] + tap[axis] * dilations[axis]
            view = [out[axis], 1] if axis == 0 else [1, out[axis]]
            fixed[i, axis] = np.broadcast_to(first.reshape(view), out).reshape(-1)
    at = c.b.add(moved, c.constant(fixed[None], "float32"))
    positions = [
        c.reshape(c.slice(at, 2, axis, 1), [groups, taps * points]) for axis in range(2)
    ]
    data = c.reshape(x, [groups, channels // offset_group, math.prod(spatial)])
    found = sample(c, data, spatial, positions, "linear", "zeros", True)
    found = c.reshape(found, [groups, channels // offset_group, taps, points])
    if mask is not None:
        found = c.b.mul(found, c.reshape(mask, [groups, 1, taps, points]))
    columns = c.reshape(found, [n, group, channels // group * taps, points])
    rows = c.reshape(w, [1, group, w.shape[0] // group, w.shape[1] * taps])
    result = c.reshape(c.b.matmul(c.b.expand(rows, [n, *rows.shape[1:]]), columns),
                       [n, w.shape[0], *out])
    if bias is None:
        return result
    return c.b.add(result, c.reshape(bias, [1, bias.size, 1, 1]))


# -- regions -------------------------------------------------------------------------------------
@onnx_operator("RoiAlign", first=10)
def roi_align(
    c: NodeContext,
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str | None = None,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> MLOperand:
    # Before opset 16 there was no half a pixel to take off.
    default = "half_pixel" if c.version >= 16 else "output_half_pixel"
    half = (coordinate_transformation_mode or default) == "half_pixel"
    sizes = [output_height, output_width]
    boxes = c.b.mul(c.cast(rois, "float32"), spatial_scale)
    if half:
        boxes = c.b.sub(boxes, 0.5)
    images = c.b.gather(x, batch_indices)
    if sampling_ratio > 0:
        parts = [(0, rois.shape[0], [sampling_ratio, sampling_ratio])]
    else:
        # As many samples as a bin has pixels: their number has to be known.
        known = rois.value("the regions' size").astype(np.float64) * spatial_scale
        lengths = known[:, 2:] - known[:, :2]
        if not half:
            lengths = np.maximum(lengths, 1)
        counts = np.maximum(0, np.ceil(lengths[:, ::-1] / sizes)).astype(int)
        parts = [(i, 1, counts[i].tolist()) for i in range(len(counts))]
    made = []
    for start, count, grid in parts:
        if 0 in grid:  # of no size: no samples
            shape = count, x.shape[1], *sizes
            made.append(c.constant(np.zeros(shape), images.data_type))
            continue
        box, image = c.slice(boxes, 0, start, count), c.slice(images, 0, start, count)
        made.append(_aligned(c, image, box, sizes, grid, half, mode))
    return made[0] if len(made) == 1 else c.b.concat(made, 0)


def _aligned(
    c: NodeContext, image: MLOperand, box: MLOperand, sizes: list[int], grid: list[int],
    half: bool, mode: str,
) -> MLOperand:
    """Regions [r, 4] of images [r, channels, h, w]: bilinear samples as two matrix products."""
    count = image.shape[0]
    matrices = []
    for axis in range(2):
        start = c.slice(box, 1, 1 - axis, 1)
        length = c.b.sub(c.slice(box, 1, 3 - axis, 1), start)
        if not half:
            length = c.b.max(length, 1.0)
        n, size, samples = image.shape[2 + axis], sizes[axis], grid[axis]
        check_made(size, samples, n)
        steps = (np.arange(size * samples) + 0.5) / (size * samples)
        at = c.b.add(start, c.b.mul(length, c.constant(steps[None], "float32")))
        inside = _within(c, at, -1.0, float(n))
        at = c.b.clamp(at, min_value=0.0, max_value=n - 1.0)
        distance = c.b.abs(c.b.sub(
            c.reshape(at, [count, size * samples, 1]),
            c.constant(np.arange(n)[None, None], "float32"),
        ))
        weights = c.b.relu(c.b.linear(distance, alpha=-1.0, beta=1.0))
        mask = c.reshape(c.b.cast(inside, "float32"), [count, size * samples, 1])
        matrices.append(c.b.mul(weights, mask))
    rows, columns = matrices
    if mode == "avg":
        rows, columns = (
            c.b.reduce_mean(c.reshape(m, [count, size, samples, m.shape[2]]), axes=[2])
            for m, size, samples in zip(matrices, sizes, grid, strict=True)
        )
        return _between(c, rows, image, columns)
    refuse_if(mode != "max", f"mode {mode!r} is unknown")
    # The largest of the weighted corners, as the operator is defined.
    best = None
    for y in _corners(c, rows):
        for x in _corners(c, columns):
            value = _between(c, y, image, x)
            best = value if best is None else c.b.max(best, value)
    shape = [count, image.shape[1], sizes[0], grid[0], sizes[1], grid[1]]
    return c.b.reduce_max(c.reshape(best, shape), axes=[3, 5])


def _corners(c: NodeContext, matrix: MLOperand) -> list[MLOperand]:
    """The weights of the nearer element and of the other, apart."""
    columns = c.constant(np.arange(matrix.shape[2])[None, None], "int32")
    first = c.b.arg_max(c.b.cast(c.b.greater(matrix, 0.0), "float32"), 2, keep_dimensions=True)
    low = c.b.cast(c.b.equal(first, columns), "float32")
    left = c.b.mul(matrix, low)
    return [left, c.b.sub(matrix, left)]


def _between(
    c: NodeContext, rows: MLOperand, image: MLOperand, columns: MLOperand
) -> MLOperand:
    count, channels = image.shape[:2]
    kind = image.data_type
    left = c.cast(c.reshape(rows, [count, 1, *rows.shape[1:]]), kind)
    right = c.cast(c.transpose(columns, [0, 2, 1]), kind)
    right = c.reshape(right, [count, 1, *right.shape[1:]])
    left = c.b.expand(left, [count, channels, *left.shape[2:]])
    right = c.b.expand(right, [count, channels, *right.shape[2:]])
    return c.b.matmul(c.b.matmul(left, image), right)


@onnx_operator("MaxRoiPool")
def max_roi_pool(
    c: NodeContext, x: Tensor, rois: Tensor, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> MLOperand:
    count = rois.shape[0]
    index = c.b.cast(c.reshape(c.slice(rois, 1, 0, 1), [count]), "int32")
    images = c.b.gather(x, index)
    lowest = c.constant(np.finfo(images.data_type).min, images.data_type)
    bounds = c.b.mul(c.slice(rois, 1, 1, 4), spatial_scale)
    # Rounded, halves away from zero.
    bounds = c.b.mul(c.b.sign(bounds), c.b.floor(c.b.add(c.b.abs(bounds), 0.5)))
    for axis in range(2):
        n, size = x.shape[2 + axis], pooled_shape[axis]
        start = c.slice(bounds, 1, 1 - axis, 1)
        length = c.b.max(
            c.b.add(c.b.sub(c.slice(bounds, 1, 3 - axis, 1), start), 1.0), 1.0
        )
        refuse_if(size < 1, f"pooled_shape is {pooled_shape}; each has to be positive")
        check_made(size, n)
        each = c.b.div(length, float(size))
        bins = c.constant(np.arange(size)[None], rois.operand.data_type)
        first = c.b.add(c.b.floor(c.b.mul(each, bins)), start)
        last = c.b.add(c.b.ceil(c.b.mul(each, c.b.add(bins, 1.0))), start)
        places = c.constant(np.arange(n)[None, None], rois.operand.data_type)
        inside = c.b.logical_and(
            c.b.greater_or_equal(places, c.reshape(first, [count, size, 1])),
            c.b.lesser(places, c.reshape(last, [count, size, 1])),
        )
        shape = images.shape
        if axis == 0:
            view, mask = [*shape[:2], 1, *shape[2:]], [count, 1, size, n, 1]
        else:
            view, mask = [*shape[:3], 1, shape[3]], [count, 1, 1, size, n]
        chosen = c.b.where(c.reshape(inside, mask), c.reshape(images, view), lowest)
        images = c.b.reduce_max(chosen, axes=[3 if axis == 0 else 4])
    # A bin without pixels is 0.
    return c.b.where(c.b.equal(images, lowest), c.constant(0, images.data_type), images)


@onnx_operator("Col2Im")
def col2im(
    c: NodeContext,
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    image, block = c.ints(image_shape, "the image's shape"), c.ints(block_shape, "the block's")
    rank, taps = len(image), math.prod(block)
    check_made(max(x.shape[1], taps), taps)
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads = pads or [0] * (2 * rank)
    counts, extra = [], []
    for i in range(rank):
        reach = image[i] + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1
        counts.append(reach // strides[i] + 1)
        extra.append(reach % strides[i])
    n, channels = x.shape[0], x.shape[1] // taps
    # A transposed convolution whose filter puts each element of a column in its place.
    weight = np.tile(np.eye(taps, dtype=np.float32).reshape(taps, 1, *block), (channels, 1, *[1] *
                                                                               rank))
    padding = [(pads[i], pads[i + rank]) for i in range(rank)]
    window = Window(block, strides, dilations, padding, extra=extra)
    return transposed(
        c, c.reshape(x, [n, channels * taps, *counts]),
        c.constant(weight, x.operand.data_type), None, window, channels,
    )
