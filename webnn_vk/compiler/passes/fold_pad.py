"""A pad before a convolution or a pooling is merged into the padding of that operator if the result
is the same: the padded tensor is never written."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..ir import Emitter, Node, Value
from ..ops.convolution import arrange
from .patterns import Match, Op
from .rewrite import rewrite, rewrite_pass

_MAX_PADDING = 2**31 - 1


def _pad_of(where: Any) -> Op:
    return Op("pad", bind="pad", input="input", mode="constant", where=where)


def _is_zero(pad: Node) -> bool:
    # Padding with 0 instead of −0 would turn sums of −0 into 0.
    value = pad.arguments["value"]
    return value == 0 and math.copysign(1, value) > 0


def _is_lowest(pad: Node) -> bool:
    """Whether the value is the lowest of the data type: −∞ for floats."""
    value, dtype = pad.arguments["value"], pad.output.descriptor.numpy_dtype
    return value == (-math.inf if dtype.kind == "f" else np.iinfo(dtype).min)


@rewrite(Op("conv2d", "quantized_conv2d", input=_pad_of(_is_zero)))
def pad_into_conv2d(match: Match, emit: Emitter) -> Value | None:
    """A convolution pads with zeros. (The padding of a transposed convolution crops its output.)"""
    conv = match.root
    padding = _joined(match, conv.arguments["input_layout"])
    if padding is None or _is_pointwise(conv):
        return None
    return emit.like(conv, input=match["input"], padding=padding)


def _is_pointwise(conv: Node) -> bool:
    """Whether a convolution is a matrix product. With padding it would not be one, and the product
    kernel is several times as fast as a kernel that checks borders."""
    filter_shape = conv.operands["filter"].shape
    rows, columns = arrange(filter_shape, conv.arguments["filter_layout"], "hw")
    return (
        (rows, columns) == (1, 1)
        and conv.arguments["strides"] == (1, 1)
        and conv.arguments["groups"] == 1
        and not any(conv.arguments["padding"])
    )


@rewrite(Op("l2_pool2d", input=_pad_of(lambda pad: pad.arguments["value"] == 0)))
def pad_into_l2_pool2d(match: Match, emit: Emitter) -> Value | None:
    """Zeros add nothing to a sum of squares. (A mean would count them.)"""
    padding = _joined(match, match.root.arguments["layout"])
    return padding and emit.like(match.root, input=match["input"], padding=padding)


@rewrite(Op("max_pool2d", input=_pad_of(_is_lowest)))
def pad_into_max_pool2d(match: Match, emit: Emitter) -> Value | None:
    """The lowest value is never the maximum unless a window has only padding. For such a window
    the pooling's result would be 0."""
    pool = match.root
    padding = _joined(match, pool.arguments["layout"])
    if padding is None or not _windows_touch(pool, match["input"], padding):
        return None
    return emit.like(pool, input=match["input"], padding=padding)


def _windows_touch(pool: Node, value: Value, padding: tuple[int, ...]) -> bool:
    """Whether every window of the pooling, padded so, holds an element of ``value``."""
    a = pool.arguments
    sizes = arrange(value.shape, a["layout"], "hw")
    for i in range(2):
        step = a["dilations"][i]
        first = np.arange(a["output_sizes"][i], dtype=np.int64) * a["strides"][i] - padding[2 * i]
        # The first tap that does not lie before the tensor.
        tap = np.maximum(0, -(first // step))
        if not np.all((tap < a["window_dimensions"][i]) & (first + tap * step < sizes[i])):
            return False
    return True


def _joined(match: Match, layout: str) -> tuple[int, ...] | None:
    """[top, bottom, left, right] of the root and the pad together; None if the pad is not only of
    height and width."""
    before, after = (
        dict(zip(layout, match["pad"].arguments[name], strict=True))
        for name in ("beginning_padding", "ending_padding")
    )
    if any(before[letter] or after[letter] for letter in "nc"):
        return None
    added = (before["h"], after["h"], before["w"], after["w"])
    padding = tuple(p + q for p, q in zip(match.root.arguments["padding"], added, strict=True))
    return padding if max(padding) <= _MAX_PADDING else None


FOLD_PAD = rewrite_pass(
    "fold_pad", pad_into_conv2d, pad_into_l2_pool2d, pad_into_max_pool2d
)
