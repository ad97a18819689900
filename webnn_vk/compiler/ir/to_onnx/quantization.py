"""dequantize_linear and quantize_linear: ONNX's operators for 8-bit integers with one scale, with
scales along one axis, or with scales of blocks along one axis; otherwise arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .writer import Tensor, Writer, rule


def _native(
    w: Writer, scale: Tensor, zero_point: Tensor, shape: Sequence[int]
) -> tuple[Tensor, Tensor, dict[str, Any]] | None:
    """Scale, zero point and attributes for ONNX's operators; None if these don't take them."""
    if math.prod(scale.shape) == 1:
        return w.reshape(scale, []), w.reshape(zero_point, []), {}
    varying = [i for i, n in enumerate(scale.shape) if n != 1]
    if len(varying) == 1 and scale.shape[varying[0]] == shape[varying[0]]:
        flat = [scale.shape[varying[0]]]
        return w.reshape(scale, flat), w.reshape(zero_point, flat), {"axis": varying[0]}
    blocked = [i for i, (n, d) in enumerate(zip(scale.shape, shape, strict=True)) if n != d]
    if len(blocked) == 1:
        axis = blocked[0]
        block = shape[axis] // scale.shape[axis]
        return scale, zero_point, {"axis": axis, "block_size": block}
    return None


def _spread(w: Writer, x: Tensor, shape: Sequence[int]) -> Tensor:
    """x, with an element for each block, repeated over the blocks; an axis with one block is not
    repeated, since it broadcasts."""
    if all(n in (1, d) for n, d in zip(x.shape, shape, strict=True)):
        return x
    split: list[int] = []
    full: list[int] = []
    joined: list[int] = []
    for n, d in zip(x.shape, shape, strict=True):
        if n in (1, d):
            split.append(n)
            full.append(n)
            joined.append(n)
        else:
            split += [n, 1]
            full += [n, d // n]
            joined.append(d)
    return w.reshape(w.expand(w.reshape(x, split), full), joined)


@rule("dequantize_linear")
def dequantize_linear(w: Writer, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    shape = w.result.shape
    native = _native(w, scale, zero_point, input.shape)
    if native is not None and input.data_type in ("int8", "uint8"):
        flat, zero, attributes = native
        return w.op(
            "DequantizeLinear", input, flat, zero, shape=shape, data_type=scale.data_type,
            **attributes,
        )
    if (
        native is not None and input.data_type == "int32"
        and zero_point.array is not None and not zero_point.array.any()
    ):
        # ONNX's operator takes int32 only without a zero point.
        return w.op(
            "DequantizeLinear", input, native[0], shape=shape, data_type=scale.data_type,
            **native[2],
        )
    wide = "int32" if input.data_type in ("int8", "uint8") else "int64"
    zero = _spread(w, w.cast(zero_point, wide), shape)
    difference = w.op("Sub", w.cast(input, wide), zero, shape=shape)
    product = w.op(
        "Mul", w.cast(difference, "float32"), _spread(w, w.cast(scale, "float32"), shape),
        shape=shape,
    )
    return w.cast(product, scale.data_type)


@rule("quantize_linear")
def quantize_linear(w: Writer, input: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    shape, data_type = w.result.shape, zero_point.data_type
    native = _native(w, scale, zero_point, input.shape)
    if w.careful and native is not None and (
        "block_size" in native[2] or input.data_type != "float32"
    ):
        native = None  # ONNX Runtime makes infinities the lowest number here
    if native is not None and data_type in ("int8", "uint8"):
        flat, zero, attributes = native
        if w.careful:
            # NaN becomes 0, which ONNX does not define.
            nan = w.op("IsNaN", input, data_type="bool")
            input = w.select(nan, w.scalar(0, input), input)
        return w.op(
            "QuantizeLinear", input, flat, zero, shape=shape, data_type=data_type, **attributes
        )
    x, divisor = w.cast(input, "float32"), _spread(w, w.cast(scale, "float32"), shape)
    steps = w.op("Round", w.op("Div", x, divisor, shape=shape))
    steps = w.select(w.op("IsNaN", steps, data_type="bool"), w.scalar(0, steps), steps)
    # Limited, so that every sum is exact.
    steps = w.op("Clip", steps, w.scalar(-(2.0**33), steps), w.scalar(2.0**33, steps))
    zero = _spread(w, w.cast(zero_point, "int64"), shape)
    whole = w.op("Add", w.cast(steps, "int64"), zero, shape=shape)
    limits = np.iinfo(data_type)
    return w.cast(w.between(whole, limits.min, limits.max), data_type)
