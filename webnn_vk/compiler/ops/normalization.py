"""Normalisations (§8.9.6, §8.9.29, §8.9.30) and softmax (§8.9.48)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MAX_RANK, MLOperandDescriptor, cast_number
from .arguments import U32, Double, Enum, Operand, Shape
from .lowering import Normalize, PlainKernel
from .record import Check, Inferred, Like, Limits, operator


def _per_channel(check: Check, input: Any, axis: int, **operands: Any) -> None:
    """The operands present are 1-D, of the input's type, with one element per channel."""
    for name, operand in operands.items():
        if operand is not None:
            check.same_type(input=input, **{name: operand})
            check.shape(name, operand, (input.shape[axis],))


@operator(
    "§8.9.6",
    input=Limits(FLOAT_TYPES, (1, MAX_RANK)),
    mean=Like("input", (1, 1)),
    variance=Like("input", (1, 1)),
    scale=Like("input", (1, 1)),
    bias=Like("input", (1, 1)),
    output=Like("input"),
)
def batch_normalization(
    check: Check,
    input: Operand,
    mean: Operand,
    variance: Operand,
    *,
    scale: Operand = None,
    bias: Operand = None,
    axis: U32 = 1,
    epsilon: Double = 1e-5,
) -> Inferred:
    """(input − mean) / √(variance + epsilon) · scale + bias, each per index along ``axis``.

    ``mean``, ``variance``, ``scale`` (1 when absent) and ``bias`` (0 when absent) have the shape
    [size of the input along ``axis``]. TypeError for an axis out of range or another shape or type.
    """
    check.axis(axis, input)
    _per_channel(check, input, axis, mean=mean, variance=variance, scale=scale, bias=bias)
    # spec: batchNormalization, step 9
    epsilon = cast_number(epsilon, input.data_type)
    return Inferred.like(input, epsilon=epsilon)


@batch_normalization.reference
def _(
    out: Any,
    input: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    axis: int,
    epsilon: float,
) -> np.ndarray:
    shape = [-1 if i == axis else 1 for i in range(input.ndim)]
    factor = 1 / np.sqrt(variance.astype(np.float64) + epsilon)
    if scale is not None:
        factor = factor * scale
    result = (input - mean.reshape(shape)) * factor.astype(np.float32).reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def _normalize(
    x: np.ndarray,
    axes: tuple[int, ...],
    epsilon: float,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
) -> np.ndarray:
    """x with mean 0 and variance 1 over the axes; scale and bias broadcast to it."""
    # The mean is subtracted in double: rounding it to float32 would lose digits of close elements.
    mean = np.mean(x, axis=axes, keepdims=True, dtype=np.float64)
    centred = (x - mean).astype(np.float32)
    variance = np.mean(centred * centred, axis=axes, keepdims=True, dtype=np.float64)
    result = centred * (1 / np.sqrt(variance + epsilon)).astype(np.float32)
    if scale is not None:
        result *= scale
    if bias is not None:
        result = result + bias
    return result


@operator(
    "§8.9.29",
    input=Limits(FLOAT_TYPES, (4, 4)),
    scale=Like("input", (1, 1)),
    bias=Like("input", (1, 1)),
    output=Like("input"),
)
def instance_normalization(
    check: Check,
    input: Operand,
    *,
    scale: Operand = None,
    bias: Operand = None,
    epsilon: Double = 1e-5,
    layout: Enum("nchw", "nhwc") = "nchw",
) -> Inferred:
    """Each channel of each sample normalised over its own height and width.

    (x − mean) / √(variance + epsilon) · scale + bias; ``scale`` (1 when absent) and ``bias`` (0
    when absent) have the shape [channels]. TypeError for another shape or type.
    """
    _per_channel(check, input, 1 if layout == "nchw" else 3, scale=scale, bias=bias)
    epsilon = cast_number(epsilon, input.data_type)  # spec: instanceNormalization, step 5
    return Inferred.like(input, epsilon=epsilon)


@instance_normalization.reference
def _(
    out: Any,
    input: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    epsilon: float,
    layout: str,
) -> np.ndarray:
    shape, axes = ((-1, 1, 1), (2, 3)) if layout == "nchw" else ((-1,), (1, 2))
    return _normalize(
        input, axes, epsilon, *(None if a is None else a.reshape(shape) for a in (scale, bias))
    )


@operator(
    "§8.9.30",
    input=Limits(FLOAT_TYPES),
    scale=Like("input", (0, MAX_RANK)),
    bias=Like("input", (0, MAX_RANK)),
    output=Like("input"),
)
def layer_normalization(
    check: Check,
    input: Operand,
    *,
    scale: Operand = None,
    bias: Operand = None,
    axes: Shape = None,
    epsilon: Double = 1e-5,
) -> Inferred:
    """Each sample normalised over ``axes`` (all but the first when absent).

    (x − mean) / √(variance + epsilon) · scale + bias; ``scale`` (1 when absent) and ``bias`` (0
    when absent) have the shape [size of the input along a, for a in axes], in the order of the
    axes. TypeError for axes out of range or given twice, another shape or type.
    """
    # spec: layerNormalization, step 4: for ranks 0 and 1 there is no axis
    axes = tuple(range(1, input.rank)) if axes is None else axes
    check.axes(axes, input.rank)
    check.same_type(input=input, scale=scale, bias=bias)
    expected = [input.shape[a] for a in axes]
    check.shape("scale", scale, expected)
    check.shape("bias", bias, expected)
    epsilon = cast_number(epsilon, input.data_type)  # spec: layerNormalization, step 6
    return Inferred.like(input, axes=axes, epsilon=epsilon)


@layer_normalization.reference
def _(
    out: Any,
    input: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    axes: tuple[int, ...],
    epsilon: float,
) -> np.ndarray:
    shape = [d if i in axes else 1 for i, d in enumerate(input.shape)]

    def spread(operand: np.ndarray | None) -> np.ndarray | None:
        if operand is None:
            return None
        order = sorted(range(len(axes)), key=axes.__getitem__)
        return np.transpose(operand, order).reshape(shape)

    return _normalize(input, axes, epsilon, spread(scale), spread(bias))


@operator("§8.9.48", input=Limits(FLOAT_TYPES, (1, MAX_RANK)), output=Like("input"))
def softmax(check: Check, input: Operand, axis: U32) -> MLOperandDescriptor:
    """exp(x) / Σ exp(x) along an axis; the output has the input's shape and data type.

    TypeError for an axis out of range.
    """
    check.axis(axis, input)
    return check.same_as(input)


@softmax.reference
def _(out: Any, input: np.ndarray, axis: int) -> np.ndarray:
    # Relative to the largest element, so that exp never overflows.
    e = np.exp(input - np.max(input, axis=axis, keepdims=True))
    e *= (1 / np.sum(e, axis=axis, keepdims=True, dtype=np.float64)).astype(np.float32)
    return e


batch_normalization.lowers_to(PlainKernel("batch_norm"))
instance_normalization.lowers_to(
    Normalize(
        axes=lambda shape, arguments: (2, 3) if arguments["layout"] == "nchw" else (1, 2),
        channel=lambda shape, arguments: 1 if arguments["layout"] == "nchw" else 3,
    )
)
layer_normalization.lowers_to(Normalize(axes=lambda shape, arguments: arguments["axes"]))
softmax.lowers_to(PlainKernel("softmax"))
