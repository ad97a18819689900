"""Shifts and logic on the bits of integers, by arithmetic: WebNN has no such operators."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..records import onnx_operator
from ..values import Tensor

_UNSIGNED = {"int8": "uint8", "int32": "uint32", "int64": "uint64"}


def _bits(data_type: str) -> int:
    return np.dtype(data_type).itemsize * 8


@onnx_operator("BitShift")
def bit_shift(c: NodeContext, x: Tensor, by: Tensor, *, direction: str) -> MLOperand:
    kind = x.operand.data_type
    count = c.b.max(c.b.min(by, _bits(kind) - 1), 0)
    factor = c.b.gather(_powers(c, kind), c.b.cast(count, "int32"))
    shifted = (c.b.mul if direction == "LEFT" else c.b.div)(x, factor)
    if direction == "RIGHT" and kind in _UNSIGNED:
        # Rounded down, as the sign bit moves in; division rounds to zero.
        rest = c.b.sub(x, c.b.mul(shifted, factor))
        shifted = c.b.where(c.b.lesser(rest, 0), c.b.sub(shifted, 1), shifted)
    # All bits are moved out; a negative number of places counts as such a number.
    gone = c.b.greater_or_equal(by, _bits(kind))
    if kind in _UNSIGNED:
        gone = c.b.logical_or(gone, c.b.lesser(by, 0))
    left = c.constant(0, kind)
    if direction == "RIGHT" and kind in _UNSIGNED:
        left = c.b.where(c.b.lesser(x, 0), c.constant(-1, kind), left)
    return c.b.where(gone, left, shifted)


def _powers(c: NodeContext, kind: str) -> MLOperand:
    """The power of two of each bit."""
    return c.constant(np.uint64(1) << np.arange(_bits(kind), dtype=np.uint64), kind)


@onnx_operator("BitwiseNot")
def bitwise_not(c: NodeContext, x: Tensor) -> MLOperand:
    kind = x.operand.data_type
    ones = -1 if kind in _UNSIGNED else np.iinfo(kind).max
    return c.b.sub(c.constant(ones, kind), x)


@onnx_operator("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(c: NodeContext, a: Tensor, b: Tensor) -> MLOperand:
    kind = a.operand.data_type
    unsigned = _UNSIGNED.get(kind, kind)
    shape = np.broadcast_shapes(a.shape, b.shape)
    left, right = (_split_bits(c, c.cast(v, unsigned)) for v in (a, b))
    both = c.b.mul(left, right)
    if c.operator != "BitwiseAnd":
        # a + b − ab or a + b − 2ab
        total = c.b.add(left, right)
        both = c.b.sub(total, both if c.operator == "BitwiseOr" else c.b.mul(both, 2))
    sums = c.b.mul(both, _powers(c, unsigned))
    if unsigned == "uint8":
        sums = c.b.cast(sums, "uint32")
    return c.reshape(c.cast(c.b.reduce_sum(sums, axes=[len(shape)]), kind), shape)


def _split_bits(c: NodeContext, x: MLOperand) -> MLOperand:
    """The bits of unsigned integers along a new last axis, lowest first."""
    shifted = c.b.div(c.reshape(x, [*x.shape, 1]), _powers(c, x.data_type))
    return c.b.sub(shifted, c.b.mul(c.b.div(shifted, 2), 2))
