"""Normalisations, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made, view_along
from ..errors import refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor


@onnx_operator("BatchNormalization")
def batch_normalization(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
    is_test: int = 1,
    consumed_inputs: Any = None,
) -> list[MLOperand]:
    refuse_if(not spatial, "spatial=0 is not supported")
    refuse_if(x.rank == 1, "an input of rank 1")
    # The squares of float16 may overflow.
    kind = "float32" if training_mode else x.operand.data_type
    parameters = [c.cast(v, kind) for v in (mean, variance, scale, bias)]
    if not training_mode:
        m, v, s, b = parameters
        return [c.b.batch_normalization(x, m, v, scale=s, bias=b, axis=1, epsilon=epsilon)]
    # The batch's own statistics, as the operator defines them for inference too.
    axes = [i for i in range(x.rank) if i != 1]
    wide = c.cast(x, kind)
    batch_mean = c.b.reduce_mean(wide, axes=axes)
    view = [1, x.shape[1], *[1] * (x.rank - 2)]
    centred = c.b.sub(wide, c.reshape(batch_mean, view))
    batch_variance = c.b.reduce_mean(c.b.mul(centred, centred), axes=axes)
    m, v, s, b = parameters
    result = c.b.batch_normalization(
        wide, batch_mean, batch_variance, scale=s, bias=b, axis=1, epsilon=epsilon
    )
    running = [
        c.b.add(c.b.mul(old, momentum), c.b.mul(new, 1 - momentum))
        for old, new in ((m, batch_mean), (v, batch_variance))
    ]
    return [c.cast(result, x.operand.data_type), *(c.cast(r, t.operand.data_type) for r, t in
                      zip(running, (mean, variance), strict=True))]


@onnx_operator("InstanceNormalization")
def instance_normalization(
    c: NodeContext, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5,
    consumed_inputs: Any = None,
) -> MLOperand:
    n, channels = x.shape[:2]
    flat = c.reshape(x, [n, channels, 1, math.prod(x.shape[2:])])
    image = x.operand if x.rank == 4 else flat
    result = c.b.instance_normalization(image, scale=scale, bias=bias, epsilon=epsilon)
    return c.reshape(result, x.shape)


@onnx_operator("LayerNormalization")
def layer_normalization(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[MLOperand | None]:
    axes = list(range(c.axis(axis, x.rank), x.rank))
    result = scaled_layer_norm(c, x.operand, scale, bias, axes, epsilon)
    outputs: list[MLOperand | None] = [result, None, None]
    if c.wants(1) or c.wants(2):
        wide = c.cast(x, "float32")
        mean = c.b.reduce_mean(wide, axes=axes, keep_dimensions=True)
        centred = c.b.sub(wide, mean)
        variance = c.b.reduce_mean(c.b.mul(centred, centred), axes=axes, keep_dimensions=True)
        outputs[1:] = mean, c.b.reciprocal(c.b.sqrt(c.b.add(variance, epsilon)))
    return outputs


def scaled_layer_norm(
    c: NodeContext,
    x: MLOperand,
    scale: Tensor | None,
    bias: Tensor | None,
    axes: list[int],
    epsilon: float,
) -> MLOperand:
    """layer_normalization where scale and bias have its shape, products and sums elsewhere."""
    wanted = tuple(x.shape[a] for a in axes)
    fits = all(v is None or v.shape == wanted for v in (scale, bias))
    inside = {
        k: c.cast(v, x.data_type)
        for k, v in (("scale", scale), ("bias", bias)) if v is not None and fits
    }
    result = c.b.layer_normalization(x, axes=axes, epsilon=epsilon, **inside)
    if fits:
        return result
    if scale is not None:
        result = c.b.mul(result, c.cast(scale, x.data_type))
    return result if bias is None else c.b.add(result, c.cast(bias, x.data_type))


@onnx_operator("RMSNormalization", "SimplifiedLayerNormalization")
@onnx_operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_normalization(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> MLOperand:
    axes = list(range(c.axis(axis, x.rank), x.rank))
    return rms_norm(c, x.operand, scale, axes, epsilon)


def rms_norm(
    c: NodeContext, x: MLOperand, scale: Tensor, axes: list[int], epsilon: float
) -> MLOperand:
    """x / √(mean(x²) + epsilon) · scale, in float32."""
    wide = c.cast(x, "float32")
    square = c.b.reduce_mean(c.b.mul(wide, wide), axes=axes, keep_dimensions=True)
    normal = c.b.div(wide, c.b.sqrt(c.b.add(square, epsilon)))
    return c.b.mul(c.cast(normal, x.data_type), c.cast(scale, x.data_type))


@onnx_operator("GroupNormalization", first=18)
def group_normalization(
    c: NodeContext,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> MLOperand:
    n, channels = x.shape[:2]
    size = math.prod(x.shape[2:])
    grouped = c.reshape(x, [n, num_groups, channels // num_groups * size])
    normal = c.b.layer_normalization(grouped, axes=[2], epsilon=epsilon)
    # Before opset 21 there is one factor per group, then one per channel.
    parts = num_groups if c.version < 21 else channels
    view = c.reshape(normal, [n, parts, channels * size // parts])
    factor, offset = (
        c.reshape(c.cast(v, normal.data_type), [1, parts, 1]) for v in (scale, bias)
    )
    return c.reshape(c.b.add(c.b.mul(view, factor), offset), x.shape)


@onnx_operator("LpNormalization")
def lp_normalization(c: NodeContext, x: Tensor, *, axis: int = -1, p: int = 2) -> MLOperand:
    refuse_if(p not in (1, 2), f"p={p}; 1 and 2 are defined")
    options = {"axes": [c.axis(axis, x.rank)], "keep_dimensions": True}

    def of(v: MLOperand) -> MLOperand:
        # Scale to a largest size of 1 first, so that sums and squares are finite.
        most = c.b.reduce_max(c.b.abs(v), **options)
        empty = c.b.equal(most, 0.0)
        scaled = c.b.div(v, c.b.where(empty, c.constant(1, "float32"), most))
        norm = (c.b.reduce_l1 if p == 1 else c.b.reduce_l2)(scaled, **options)
        return c.b.div(scaled, c.b.where(empty, c.constant(1, "float32"), norm))

    return c.widened(x, of)


@onnx_operator("MeanVarianceNormalization", first=9)
def mean_variance_normalization(
    c: NodeContext, x: Tensor, *, axes: list[int] | None = None
) -> MLOperand:
    options = {"axes": c.axes([0, 2, 3] if axes is None else axes, x.rank),
               "keep_dimensions": True}

    def of(v: MLOperand) -> MLOperand:
        centred = c.b.sub(v, c.b.reduce_mean(v, **options))
        # Once more: the mean of large numbers was rounded.
        centred = c.b.sub(centred, c.b.reduce_mean(centred, **options))
        variance = c.b.reduce_mean(c.b.mul(centred, centred), **options)
        return c.b.div(centred, c.b.add(c.b.sqrt(variance), 1e-9))

    return c.widened(x, of)


@onnx_operator("LRN")
def local_response_normalization(
    c: NodeContext, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
    bias: float = 1.0,
) -> MLOperand:
    # l2_pool2d over channels gives √Σx²; its padding counts as nothing.
    n, channels = x.shape[:2]
    before = (size - 1) // 2

    def of(v: MLOperand) -> MLOperand:
        norm = c.b.l2_pool2d(
            c.reshape(v, [n, 1, channels, math.prod(x.shape[2:])]),
            window_dimensions=[size, 1], padding=[before, size - 1 - before, 0, 0],
        )
        total = c.b.mul(c.b.mul(norm, norm), alpha / size)
        return c.b.div(v, c.reshape(c.b.pow(c.b.add(total, bias), beta), x.shape))

    return c.widened(x, of)


@onnx_operator("Softmax", "LogSoftmax", "Hardmax", last=12)
def softmax_of_rows(c: NodeContext, x: Tensor, *, axis: int = 1) -> MLOperand:
    at = axis + x.rank if axis < 0 else axis
    return by_rows(c, x, at, lambda rows: _softmax(c, rows, 1))


def by_rows(
    c: NodeContext, x: Tensor | MLOperand, at: int, function: Callable[[MLOperand], MLOperand]
) -> MLOperand:
    """``function`` of the input as a matrix, whose columns are the dimensions from ``at`` on."""
    rows = c.reshape(x, [math.prod(x.shape[:at]), math.prod(x.shape[at:])])
    return c.reshape(function(rows), x.shape)


@onnx_operator("Softmax", "LogSoftmax", "Hardmax", first=13)
def softmax(c: NodeContext, x: Tensor, *, axis: int = -1) -> MLOperand:
    return _softmax(c, x.operand, c.axis(axis, x.rank))


def _softmax(c: NodeContext, x: MLOperand, axis: int) -> MLOperand:
    options = {"axes": [axis], "keep_dimensions": True}
    if c.operator == "Softmax":
        return c.b.softmax(x, axis)
    if c.operator == "LogSoftmax":
        shifted = c.b.sub(x, c.b.reduce_max(x, **options))
        return c.b.sub(shifted, c.b.reduce_log_sum_exp(shifted, **options))
    check_made(x.shape[axis])
    best = c.b.arg_max(x, axis, keep_dimensions=True)
    places = np.arange(x.shape[axis]).reshape(view_along(axis, len(x.shape)))
    return c.b.cast(c.b.equal(best, c.constant(places, "int32")), x.data_type)


def _mask(c: NodeContext, x: Tensor) -> np.ndarray | None:
    """Nothing is dropped."""
    if not c.wants(1):
        return None
    check_made(*x.shape)
    return np.ones(x.shape, bool)


@onnx_operator("Dropout", moved=("ratio",), since=12)
def dropout(
    c: NodeContext, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None, *,
    seed: int = 0, is_test: int = 1, consumed_inputs: Any = None,
) -> list[Any]:
    if training is not None and training.value("training_mode").reshape(-1)[0]:
        part = 0.5 if ratio is None else float(ratio.value("the ratio").reshape(-1)[0])
        refuse_if(part, "training mode draws random numbers, WebNN has none")
    return [x, _mask(c, x)]
