"""Markers for an operator's parameters: the conversion of Python arguments to the IDL's values.

An operator's validation function is annotated with these; a plain default of None means that the
member is absent. Wrong values raise TypeError, never ValueError or OverflowError (api.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from ..types.data_types import (
    is_sequence,
    items,
    shown,
    to_bool,
    to_data_type,
    to_i32,
    to_shape,
    to_u32,
)
from ..types.dimensions import MLDynamicDimension, known_number


class Argument:
    """Base of the markers: ``convert`` checks and normalises; ``python`` is the type for
    signatures. ``sized``: integers that may be computed from named dimensions."""

    python = "Any"
    sized = False

    def convert(self, value: Any, what: str) -> Any:
        raise TypeError(f"{what}: not convertible")


class Operand(Argument):
    """An MLOperand."""

    python = "MLOperand"


class Operands(Operand):
    """A sequence of MLOperands."""

    python = "Sequence[MLOperand]"


@dataclass(frozen=True)
class Converted(Argument):
    """A value that the function ``convert`` checks and normalises."""

    python: str
    convert: Callable[[Any, str], Any]
    sized: bool = False


def _to_number(value: Any, what: str) -> int | float:
    """MLNumber: an integer of any size or an unrestricted double."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what}: a number is expected, not a bool ({value})")
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    raise TypeError(f"{what}: a number is expected, not {type(value).__name__} {shown(value)}")


def _to_double(value: Any, what: str) -> float:
    """A finite double."""
    try:
        number = float(_to_number(value, what))
    except OverflowError:
        raise TypeError(f"{what}: {shown(value)} is too large for a double") from None
    if not math.isfinite(number):
        raise TypeError(f"{what}: a finite number is expected, not {number}")
    return number


def _to_size(value: Any, what: str) -> int:
    """``unsigned long``, or a size of the builder's dimensions."""
    if isinstance(value, MLDynamicDimension):
        raise TypeError(f"{what}: dimension {sanitize(value.name)!r}: no input has it")
    return to_u32(value, what)


def _to_sizes(value: Any, what: str) -> tuple[int, ...]:
    return to_shape(value, what, _to_size)


def _to_u32_or_shape(value: Any, what: str) -> int | tuple[int, ...]:
    """``(unsigned long or sequence<unsigned long>)``: a count, or a tuple of sizes."""
    if is_sequence(value) and not isinstance(value, (str, bytes)):
        return _to_sizes(value, what)
    return _to_size(known_number(value, what), what)


U32, Shape = Converted("int", _to_size, True), Converted("Sequence[int]", _to_sizes, True)
I32 = Converted("int", to_i32, True)
U32OrShape = Converted("int | Sequence[int]", _to_u32_or_shape, True)
Bool, DataTypeName = Converted("bool", to_bool), Converted("DataTypeLike", to_data_type)
Number, Double = Converted("int | float", _to_number), Converted("float", _to_double)


@dataclass(frozen=True)
class Enum(Argument):
    """One of the IDL enumeration's strings."""

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", values)

    @property
    def python(self) -> str:  # type: ignore[override]
        return f"Literal[{', '.join(map(repr, self.values))}]"

    def convert(self, value: Any, what: str) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise TypeError(f"{what}: {shown(value)} is not one of {', '.join(self.values)}")
        return self.values[self.values.index(value)]  # not a subclass of str


@dataclass(frozen=True)
class SequenceOf(Argument):
    """A sequence of another kind, as a tuple."""

    item: Argument

    @property
    def sized(self) -> bool:  # type: ignore[override]
        return self.item.sized

    @property
    def python(self) -> str:  # type: ignore[override]
        return f"Sequence[{self.item.python}]"

    def convert(self, value: Any, what: str) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)) or not is_sequence(value):
            given = f"{type(value).__name__} {shown(value)}"
            raise TypeError(f"{what}: a sequence is expected, not {given}")
        return tuple(self.item.convert(v, f"{what}[{i}]") for i, v in enumerate(items(value, what)))
