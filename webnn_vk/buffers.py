"""Buffers that users hand over: checked against a descriptor, seen as bytes (§8.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .data_types import MLOperandDescriptor


def as_bytes(data: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    """``data`` as a flat uint8 array, a view where its memory is contiguous (§8.3, "validate
    buffer with descriptor").

    A byte view fits every data type, a uint16 array float16 and an integer array the integers of
    its width (all as raw bits); otherwise the element type has to match, and the byte length
    always. Raises TypeError.
    """
    array = _checked_type(data, descriptor, what)
    if array.nbytes != descriptor.byte_length:
        raise TypeError(
            f"{what}: {array.nbytes} bytes (shape {list(array.shape)}) where {descriptor} has "
            f"{descriptor.byte_length}"
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _checked_type(data: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    array = _as_array(data, what)
    if array.dtype == object:
        raise TypeError(f"{what}: a buffer of numbers is expected, not {type(data).__name__}")
    expected = descriptor.numpy_dtype
    fits = (
        array.dtype == expected
        or array.dtype == np.uint8
        or (descriptor.data_type == "float16" and array.dtype == np.uint16)
        # The web-platform-tests write a Uint32Array to an int32 tensor.
        or (array.dtype.kind in "iu" and expected.kind in "iu"
            and array.itemsize == expected.itemsize)
    )
    if not fits:
        raise TypeError(
            f"{what}: elements are {array.dtype}, {expected} (or bytes) are expected "
            f"for {descriptor}"
        )
    return array


def writable_bytes(output: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    """The first bytes of ``output`` as a flat writable uint8 view of the caller's own memory.

    TypeError where it is read-only, not contiguous, of another element type or too small. A larger
    buffer is filled in part, as the web-platform-tests expect it.
    """
    array = _checked_type(output, descriptor, what)
    if not array.flags.writeable:
        raise TypeError(f"{what}: the buffer is read-only")
    if not array.flags.c_contiguous:
        raise TypeError(f"{what}: the buffer is not contiguous")
    if array.nbytes < descriptor.byte_length:
        raise TypeError(
            f"{what}: {array.nbytes} bytes (shape {list(array.shape)}) are too few for "
            f"{descriptor}, which has {descriptor.byte_length}"
        )
    return array.reshape(-1).view(np.uint8)[: descriptor.byte_length]


def _as_array(data: Any, what: str) -> np.ndarray:
    if isinstance(data, (np.ndarray, np.generic)):
        return np.asarray(data)
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"{what}: an object with the buffer protocol is expected (a NumPy array, bytes, "
            f"array.array), not {type(data).__name__}"
        ) from None
    if not view.c_contiguous:
        raise TypeError(f"{what}: the buffer is not contiguous")
    try:
        return np.asarray(view)
    except (ValueError, BufferError) as error:
        raise TypeError(f"{what}: {error}") from None
