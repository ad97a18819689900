"""TensorProto → arrays, without a copy where the bytes lie as NumPy wants them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from webnn_vk.support.errors import sanitize
from webnn_vk.support.mmap_array import mapped_file

from .embedded import OWN_FILE
from .errors import InvalidModelError, Unsupported
from .types import numpy_type, type_name

#: Several elements share a byte in these; ONNX's own helper unpacks them.
_PACKED = {
    TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1,
    *(getattr(TensorProto, name) for name in ("INT2", "UINT2") if hasattr(TensorProto, name)),
}


class ExternalData:
    """Files with weights beside a model: mapped into memory, never read outside ``folder``."""

    def __init__(self, folder: Path | None, own: np.ndarray | None = None) -> None:
        self._folder = folder
        self._files: dict[str, np.ndarray] = {} if own is None else {OWN_FILE: own}

    def view(self, tensor: TensorProto, length: int) -> np.ndarray:
        """``length`` read-only bytes of a tensor that is stored externally."""
        entries = {e.key: e.value for e in tensor.external_data}
        what = f"tensor {sanitize(str(tensor.name))!r}"
        if not all(isinstance(text, str) for entry in entries.items() for text in entry):
            raise InvalidModelError(f"{what}: where its data lies is not valid UTF-8")
        data = self._open(entries.get("location", ""), what)
        try:
            offset = int(entries.get("offset", "0"))
            stored = int(entries.get("length", str(length)))
        except ValueError:
            raise InvalidModelError(f"{what}: offset or length of its data is no number") from None
        if stored != length:
            raise InvalidModelError(f"{what}: {stored} bytes are stored, {length} are needed")
        if offset < 0 or offset + length > data.size:
            raise InvalidModelError(
                f"{what}: bytes {offset} … {offset + length} are past the end of its file, which "
                f"has {data.size}"
            )
        return data[offset : offset + length]

    def _open(self, location: str, what: str) -> np.ndarray:
        if location in self._files:
            return self._files[location]
        shown = sanitize(location)[:200]
        if self._folder is None:
            raise InvalidModelError(
                f"{what}: its data is in the file {shown!r}; load the model by its path"
            )
        if not location or "\0" in location:
            raise InvalidModelError(f"{what}: the file of its data has no name")
        folder = self._folder.resolve()
        path = folder / location
        try:
            inside = not os.path.isabs(location) and path.resolve(strict=True).is_relative_to(
                folder
            )
        except (OSError, RuntimeError, ValueError):
            raise InvalidModelError(f"{what}: no file {shown!r} beside the model") from None
        if not inside or not path.is_file():
            raise InvalidModelError(
                f"{what}: {shown!r} is outside of the model's folder or no plain file; refused"
            )
        try:
            self._files[location] = mapped_file(path)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidModelError(f"{what}: {shown!r} can't be read: {reason}") from None
        return self._files[location]


def to_array(tensor: TensorProto, external: ExternalData) -> np.ndarray:
    """The tensor's elements, read-only. InvalidModelError when its bytes don't fit its shape,
    Unsupported for a data type without arrays."""
    what = f"tensor {sanitize(str(tensor.name))!r}"
    name = type_name(tensor.data_type)
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape) or len(shape) > 64:
        raise InvalidModelError(f"{what}: shape {list(shape)[:16]} is invalid")
    size = math.prod(shape)
    if tensor.HasField("segment"):
        raise InvalidModelError(f"{what}: segments are no longer part of ONNX")
    if name == "string":
        raise Unsupported("strings are no WebNN data")
    packed = tensor.data_type in _PACKED
    dtype = numpy_type(name)
    bits = 2 if name.endswith("int2") else 4
    length = -(-size * bits // 8) if packed else size * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        raw: Any = external.view(tensor, length)
    elif tensor.HasField("raw_data"):
        raw = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        raw = None
    if raw is not None and raw.size != length:
        raise InvalidModelError(f"{what}: {raw.size} bytes, {list(shape)} needs {length}")
    try:
        if raw is None:
            # Elements in a field of their type; never more than the file has.
            array = _from_fields(tensor, size, what)
        elif packed:
            array = numpy_helper.to_array(
                TensorProto(data_type=tensor.data_type, dims=shape, raw_data=raw.tobytes())
            )
        else:
            array = raw.view(dtype.newbyteorder("<")).reshape(shape)
            if dtype.newbyteorder("<") != dtype:
                array = array.astype(dtype)
    except (ValueError, TypeError) as error:
        raise InvalidModelError(f"{what}: {error}") from error
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def _from_fields(tensor: TensorProto, size: int, what: str) -> np.ndarray:
    fields = (
        tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data,
        tensor.uint64_data,
    )
    stored = max(len(f) for f in fields)
    # Complex numbers take two, packed types share one; NumPy's reshape has the exact say.
    if stored > 2 * size or (size > 8 * stored and size):
        raise InvalidModelError(f"{what}: {stored} elements, {size} are needed")
    return np.asarray(numpy_helper.to_array(tensor))
