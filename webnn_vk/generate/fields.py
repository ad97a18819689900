"""Fields of a model's description, checked as they are taken; arguments that are numbers."""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Mapping
from numbers import Real
from typing import Any

import numpy as np

from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError, UnsupportedModelError

#: No model has a tenth of this.
MOST_LAYERS = 10_000


def real(name: str, value: Any, expected: str) -> float:
    """An argument as a float, infinite beyond the largest. TypeError if it is no number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} is {_shown(value)}; {expected} is expected")
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def whole(name: str, value: Any) -> int:
    """An argument as an integer from 0 on, of any size. TypeError if it is no number, ValueError
    for others."""
    expected = "an integer ≥ 0"
    number = real(name, value, expected)
    if not hasattr(value, "__index__") or number < 0:
        raise ValueError(f"{name} is {_shown(value)}; {expected} is expected")
    return operator.index(value)


class Fields:
    """Fields by name. Each method takes one; ``finish`` complains about the others. In messages,
    names follow ``where``. ``prefix``: of all names."""

    def __init__(self, fields: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self._fields = {name: value for name, value in fields.items() if name.startswith(prefix)}
        self._where, self._prefix = where, prefix

    def take(self, name: str, default: Any = None) -> Any:
        """The field, whatever it is."""
        value = self._fields.pop(self._prefix + name, None)
        return default if value is None else value

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.take(name, default)
        if type(value) is not int or not 0 < value < 2**31:
            raise self.wrong(name, value, "a positive integer")
        return value

    def layers(self, name: str) -> int:
        """A number of layers, for which lists are made before the weights are looked for."""
        value = self.count(name)
        if value > MOST_LAYERS:
            raise self.wrong(name, value, f"a number up to {MOST_LAYERS}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self.take(name, default)
        if type(value) not in (int, float) or not 1e-30 < value < 1e12:
            raise self.wrong(name, value, "a positive number")
        return float(value)

    def optional(self, name: str, default: float) -> float:
        """A positive number; 0 for none, as the field says with null."""
        value = self._fields.pop(self._prefix + name, default or None)
        if value is None:
            return 0.0
        self._fields[self._prefix + name] = value
        return self.number(name)

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.take(name, default)
        if type(value) is not bool:
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str | None:
        """A text; None if there is no such field."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, value, "a text")
        return value

    def only(self, name: str, *values: Any) -> None:
        """The field is absent or has one of the values that are implemented."""
        value = self.take(name)
        # (True is 1 for Python.)
        if value is not None and (isinstance(value, np.ndarray) or not any(
            value == known and isinstance(value, bool) == isinstance(known, bool)
            for known in values
        )):
            raise UnsupportedModelError(
                f"{self._where}{self._prefix}{name} = {_shown(value)} is not supported"
            )

    def finish(self, architecture: str, ignored: Container[str] = ()) -> None:
        """UnsupportedModelError for a field that was not taken, except those without influence."""
        start = len(self._prefix)
        unknown = sorted(name for name in self._fields if name[start:] not in ignored)
        if unknown:
            raise UnsupportedModelError(
                f"{self._where}unknown field {sanitize(unknown[0])[:80]!r} for {architecture}"
            )

    def wrong(self, name: str, value: Any, expected: str) -> InvalidModelError:
        """The error for a value that is not what is expected."""
        return InvalidModelError(
            f"{self._where}{self._prefix}{name} is {_shown(value)}; {expected} is expected"
        )


def _shown(value: Any) -> str:
    if isinstance(value, (list, np.ndarray)):
        return f"an array of {len(value)}"
    try:
        return sanitize(repr(value))[:80]
    except ValueError:  # Python writes 4,300 digits at most
        return "a number of more digits"
