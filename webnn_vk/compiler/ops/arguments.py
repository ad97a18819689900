"""Markers for an operator's parameters: the conversion of Python arguments to the IDL's values.

An operator's validation function is annotated with these; a plain default of None means that the
member is absent. Wrong values raise TypeError, never ValueError or OverflowError (api.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

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


class Argument:
    """Base of the markers: ``convert`` checks and normalises; ``python`` is the type for
    signatures."""

    python = "Any"

    def convert(self, value: Any, what: str) -> Any:
        raise TypeError(f"{what}: not convertible")


class Operand(Argument):
    """An MLOperand."""

    python = "MLOperand"


class Operands(Operand):
    """A sequence of MLOperands."""

    python = "Sequence[MLOperand]"


class _U32(Argument):
    python = "int"
    convert = staticmethod(to_u32)


class _I32(Argument):
    python = "int"
    convert = staticmethod(to_i32)


class _Shape(Argument):
    python = "Sequence[int]"
    convert = staticmethod(to_shape)


class _DataType(Argument):
    python = "DataTypeLike"
    convert = staticmethod(to_data_type)


class _Bool(Argument):
    python = "bool"
    convert = staticmethod(to_bool)


class _Number(Argument):
    """MLNumber: an integer of any size or an unrestricted double."""

    python = "int | float"

    def convert(self, value: Any, what: str) -> int | float:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{what}: a number is expected, not a bool ({value})")
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, (float, np.floating)):
            return float(value)
        raise TypeError(f"{what}: a number is expected, not {type(value).__name__} {shown(value)}")


class _Double(_Number):
    """A finite double."""

    python = "float"

    def convert(self, value: Any, what: str) -> float:
        try:
            number = float(super().convert(value, what))
        except OverflowError:
            raise TypeError(f"{what}: {shown(value)} is too large for a double") from None
        if not math.isfinite(number):
            raise TypeError(f"{what}: a finite number is expected, not {number}")
        return number


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
        return value


@dataclass(frozen=True)
class SequenceOf(Argument):
    """A sequence of another kind, as a tuple."""

    item: Argument

    @property
    def python(self) -> str:  # type: ignore[override]
        return f"Sequence[{self.item.python}]"

    def convert(self, value: Any, what: str) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)) or not is_sequence(value):
            given = f"{type(value).__name__} {shown(value)}"
            raise TypeError(f"{what}: a sequence is expected, not {given}")
        return tuple(self.item.convert(v, f"{what}[{i}]") for i, v in enumerate(items(value, what)))


class _U32OrShape(Argument):
    """``(unsigned long or sequence<unsigned long>)``: an int, or a tuple of ints."""

    python = "int | Sequence[int]"

    def convert(self, value: Any, what: str) -> int | tuple[int, ...]:
        if is_sequence(value) and not isinstance(value, (str, bytes)):
            return to_shape(value, what)
        return to_u32(value, what)


U32, I32, Shape, DataTypeName = _U32(), _I32(), _Shape(), _DataType()
Bool, Number, Double, U32OrShape = _Bool(), _Number(), _Double(), _U32OrShape()
