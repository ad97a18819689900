"""Buffers given by users: checks against a descriptor, and conversion to bytes (§8.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np

from webnn_vk.support.errors import reason
from webnn_vk.support.promise import MLPromise

from .data_types import LOW_PRECISION, MLOperandDescriptor, bits_of, integer_range, shown


def as_bytes(
    data: Any, descriptor: MLOperandDescriptor, what: str, *, in_place: bool = False
) -> np.ndarray:
    """``data`` as a flat uint8 array, a view if its memory is contiguous (§8.3, "validate buffer
    with descriptor").

    An array of more than one dimension has to have the descriptor's shape. bytes, bytearrays and
    uint8 arrays of one dimension fit every data type, a uint16 array fits float16 and an integer
    array fits integers of its width (all as raw bits); otherwise the element type has to match. The
    byte length always has to match. Beyond the IDL: a bool array fits uint8, and numbers or
    (nested) lists of numbers are converted to the descriptor's type if it can hold them, but not
    with ``in_place``, when the caller needs the memory itself. Elements of all types have to be in
    the machine's byte order. Raises TypeError.
    """
    if _is_numbers(data) and not in_place:
        data = _converted(data, descriptor, what)
    array = _checked_type(data, descriptor, what)
    if array.ndim > 1 and array.shape != descriptor.shape:
        raise TypeError(
            f"{what}: {_described(array)} where {descriptor} is expected"
            f"{_other_order(array.shape, descriptor.shape)}"
        )
    array = _packed(array, descriptor)
    if array.nbytes != descriptor.byte_length:
        raise TypeError(
            f"{what}: {_described(array)}, {array.nbytes} bytes, where {descriptor} has "
            f"{descriptor.byte_length}"
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _packed(array: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
    """Elements of 4 bits, two to a byte, the first in the low bits; other arrays as they are."""
    if bits_of(descriptor.data_type) != 4 or array.dtype != descriptor.numpy_dtype:
        return array
    flat = np.zeros(-(-array.size // 2) * 2, np.uint8)
    flat[: array.size] = array.reshape(-1).view(np.uint8) & 15
    return flat[::2] | (flat[1::2] << 4)


def is_exactly(data: Any, descriptor: MLOperandDescriptor) -> bool:
    """Whether ``data`` is an aligned, contiguous array of the descriptor's type and shape."""
    return (
        type(data) is np.ndarray and data.dtype == descriptor.numpy_dtype
        and data.shape == descriptor.shape and data.flags.c_contiguous and data.flags.aligned
    )


def _described(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _is_numbers(data: Any) -> bool:
    return isinstance(data, (list, tuple, int, float)) and not isinstance(data, np.generic)


def _converted(data: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    """Numbers as an array of the descriptor's type. TypeError for numbers that an integer type
    can't hold: only the numbers of scalar constants are cast."""
    low = LOW_PRECISION.get(descriptor.data_type)
    expected = descriptor.numpy_dtype if low is None else np.dtype(_WIDER[low.kind])
    try:
        # The type of an empty or mixed list is undefined; integers beyond 64 bits become objects.
        array = np.asarray(data, expected if expected.kind == "f" else None)
        # A list with numbers from both halves of uint64 becomes float64, which can't hold them;
        # objects can.
        exact = np.asarray(data, None if expected.kind == "f" else object)
    except Exception as error:  # of an object in the list too
        raise TypeError(f"{what}: no array of {descriptor.data_type}: {reason(error)}") from error
    if expected.kind == "f":
        if exact.dtype.kind not in "biuf":
            raise TypeError(f"{what}: numbers are expected for {descriptor}")
        return array.astype(descriptor.numpy_dtype, copy=False)
    if array.dtype.kind == "b" and expected == np.uint8:
        return array.view(np.uint8)
    limits = integer_range(descriptor.data_type)
    for number in exact.flat:
        if not _fits(number, *limits):
            raise TypeError(
                f"{what}: {shown(number)} is no {descriptor.data_type} "
                f"({limits[0]} … {limits[1]})"
            )
    return exact.astype(expected).astype(descriptor.numpy_dtype)


#: Types that NumPy converts numbers to, by the kind of low-precision type.
_WIDER = {"f": "float32", "i": "int8", "u": "uint8"}


def _fits(number: Any, low: int, high: int) -> bool:
    return (
        isinstance(number, (int, float, np.integer, np.floating))
        and not isinstance(number, bool)
        and low <= number <= high
        and number == int(number)
    )


#: Layouts by the permutation from the expected layout.
_LAYOUTS = {
    (0, 2, 3, 1): "NHWC for NCHW, or OHWI for OIHW",
    (0, 3, 1, 2): "NCHW for NHWC, or OIHW for OHWI",
    (2, 3, 1, 0): "HWIO for OIHW",
    (3, 2, 0, 1): "OIHW for HWIO",
    (1, 2, 3, 0): "HWIO for OHWI",
    (3, 0, 1, 2): "OHWI for HWIO",
    (1, 2, 0): "HWC for CHW",
    (2, 0, 1): "CHW for HWC",
    (0, 2, 1): "NWC for NCW, or the last two dimensions transposed",
}


def _other_order(given: Sequence[int], expected: Sequence[int]) -> str:
    """A hint for the message if the array has the same dimensions in another order, or the same
    number of elements."""
    if sorted(given) != sorted(expected):
        same = np.prod(given, dtype=object) == np.prod(expected, dtype=object)
        hint = "; as many elements: reshape it if they are in that order"
        return hint if same else ""
    rank = len(given)
    last = (*range(rank - 2), rank - 1, rank - 2)
    known = [*(p for p in _LAYOUTS if len(p) == rank), last, tuple(reversed(range(rank)))]
    for order in (*known, *permutations(range(rank))):
        if tuple(expected[axis] for axis in order) == tuple(given):
            break
    name = _LAYOUTS.get(order)
    if name is None:
        name = "transposed" if order in known else "the same dimensions in another order"
    back = tuple(order.index(axis) for axis in range(rank))
    return f"; it looks like {name}: np.transpose(array, {back}) has the shape"


def _checked_type(data: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    array = _as_array(data, what)
    if array.dtype.hasobject:
        raise TypeError(f"{what}: a buffer of numbers is expected, not {type(data).__name__}")
    check_byte_order(array, what)
    expected = descriptor.numpy_dtype
    if array.dtype == np.bool_ and descriptor.data_type == "uint8":
        return array.view(np.uint8)
    fits = (
        array.dtype == expected
        or (array.dtype == np.uint8 and array.ndim <= 1)
        or (descriptor.data_type in ("float16", "bfloat16") and array.dtype == np.uint16)
        # The web-platform-tests write a Uint32Array to an int32 tensor.
        or (array.dtype.kind in "iu" and expected.kind in "iu"
            and array.itemsize == expected.itemsize)
    )
    if not fits:
        raise TypeError(
            f"{what}: elements are {array.dtype}, {expected} (or bytes) are expected "
            f"for {descriptor}; given is {_described(array)}, which array.astype("
            f"{'ml_dtypes' if descriptor.data_type in LOW_PRECISION else 'np'}.{expected}) "
            "converts"
        )
    return array


def check_byte_order(array: np.ndarray, what: str) -> None:
    """TypeError unless the elements are in the machine's byte order: functions that use an array's
    bytes neither swap them nor accept swapped bytes as raw bits."""
    if not array.dtype.isnative:
        raise TypeError(
            f"{what}: elements are {array.dtype.str!r}, not in this machine's byte order: "
            f"array.astype({array.dtype.name!r}) converts them, array.view(np.uint8) gives the "
            "raw bytes"
        )


def writable_bytes(output: Any, descriptor: MLOperandDescriptor, what: str) -> np.ndarray:
    """The first bytes of ``output`` as a flat writable uint8 view of the caller's own memory.

    TypeError where it is read-only, not contiguous, of another element type or too small, or has
    more than one dimension and not the descriptor's shape. A larger flat buffer is filled in part,
    as the web-platform-tests expect it.
    """
    array = _checked_type(output, descriptor, what)
    if bits_of(descriptor.data_type) == 4 and array.dtype != np.uint8:
        raise TypeError(f"{what}: {descriptor} has two elements a byte; a uint8 array is expected")
    if not array.flags.writeable:
        raise TypeError(f"{what}: the buffer is read-only")
    if not array.flags.c_contiguous:
        raise TypeError(f"{what}: the buffer is not contiguous")
    if array.ndim > 1 and array.shape != descriptor.shape:
        raise TypeError(
            f"{what}: an output {_described(array)} for {descriptor}; it has to be of that shape, "
            "or flat"
        )
    if array.nbytes < descriptor.byte_length:
        raise TypeError(
            f"{what}: {array.nbytes} bytes (shape {list(array.shape)}) are too few for "
            f"{descriptor}, which has {descriptor.byte_length}"
        )
    return array.reshape(-1).view(np.uint8)[: descriptor.byte_length]


def _as_array(data: Any, what: str) -> np.ndarray:
    if isinstance(data, (np.ndarray, np.generic)):
        return np.asarray(data)
    if isinstance(data, MLPromise):
        raise TypeError(f"{what}: an array is expected, not {data.hint}")
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(
            f"{what}: an object with the buffer protocol is expected (a NumPy array, bytes, "
            f"array.array), not {type(data).__name__}"
        ) from None
    except Exception as error:  # released, closed, or what an object of the caller's raises
        raise _unusable(data, error, what) from error
    if not view.c_contiguous:
        raise TypeError(f"{what}: the buffer is not contiguous")
    try:
        return np.asarray(view)
    except Exception as error:  # a format that NumPy doesn't know: ValueError, NotImplementedError
        raise _unusable(data, error, what) from error


def _unusable(data: Any, error: Exception, what: str) -> TypeError:
    return TypeError(f"{what}: the {type(data).__name__} gives no buffer: {reason(error)}")
