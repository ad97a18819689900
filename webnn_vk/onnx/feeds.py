"""The arrays that users feed a model: checked against its inputs, converted without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from webnn_vk.support.errors import reason, sanitize

from .errors import Problem, UnsupportedModelError
from .importing import NO_TENSORS
from .reading import Port, shown
from .types import numpy_type


def checked(
    ports: Mapping[str, Port], optional: Mapping[str, Port], feeds: Any
) -> dict[str, np.ndarray]:
    """An array for each input, and for each of the ``optional`` ones that is given. ValueError
    that says what was fed and what is expected; UnsupportedModelError for an input that is no
    tensor of numbers."""
    if not isinstance(feeds, Mapping):
        raise ValueError(
            f"feeds: arrays by input name are expected, not {type(feeds).__name__}; "
            f"the inputs are {described(ports)}"
        )
    missing = [n for n in ports if n not in feeds]
    extra = [n for n in feeds if n not in ports and n not in optional]
    if missing or extra:
        raise ValueError(
            f"feeds lack {[sanitize(n) for n in missing]}, and have unknown "
            f"{[sanitize(str(n)) for n in extra]}; the inputs are {described(ports)}"
        )
    return {n: _array(ports.get(n) or optional[n], value) for n, value in feeds.items()}


def described(ports: Mapping[str, Port]) -> str:
    """Ports with types and shapes, for messages."""
    return ", ".join(f"{sanitize(p.name)!r} {_type_of(p)}" for p in ports.values()) or "none"


def _type_of(port: Port) -> str:
    if port.shape is None:
        return f"{port.type} of any shape"
    return port.type + shown(port.shape)


def _array(port: Port, value: Any) -> np.ndarray:
    what = f"input {sanitize(port.name)!r}"
    if port.type in NO_TENSORS:
        why = f"its type is {port.type}; WebNN has tensors of numbers"
        raise UnsupportedModelError([Problem(port.name, "input", why)])
    try:
        given = np.asarray(value)
    except Exception as error:  # of an object that says it is an array, too
        raise ValueError(f"{what}: no array: {reason(error)}; {_type_of(port)} is expected") from (
            error
        )
    array = given
    try:
        expected = numpy_type(port.type)
    except TypeError:
        expected = given.dtype  # the import says what is wrong with the type
    if given.dtype != expected:
        numbers = isinstance(value, (list, tuple, int, float)) and not isinstance(value, np.generic)
        converted = _converted(given, expected, numbers)
        if converted is None:
            raise ValueError(
                f"{what}: {given.dtype}{list(given.shape)} is given, {_type_of(port)} is expected, "
                f"or what becomes {port.type} without loss; array.astype({port.type!r}) rounds"
            )
        array = converted
    if not port.fits(array.shape):
        raise ValueError(
            f"{what}: {array.dtype}{list(array.shape)} is given, {_type_of(port)} is expected"
        )
    return array


def _converted(given: np.ndarray, expected: np.dtype, numbers: bool) -> np.ndarray | None:
    """The array in another type; None where that may lose something. ``numbers``: they are
    Python's, which have no type of their own: floats are rounded."""
    if given.dtype.kind not in "biufV" or given.dtype.hasobject:
        return None
    to_float = expected.kind == "f" or expected.name == "bfloat16"
    if not given.size and numbers:
        return given.astype(expected)  # NumPy calls an empty list one of floats
    if numbers and to_float:
        with np.errstate(over="ignore"):
            return given.astype(expected)
    if numbers and expected.kind in "iu" and given.dtype.kind in "iuf":
        limits = np.iinfo(expected)
        if not all(limits.min <= n <= limits.max for n in given.reshape(-1).tolist()):
            return None
    elif not np.can_cast(given.dtype, expected, "safe"):
        return None
    with np.errstate(invalid="ignore"):
        made = given.astype(expected)
        # Integers of 64 bits are "safe" as doubles, for NumPy.
        exact = given.dtype.kind == "b" or np.array_equal(
            made.astype(given.dtype), given, equal_nan=given.dtype.kind == "f"
        )
    return made if exact else None
