"""The draft's emulation code, in Python: operators expressed by other operators.

Each function takes a builder and the operator's operands and options. Where the draft has slips
this code does what is meant: numbers become constants of the operands' type, an absent scale, bias
or option has its default, zero states have the input's type, quantize_linear clamps to its type's
range, and layouts and axes are general where that costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webnn_vk import MLGraphBuilder, MLOperand

EMULATIONS: dict[str, Callable[..., Any]] = {}


def emulation(function: Callable[..., Any]) -> Callable[..., Any]:
    EMULATIONS[function.__name__.rstrip("_")] = function
    return function


def _number(b: MLGraphBuilder, like: MLOperand, value: float) -> MLOperand:
    return b.constant(like.data_type, value)


# -- element-wise
@emulation
def clamp(b, input, min_value=None, max_value=None):
    if min_value is None and max_value is None:
        return b.identity(input)
    if min_value is not None:
        input = b.max(input, _number(b, input, min_value))
    return input if max_value is None else b.min(input, _number(b, input, max_value))


@emulation
def sign(b, input):
    zero, one, minus_one = (_number(b, input, x) for x in (0, 1, -1))
    rest = b.where(b.lesser(input, zero), minus_one, zero)
    return b.where(b.greater(input, zero), one, rest)


@emulation
def greater_or_equal(b, a, b_):
    return b.logical_not(b.lesser(a, b_))


@emulation
def lesser_or_equal(b, a, b_):
    return b.logical_not(b.greater(a, b_))


@emulation
def elu(b, input, alpha=1.0):
    zero, one = _number(b, input, 0), _number(b, input, 1)
    negative = b.sub(b.exp(b.min(zero, input)), one)
    return b.add(b.max(zero, input), b.mul(_number(b, input, alpha), negative))


@emulation
def gelu(b, input):
    half, one, two = (_number(b, input, x) for x in (0.5, 1, 2))
    return b.mul(b.mul(input, half), b.add(one, b.erf(b.div(input, b.sqrt(two)))))


@emulation
def hard_sigmoid(b, input, alpha=0.2, beta=0.5):
    line = b.add(b.mul(_number(b, input, alpha), input), _number(b, input, beta))
    return b.max(b.min(line, _number(b, input, 1)), _number(b, input, 0))


@emulation
def hard_swish(b, input):
    zero, three, six = (_number(b, input, x) for x in (0, 3, 6))
    return b.div(b.mul(input, b.max(zero, b.min(six, b.add(input, three)))), six)


@emulation
def leaky_relu(b, input, alpha=0.01):
    zero = _number(b, input, 0)
    return b.add(b.max(zero, input), b.mul(_number(b, input, alpha), b.min(zero, input)))


@emulation
def linear(b, input, alpha=1.0, beta=0.0):
    return b.add(b.mul(input, _number(b, input, alpha)), _number(b, input, beta))


@emulation
def prelu(b, input, slope):
    zero = _number(b, input, 0)
    return b.add(b.max(zero, input), b.mul(slope, b.min(zero, input)))


@emulation
def relu(b, input):
    return b.max(_number(b, input, 0), input)


@emulation
def sigmoid(b, input):
    one = _number(b, input, 1)
    return b.div(one, b.add(b.exp(b.neg(input)), one))


@emulation
def softplus(b, input):
    return b.log(b.add(b.exp(input), _number(b, input, 1)))


@emulation
def softsign(b, input):
    return b.div(input, b.add(_number(b, input, 1), b.abs(input)))


@emulation
def tanh(b, input):
    one = _number(b, input, 1)
    squared = b.exp(b.mul(_number(b, input, 2), input))
    return b.div(b.sub(squared, one), b.add(squared, one))


@emulation
def where(b, condition, true_value, false_value):
    c = b.clamp(condition, min_value=0, max_value=1)
    chosen = b.mul(true_value, b.cast(c, true_value.data_type))
    other = b.mul(false_value, b.cast(b.logical_not(c), false_value.data_type))
    return b.add(chosen, other)


# -- quantisation
def blockwise_expand(b: MLGraphBuilder, input: MLOperand, shape: Sequence[int]) -> MLOperand:
    """Repeats each element along each axis until ``shape`` is filled."""
    for axis, size in enumerate(shape):
        old = input.shape
        if old[axis] == size:
            continue
        before, after = math.prod(old[:axis]), math.prod(old[axis + 1 :])
        apart = b.reshape(input, [before, old[axis], 1, after])
        repeated = b.expand(apart, [before, old[axis], size // old[axis], after])
        input = b.reshape(repeated, [*old[:axis], size, *old[axis + 1 :]])
    return input


@emulation
def dequantize_linear(b, input, scale, zero_point):
    zeros = blockwise_expand(b, b.cast(zero_point, scale.data_type), input.shape)
    scales = blockwise_expand(b, scale, input.shape)
    return b.mul(b.sub(b.cast(input, scale.data_type), zeros), scales)


@emulation
def quantize_linear(b, input, scale, zero_point):
    zeros = blockwise_expand(b, b.cast(zero_point, scale.data_type), input.shape)
    steps = b.round_even(b.div(input, blockwise_expand(b, scale, input.shape)))
    limits = np.iinfo(zero_point.data_type)
    clamped = b.clamp(
        b.add(steps, zeros), min_value=int(limits.min), max_value=int(limits.max)
    )
    return b.cast(clamped, zero_point.data_type)


# -- normalisation and reduction
def _affine(b, normal, scale, bias, shape):
    if scale is not None:
        normal = b.mul(b.reshape(scale, shape), normal)
    return normal if bias is None else b.add(normal, b.reshape(bias, shape))


@emulation
def batch_normalization(
    b, input, mean, variance, scale=None, bias=None, axis=1, epsilon=1e-5
):
    shape = [d if i == axis else 1 for i, d in enumerate(input.shape)]
    deviation = b.sqrt(b.add(b.reshape(variance, shape), _number(b, input, epsilon)))
    normal = b.div(b.sub(input, b.reshape(mean, shape)), deviation)
    return _affine(b, normal, scale, bias, shape)


def _standardise(b, input, axes, epsilon):
    mean = b.reduce_mean(input, axes=axes, keep_dimensions=True)
    centred = b.sub(input, mean)
    squares = b.pow(centred, _number(b, input, 2))
    variance = b.reduce_mean(squares, axes=axes, keep_dimensions=True)
    return b.div(centred, b.sqrt(b.add(variance, _number(b, input, epsilon))))


@emulation
def instance_normalization(b, input, scale=None, bias=None, epsilon=1e-5, layout="nchw"):
    axes = [2, 3] if layout == "nchw" else [1, 2]
    shape = [1 if i in (0, *axes) else d for i, d in enumerate(input.shape)]
    return _affine(b, _standardise(b, input, axes, epsilon), scale, bias, shape)


@emulation
def layer_normalization(b, input, scale=None, bias=None, axes=None, epsilon=1e-5):
    """For ascending axes."""
    axes = list(range(1, len(input.shape))) if axes is None else axes
    shape = [d if i in axes else 1 for i, d in enumerate(input.shape)]
    return _affine(b, _standardise(b, input, axes, epsilon), scale, bias, shape)


@emulation
def softmax(b, input, axis):
    largest = b.reduce_max(input, axes=[axis], keep_dimensions=True)
    powers = b.exp(b.sub(input, largest))
    return b.div(powers, b.reduce_sum(powers, axes=[axis], keep_dimensions=True))


@emulation
def reduce_log_sum(b, input, **options):
    return b.log(b.reduce_sum(input, **options))


@emulation
def reduce_log_sum_exp(b, input, **options):
    return b.log(b.reduce_sum(b.exp(input), **options))


@emulation
def reduce_sum_square(b, input, **options):
    return b.reduce_sum(b.pow(input, _number(b, input, 2)), **options)


# -- others
@emulation
def gemm(b, a, b_, c=None, alpha=1.0, beta=1.0, a_transpose=False, b_transpose=False):
    a = b.transpose(a) if a_transpose else a
    b_ = b.transpose(b_) if b_transpose else b_
    product = b.matmul(b.mul(_number(b, a, alpha), a), b_)
    return product if c is None else b.add(product, b.mul(_number(b, a, beta), c))


@emulation
def split(b, input, splits, axis=0):
    if isinstance(splits, int):
        splits = [input.shape[axis] // splits] * splits
    parts, start = [], 0
    for size in splits:
        starts = [start if i == axis else 0 for i in range(len(input.shape))]
        sizes = [size if i == axis else d for i, d in enumerate(input.shape)]
        parts.append(b.slice(input, starts, sizes))
        start += size
    return parts


# -- helpers of §11, which the draft gives in place of operators
def squeeze(b: MLGraphBuilder, input: MLOperand, axes: Sequence[int] | None = None) -> MLOperand:
    """Removes the dimensions of size 1, or those that ``axes`` names."""
    kept = [
        d for i, d in enumerate(input.shape) if d != 1 or (axes is not None and i not in axes)
    ]
    return b.reshape(input, kept)


def unsqueeze(b: MLGraphBuilder, input: MLOperand, axes: Sequence[int]) -> MLOperand:
    """Adds dimensions of size 1 at ``axes`` of the result."""
    shape = list(input.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return b.reshape(input, shape)


def flatten(b: MLGraphBuilder, input: MLOperand, axis: int) -> MLOperand:
    """A matrix: the dimensions before ``axis`` by the rest."""
    return b.reshape(input, [math.prod(input.shape[:axis]), math.prod(input.shape[axis:])])
