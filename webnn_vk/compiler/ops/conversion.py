"""Conversion between data types, quantisation, selection (§8.9.7, §8.9.16, §8.9.17, §8.9.56)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..types.data_types import (
    ALL_TYPES,
    DATA_TYPES,
    FLOAT_TYPES,
    QUANTIZED_TYPES,
    MLOperandDescriptor,
)
from .arguments import DataTypeName, Operand
from .lowering import Elementwise
from .record import Check, Like, Limits, operator

_CASTS = {
    "float32": "w_to_float({input})",
    "float16": "w_to_half_float({input})",
    "int32": "w_to_int({input})",
    "uint32": "w_to_uint({input})",
    "int64": "w_to_i64({input})",
    "uint64": "w_to_u64({input})",
    "int8": "w_wrap_int8(w_to_int({input}))",
    "uint8": "w_wrap_uint8(w_to_uint({input}))",
}


# The output's types are the table's, not the input's.
@operator("§8.9.7", input=Limits(ALL_TYPES), output=Limits(ALL_TYPES))
def cast(check: Check, input: Operand, data_type: DataTypeName) -> MLOperandDescriptor:
    """Each element converted to ``data_type``.

    Integers keep their low bits. Floats converted to integers lose their fraction, keep the low
    bits of the whole part if it is out of range, and become 0 if NaN or infinite. Numbers converted
    to floats are rounded to nearest even.
    """
    return MLOperandDescriptor(data_type, input.shape)


cast.lowers_to(
    Elementwise(
        variants=lambda operands, output, arguments: "{input}"
        if operands["input"].data_type == output.data_type
        else _CASTS[output.data_type],
        converts=True,
    )
)


@cast.reference(promotes=False)
def _(out: MLOperandDescriptor, input: np.ndarray, data_type: str) -> np.ndarray:
    to = DATA_TYPES[data_type].numpy
    if input.dtype.kind != "f" or to.kind == "f":
        return input.astype(to)
    whole = np.trunc(np.where(np.isfinite(input), input, 0).astype(np.float64))
    # Modulo 2^64 by exact float arithmetic: C leaves the conversion undefined.
    whole = np.fmod(whole, 2.0**64)
    magnitude = np.abs(whole).astype(np.uint64)
    bits = np.where(whole < 0, np.uint64(0) - magnitude, magnitude)
    return bits.astype(to)


@operator(
    "§8.9.56",
    condition=Limits(("uint8",)),
    true_value=Limits(ALL_TYPES),
    false_value=Like("true_value"),
    output=Like("true_value"),
)
def where(
    check: Check, condition: Operand, true_value: Operand, false_value: Operand
) -> MLOperandDescriptor:
    """``true_value`` where ``condition`` is not 0, ``false_value`` elsewhere; all broadcast."""
    check.same_type(true_value=true_value, false_value=false_value)
    shape = check.broadcast(
        true_value=true_value, false_value=false_value, condition=condition
    )
    return MLOperandDescriptor(true_value.data_type, shape)


where.lowers_to(Elementwise("({condition} != 0u ? {true_value} : {false_value})"))


@where.reference(promotes=False)
def _(
    out: MLOperandDescriptor,
    condition: np.ndarray,
    true_value: np.ndarray,
    false_value: np.ndarray,
) -> np.ndarray:
    return np.where(condition != 0, true_value, false_value)


def _check_blocks(
    check: Check,
    input: MLOperandDescriptor,
    scale: MLOperandDescriptor,
    zero_point: MLOperandDescriptor,
) -> None:
    given = f"input is {input}, scale {scale}, zero_point {zero_point}"
    # spec: dequantizeLinear and quantizeLinear, steps 7 to 10
    check.that(
        scale.rank == input.rank == zero_point.rank, f"{given}; the same rank is required"
    )
    check.that(
        scale.shape == zero_point.shape, f"{given}; scale and zero_point need the same shape"
    )
    check.that(
        all(i % s == 0 for i, s in zip(input.shape, scale.shape, strict=True)),
        f"{given}; scale's dimensions have to divide the input's",
    )


def _expand_blocks(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    for axis, size in enumerate(shape):
        if array.shape[axis] != size:
            array = np.repeat(array, size // array.shape[axis], axis)
    return array


def _dequantize(
    operands: Mapping[str, MLOperandDescriptor],
    output: MLOperandDescriptor,
    arguments: Mapping[str, Any],
) -> str:
    if DATA_TYPES[operands["input"].data_type].size == 1:
        return "w_mul(w_to_float(w_to_int({input}) - w_to_int({zero_point})), {scale})"
    # The difference of two 32-bit integers is exact in 64 bits.
    difference = "w_sub(w_to_i64({input}), w_to_i64({zero_point}))"
    return f"w_mul(w_to_float({difference}), {{scale}})"


@operator(
    "§8.9.16",
    input=Limits(QUANTIZED_TYPES),
    scale=Limits(FLOAT_TYPES),
    zero_point=Like("input"),
    output=Like("scale"),
)
def dequantize_linear(
    check: Check, input: Operand, scale: Operand, zero_point: Operand
) -> MLOperandDescriptor:
    """(input - zero_point) * scale; scale and zero_point have one element per block of the input:
    their dimensions divide the input's."""
    check.same_type(input=input, zero_point=zero_point)
    _check_blocks(check, input, scale, zero_point)
    return MLOperandDescriptor(scale.data_type, input.shape)


dequantize_linear.lowers_to(
    Elementwise(variants=_dequantize, blockwise=("scale", "zero_point"), flops=2)
)


@dequantize_linear.reference
def _(
    out: MLOperandDescriptor, input: np.ndarray, scale: np.ndarray, zero_point: np.ndarray
) -> np.ndarray:
    zero = _expand_blocks(zero_point, out.shape).astype(np.int64)
    return (input.astype(np.int64) - zero) * _expand_blocks(scale, out.shape).astype(np.float64)


def _quantize(
    operands: Mapping[str, MLOperandDescriptor],
    output: MLOperandDescriptor,
    arguments: Mapping[str, Any],
) -> str:
    limits = np.iinfo(output.numpy_dtype)
    to = "w_to_int" if DATA_TYPES[output.data_type].kind == "i" else "w_to_uint"
    quotient = "w_round_even(w_div({input}, {scale}))"
    # Limited before the addition, so that every sum is exact; NaN converts to 0.
    if DATA_TYPES[output.data_type].size == 1:
        steps = f"w_to_int(w_min(w_max({quotient}, -1048576.0), 1048576.0))"
        low, high = f"{limits.min}", f"{limits.max}"
        zero = "w_to_int({zero_point})"
    else:
        steps = f"w_to_i64(w_min(w_max({quotient}, -8589934592.0), 8589934592.0))"
        zero = "w_to_i64({zero_point})"
        bits = [int(v) & (2**64 - 1) for v in (limits.min, limits.max)]
        low, high = (f"w_from_bits({zero}, {b & 0xFFFFFFFF}u, {b >> 32}u)" for b in bits)
    return f"{to}(w_min(w_max(w_add({steps}, {zero}), {low}), {high}))"


@operator(
    "§8.9.17",
    input=Limits(FLOAT_TYPES),
    scale=Like("input"),
    zero_point=Limits(QUANTIZED_TYPES),
    output=Like("zero_point"),
)
def quantize_linear(
    check: Check, input: Operand, scale: Operand, zero_point: Operand
) -> MLOperandDescriptor:
    """round_even(input / scale) + zero_point, limited to the range of zero_point's type; scale and
    zero_point have one element per block of the input: their dimensions divide the input's."""
    check.same_type(input=input, scale=scale)
    _check_blocks(check, input, scale, zero_point)
    return MLOperandDescriptor(zero_point.data_type, input.shape)


quantize_linear.lowers_to(
    Elementwise(variants=_quantize, blockwise=("scale", "zero_point"), flops=4)
)


@quantize_linear.reference
def _(
    out: MLOperandDescriptor, input: np.ndarray, scale: np.ndarray, zero_point: np.ndarray
) -> np.ndarray:
    steps = np.rint(input / _expand_blocks(scale, out.shape)).astype(np.float64)
    limits = np.iinfo(out.numpy_dtype)
    # Limited first: an infinite quotient saturates, NaN becomes 0.
    steps = np.nan_to_num(np.clip(steps, -(2.0**33), 2.0**33), nan=0.0).astype(np.int64)
    zero = _expand_blocks(zero_point, out.shape).astype(np.int64)
    return np.clip(steps + zero, limits.min, limits.max)
