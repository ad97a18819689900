"""A batch normalisation with constant statistics becomes part of the convolution before it: its
factors scale the filter, its offsets the bias."""

from __future__ import annotations

import numpy as np

from ..ir import Emitter, Node, Value
from ..ops.convolution import arrange
from .patterns import Constant, Match, Maybe, Op
from .rewrite import rewrite, rewrite_pass


@rewrite(
    Op(
        "batch_normalization",
        input=Op(
            "conv2d",
            "conv_transpose2d",
            bind="conv",
            single_use=True,
            # A filter that other nodes read too would be stored twice.
            filter=Constant("filter", single_use=True),
            bias=Maybe(Constant("conv_bias")),
        ),
        mean=Constant("mean"),
        variance=Constant("variance"),
        scale=Maybe(Constant("scale")),
        bias=Maybe(Constant("shift")),
    )
)
def batch_norm_into_convolution(match: Match, emit: Emitter) -> Value | None:
    """(conv(x, w) + b − mean) · f + shift = conv(x, w · f) + ((b − mean) · f + shift), with
    f = scale / √(variance + epsilon), computed in double and rounded once. None if the numbers
    can't be represented: f is not finite, a product overflows, a channel underflows."""
    conv, norm = match["conv"], match.root
    layout = conv.arguments["input_layout"]
    if norm.arguments["axis"] != layout.index("c"):
        return None
    with np.errstate(all="ignore"):
        factor = 1 / np.sqrt(_wide(match["variance"]) + norm.arguments["epsilon"])
        if match.get("scale"):
            factor = factor * _wide(match["scale"])
        bias = -_wide(match["mean"])
        if match.get("conv_bias"):
            bias = bias + _wide(match["conv_bias"])
        bias = bias * factor
        if match.get("shift"):
            bias = bias + _wide(match["shift"])
        factors = _by_filter(conv, factor)
        if factors is None:
            return None
        wide = _wide(match["filter"])
        dtype = match["filter"].descriptor.numpy_dtype
        scaled, offset = (wide * factors).astype(dtype), bias.astype(dtype)
    finite = np.isfinite(scaled).all() and np.isfinite(offset).all()
    if not finite or _vanishes(conv, wide, scaled, factors):
        return None
    return emit.like(conv, filter=emit.constant(scaled), bias=emit.constant(offset))


def _wide(value: Value) -> np.ndarray:
    return value.data.astype(np.float64)


def _by_filter(conv: Node, factor: np.ndarray) -> np.ndarray | None:
    """One factor per output channel, in a shape that broadcasts to the filter; None if the
    filter's channels don't determine the output channel."""
    layout, groups = conv.arguments["filter_layout"], conv.arguments["groups"]
    shape = conv.operands["filter"].shape
    outputs, inputs = arrange(shape, layout, "oi")
    if conv.operator.name == "conv2d":
        spread = factor.reshape(outputs, 1, 1, 1)
    else:
        # This filter has all input channels and the output channels of one group. The input
        # channel determines the group.
        if inputs % groups:
            return None
        by_group = factor.reshape(groups, outputs)
        spread = np.repeat(by_group, inputs // groups, axis=0).T.reshape(outputs, inputs, 1, 1)
    return spread.transpose(arrange(range(4), "oihw", layout))


def _vanishes(
    conv: Node, wide: np.ndarray, scaled: np.ndarray, factors: np.ndarray
) -> bool:
    """Whether scaling, by another factor than 0, makes the filter of some channel subnormal or 0
    that was not before."""
    axes = tuple(i for i, letter in enumerate(conv.arguments["filter_layout"]) if letter in "hw")
    normal = np.finfo(scaled.dtype).smallest_normal
    largest_before = np.abs(wide * (factors != 0)).max(axis=axes)
    largest = np.abs(scaled.astype(np.float64)).max(axis=axes)
    return bool(((largest < normal) & (largest_before >= normal)).any())


FOLD_BATCH_NORM = rewrite_pass("fold_batch_norm", batch_norm_into_convolution)
