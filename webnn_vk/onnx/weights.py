"""TensorProto → arrays, without a copy where the bytes lie as NumPy wants them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from webnn_vk.support.errors import sanitize
from webnn_vk.support.mmap_array import mapped_real_file

from .embedded import OWN_FILE
from .errors import InvalidModelError, Unsupported
from .types import numpy_type, type_name

#: Several elements share a byte in these; ONNX's own helper unpacks them.
_PACKED = {
    TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT4E2M1,
    *(getattr(TensorProto, name) for name in ("INT2", "UINT2") if hasattr(TensorProto, name)),
}


class ExternalData:
    """Files with weights beside a model: mapped into memory, never read outside ``folder``, but for
    links to blobs in the Hugging Face Hub's cache."""

    def __init__(self, folder: Path | None, own: np.ndarray | None = None) -> None:
        self._folder = folder
        self._files: dict[str, np.ndarray] = {} if own is None else {OWN_FILE: own}

    def view(self, tensor: TensorProto, length: int) -> np.ndarray:
        """``length`` read-only bytes of a tensor that is stored externally."""
        entries = {e.key: e.value for e in tensor.external_data}
        what = _described(tensor)
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
        try:
            target = _found(self._folder.resolve(), location)
        except (OSError, RuntimeError, ValueError):
            raise InvalidModelError(f"{what}: no file {shown!r} beside the model") from None
        if target is None or not target.is_file():
            raise InvalidModelError(
                f"{what}: {shown!r} is outside of the model's folder or no plain file; refused"
            )
        try:
            self._files[location] = mapped_real_file(target)
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidModelError(f"{what}: {shown!r} can't be read: {reason}") from None
        return self._files[location]


def _found(folder: Path, location: str) -> Path | None:
    """What a location in a folder leads to, without links: a path in the folder, or where that is
    at or below ``DIR/snapshots/REVISION``, as the Hub's cache has it, one in ``DIR/blobs`` itself.
    None for other places."""
    if os.path.isabs(location):
        return None
    path = folder / location
    target = path.resolve(strict=True)
    if target.is_relative_to(folder):
        return target
    caches = (d.parent.parent for d in (folder, *folder.parents) if d.parent.name == "snapshots")
    cache = next(caches, None)
    linked = path.parent.resolve(strict=True).is_relative_to(folder)
    return target if cache is not None and linked and target.parent == cache / "blobs" else None


def to_array(tensor: TensorProto, external: ExternalData) -> np.ndarray:
    """The tensor's elements, read-only. InvalidModelError when its bytes don't fit its shape,
    Unsupported for a data type without arrays."""
    what, name = _described(tensor), type_name(tensor.data_type)
    shape = _shape(tensor, what)
    size = math.prod(shape)
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


def to_words(tensor: TensorProto) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The shape of a tensor of strings, and these. InvalidModelError if there are more or fewer."""
    what = _described(tensor)
    shape, words = _shape(tensor, what), tensor.string_data
    if len(words) != math.prod(shape):
        raise InvalidModelError(
            f"{what}: {len(words)} strings, {list(shape)} needs {math.prod(shape)}"
        )
    return shape, tuple(word.decode("utf-8", "replace") for word in words)


def _described(tensor: TensorProto) -> str:
    return f"tensor {sanitize(str(tensor.name))!r}"


def _shape(tensor: TensorProto, what: str) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    # Without its zeros too, NumPy has to be able to count a shape's elements.
    if any(d < 0 for d in shape) or len(shape) > 64 or math.prod(d or 1 for d in shape) > 1 << 58:
        raise InvalidModelError(f"{what}: shape {list(shape)[:16]} is invalid")
    if tensor.HasField("segment"):
        raise InvalidModelError(f"{what}: segments are no longer part of ONNX")
    return shape


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
