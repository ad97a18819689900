"""Data types: ONNX's, as names of NumPy (and ml_dtypes) types, and how WebNN carries them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from webnn_vk.compiler.types.data_types import DATA_TYPES

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
STORAGE_ONLY = frozenset({"int16", "uint16", "int4", "uint4", "int2", "uint2"})


def type_name(elem_type: int) -> str:
    """The NumPy name of ``TensorProto.DataType``; Unsupported when there is none."""
    if elem_type == TensorProto.STRING:
        return "string"
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type)).name
    except (KeyError, TypeError, ValueError):
        raise Unsupported(f"data type {elem_type} is unknown") from None


def carrier(name: str, narrow_double: bool) -> str:
    """The WebNN data type that carries values of an ONNX type; Unsupported when none does."""
    if name in DATA_TYPES:
        return name
    if name == "float64" and not narrow_double:
        raise Unsupported("double is no WebNN type; narrow_double=True computes it in float32")
    if name not in CARRIERS:
        raise Unsupported(f"{name} is no WebNN type, and no WebNN type holds its arithmetic")
    return CARRIERS[name]


def to_carrier(array: np.ndarray, data_type: str) -> np.ndarray:
    """An array converted to the type that carries it: contiguous, without a copy if it can."""
    if array.dtype.name != data_type:
        with np.errstate(over="ignore", invalid="ignore"):
            array = array.astype(data_type)
    return np.ascontiguousarray(array).reshape(array.shape)


def numpy_type(name: str) -> np.dtype:
    """NumPy's type of a name, types of ml_dtypes included."""
    return np.dtype(getattr(ml_dtypes, name, name))
