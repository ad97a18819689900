"""Data types: ONNX's, as names of NumPy (and ml_dtypes) types, and how WebNN carries them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from webnn_vk.compiler.types.data_types import DATA_TYPES
from webnn_vk.support.mmap_array import own_copy

from .errors import Unsupported

#: Types that WebNN lacks and the type that holds all their values.
CARRIERS = {
    "bool": "uint8",
    "bfloat16": "float32",
    "float64": "float32",
    "int16": "int32",
    "uint16": "uint32",
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
}
#: Carried types whose arithmetic would need the narrower type's rounding or overflow.
STORAGE_ONLY = frozenset({
    "int16", "uint16", "int4", "uint4", "int2", "uint2", "float8_e4m3fn", "float8_e5m2",
})
#: ONNX types that WebNN has in contexts with "low-precision" (experimental), and its names. Of
#: bfloat16 only casts round so; it is computed in float32.
NATIVE = {
    "float8_e4m3fn": "float8e4m3", "float8_e5m2": "float8e5m2", "int4": "int4", "uint4": "uint4",
}
_OF_NATIVE = {native: name for name, native in NATIVE.items()}


def type_name(elem_type: int) -> str:
    """The NumPy name of ``TensorProto.DataType``; Unsupported when there is none."""
    if elem_type == TensorProto.STRING:
        return "string"
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name
    except (KeyError, TypeError, ValueError):
        raise Unsupported(f"data type {elem_type} is unknown") from None


def carrier(name: str, narrow_double: bool, low_precision: bool = False) -> str:
    """The WebNN data type that carries values of an ONNX type; Unsupported when none does."""
    if name in DATA_TYPES:
        return name
    if low_precision and name in NATIVE:
        return NATIVE[name]
    if name == "float64" and not narrow_double:
        raise Unsupported("double is no WebNN type; narrow_double=True computes it in float32")
    if name not in CARRIERS:
        raise Unsupported(f"{name} is no WebNN type, and no WebNN type holds its arithmetic")
    return CARRIERS[name]


def to_carrier(array: np.ndarray, data_type: str) -> np.ndarray:
    """An array converted to the type that carries it: contiguous, without a copy if it can."""
    if array.dtype.name != data_type and NATIVE.get(array.dtype.name) != data_type:
        with np.errstate(over="ignore", invalid="ignore"):
            array = array.astype(data_type)
    array = np.asarray(array)  # the builder would read a np.memmap later
    return array if array.flags.c_contiguous else own_copy(array)


def numpy_type(name: str) -> np.dtype:
    """NumPy's type of a name, types of ml_dtypes and WebNN's names of these included."""
    name = _OF_NATIVE.get(name, name)
    return np.dtype(getattr(ml_dtypes, name, name))
