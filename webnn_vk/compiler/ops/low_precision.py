"""Elements of low-precision types and their carriers (`types/data_types.py`): compiler operators,
introduced by `passes/legalize.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..types.data_types import LOW_PRECISION, MLOperandDescriptor
from .arguments import Enum, Operand
from .lowering import Elementwise
from .record import Check, Limits, compiler_operator

_FLOATS = Enum(*(t.name for t in LOW_PRECISION.values() if t.kind == "f"))
_INTEGERS = Enum(*(t.name for t in LOW_PRECISION.values() if t.kind != "f"))
_CARRIERS = ("bits16", "uint8")
#: Bits of the mantissa, the bias of the exponent, and the largest number of 8-bit floats.
_FLOAT8 = {"float8e4m3": (3, 7, 448.0), "float8e5m2": (2, 15, 57344.0)}


def _decode(
    operands: Mapping[str, MLOperandDescriptor],
    output: MLOperandDescriptor,
    arguments: Mapping[str, Any],
) -> str:
    if arguments["data_type"] == "bfloat16":
        return "uintBitsToFloat({input} << 16)"
    mantissa, bias, _ = _FLOAT8[arguments["data_type"]]
    # float16 has e5m2's exponents, and e4m3's shifted by 8: its numbers and denormals are exact.
    if mantissa == 2:
        return "w_half_to_float({input} << 8)"
    half = "(({input} & 0x80u) << 8) | (({input} & 0x7fu) << 7)"
    nan = "({input} & 0x7fu) == 0x7fu"
    return f"({nan} ? uintBitsToFloat(0x7fc00000u) : w_half_to_float({half}) * {2.0**(15 - bias)})"


@compiler_operator(input=Limits(_CARRIERS), output=Limits(("float32",)))
def decode(check: Check, input: Operand, *, data_type: _FLOATS) -> MLOperandDescriptor:
    """The float32 value of elements of ``data_type`` in their carrier, exactly."""
    carrier = LOW_PRECISION[data_type].carrier
    check.that(
        input.data_type == carrier,
        f"input is {input}; {carrier} is expected for {data_type}",
    )
    return MLOperandDescriptor("float32", input.shape)


decode.lowers_to(Elementwise(variants=_decode, flops=4))


@decode.reference(promotes=False)
def _(out: MLOperandDescriptor, input: np.ndarray, data_type: str) -> np.ndarray:
    return input.view(LOW_PRECISION[data_type].numpy).astype(np.float32)


def _encode(
    operands: Mapping[str, MLOperandDescriptor],
    output: MLOperandDescriptor,
    arguments: Mapping[str, Any],
) -> str:
    name = {"bfloat16": "w_to_bfloat16", "float8e4m3": "w_to_float8e4m3"}
    return f"{name.get(arguments['data_type'], 'w_to_float8e5m2')}({{input}})"


@compiler_operator(input=Limits(("float32",)), output=Limits(_CARRIERS))
def encode(check: Check, input: Operand, *, data_type: _FLOATS) -> MLOperandDescriptor:
    """Elements of ``data_type`` next to float32 values, ties to even, in their carrier. 8-bit
    floats saturate: what is out of range becomes the largest number of the type, as do infinities.
    NaN stays NaN."""
    return MLOperandDescriptor(LOW_PRECISION[data_type].carrier, input.shape)


encode.lowers_to(Elementwise(variants=_encode, flops=8))


@encode.reference(promotes=False)
def _(out: MLOperandDescriptor, input: np.ndarray, data_type: str) -> np.ndarray:
    to = LOW_PRECISION[data_type].numpy
    if data_type in _FLOAT8:
        *_, largest = _FLOAT8[data_type]
        input = np.clip(input, -largest, largest)
    return np.asarray(input).astype(to).view(out.numpy_dtype)


def _range4(data_type: str) -> str:
    return "bitfieldExtract(int({0}), 0, 4)" if data_type == "int4" else "({0} & 15u)"


@compiler_operator(input=Limits(("int8", "uint8")), output=Limits(("int8", "uint8")))
def low_bits(
    check: Check, input: Operand, *, data_type: _INTEGERS, shift: Enum("0", "4") = "0"
) -> MLOperandDescriptor:
    """The four bits of each element from ``shift`` on, as a number of ``data_type`` in its
    carrier."""
    return MLOperandDescriptor(LOW_PRECISION[data_type].carrier, input.shape)


low_bits.lowers_to(
    Elementwise(
        variants=lambda operands, output, arguments: _range4(arguments["data_type"]).format(
            f"(uint({{input}}) >> {arguments['shift']}u)"
        ),
        flops=2,
    )
)


@low_bits.reference(promotes=False)
def _(
    out: MLOperandDescriptor, input: np.ndarray, data_type: str, shift: str
) -> np.ndarray:
    bits = (input.view(np.uint8) >> int(shift)) & 15
    return (bits.view(np.int8) ^ 8) - np.int8(8) if data_type == "int4" else bits


@compiler_operator(
    low=Limits(("int8", "uint8")), high=Limits(("int8", "uint8")), output=Limits(("uint8",))
)
def join_bits(check: Check, low: Operand, high: Operand) -> MLOperandDescriptor:
    """Bytes of the low four bits of both operands."""
    return MLOperandDescriptor("uint8", check.broadcast(low=low, high=high))


join_bits.lowers_to(
    Elementwise("((uint({low}) & 15u) | ((uint({high}) & 15u) << 4))", flops=4)
)


@join_bits.reference(promotes=False)
def _(out: MLOperandDescriptor, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    return (low.view(np.uint8) & 15) | (high.view(np.uint8) << 4)
