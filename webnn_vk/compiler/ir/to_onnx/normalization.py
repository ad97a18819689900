"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...types.sizes import Size
from .writer import Tensor, Writer, rule


@rule("softmax")
def softmax(w: Writer, input: Tensor, axis: int) -> Tensor:
    return w.op("Softmax", input, axis=axis)


def _filled(w: Writer, given: Tensor | None, value: float, shape: Sequence[int], like: Tensor):
    """``given``, or a tensor of the shape of equal numbers."""
    if given is not None:
        return given
    if any(isinstance(size, Size) for size in shape):
        return w.expand(w.constant(np.full([1] * len(shape), value, like.data_type)), shape)
    return w.constant(np.full(shape, value, like.data_type))


@rule("batch_normalization")
def batch_normalization(
    w: Writer, input: Tensor, mean: Tensor, variance: Tensor, scale: Tensor | None,
    bias: Tensor | None, axis: int, epsilon: float,
) -> Tensor:
    # Not ONNX's BatchNormalization, which may be computed with one factor and one addend: if the
    # mean is large, their sum loses digits.
    shape = [-1 if i == axis else 1 for i in range(input.rank)]
    shape[axis] = input.shape[axis]
    wide = w.cast(variance, "float32")
    if variance.array is not None and (scale is None or scale.array is not None):
        over = np.sqrt(variance.array.astype(np.float64) + epsilon)
        with np.errstate(all="ignore"):
            factor = w.constant((1 if scale is None else scale.array) / over, "float32")
    else:
        root = w.op("Sqrt", w.op("Add", wide, w.scalar(epsilon, wide)))
        top = w.scalar(1, wide) if scale is None else w.cast(scale, "float32")
        factor = w.op("Div", top, root)
    x = w.op("Sub", w.cast(input, "float32"), w.reshape(w.cast(mean, "float32"), shape))
    x = w.op("Mul", x, w.reshape(factor, shape))
    if bias is not None:
        x = w.op("Add", x, w.reshape(w.cast(bias, "float32"), shape))
    return w.cast(x, input.data_type)


@rule("instance_normalization")
def instance_normalization(
    w: Writer, input: Tensor, scale: Tensor | None, bias: Tensor | None, epsilon: float,
    layout: str,
) -> Tensor:
    channels = [input.shape[layout.index("c")]]
    scale, bias = _filled(w, scale, 1, channels, input), _filled(w, bias, 0, channels, input)
    return w.nchw(layout, input, lambda x: w.op(
        "InstanceNormalization", x, scale, bias, shape=x.shape, epsilon=float(epsilon)
    ))


@rule("layer_normalization")
def layer_normalization(
    w: Writer, input: Tensor, scale: Tensor | None, bias: Tensor | None, axes: Sequence[int],
    epsilon: float,
) -> Tensor:
    if not axes:
        # x - x over the square root of epsilon: 0, or NaN if x is NaN or infinite.
        with np.errstate(divide="ignore"):
            factor = 1 / np.sqrt(np.float32(epsilon))
        y = w.op("Mul", w.op("Sub", input, input), w.scalar(factor, input))
        y = w.op("Mul", y, scale) if scale is not None else y
        return w.op("Add", y, bias) if bias is not None else y
    # ONNX normalises over the last dimensions.
    inner = sorted(axes)
    order = [*(i for i in range(input.rank) if i not in axes), *inner]
    x = w.transpose(input, order)
    ranks = np.argsort(axes).tolist()
    scale, bias = (t and w.transpose(t, ranks) for t in (scale, bias))
    shape = [input.shape[axis] for axis in inner]
    y = w.op(
        "LayerNormalization", x, _filled(w, scale, 1, shape, input), bias, shape=x.shape,
        axis=input.rank - len(axes), epsilon=float(epsilon),
    )
    return w.transpose(y, np.argsort(order).tolist())
