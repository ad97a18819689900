"""The format's names: operators and options in the IDL's spelling, identifiers, data types."""

from __future__ import annotations

import re
from collections.abc import Iterable

from webnn_vk.compiler.ops import OPERATORS, Operator
from webnn_vk.compiler.ops.record import Parameter

#: The format's names for the data types.
SHORT_TYPES = {
    "float32": "f32", "float16": "f16", "int32": "i32", "uint32": "u32", "int64": "i64",
    "uint64": "u64", "int8": "i8", "uint8": "u8",
}
LONG_TYPES = {short: name for name, short in SHORT_TYPES.items()}
#: Types of the format that the WebNN draft has no more.
FOUR_BITS = {"i4": "int4", "u4": "uint4"}

#: Where capitals don't begin words.
_ODD = {"is_nan": "isNaN", "gather_nd": "gatherND", "scatter_nd": "scatterND"}
#: rustnn's name of an argument where it is not the IDL's.
_RUSTNN = {("cast", "data_type"): "to"}

_IDENTIFIER = re.compile(r"[A-Za-z_/$][A-Za-z0-9_./]*")
#: A reference that begins like these is read as the literal by the format's grammar.
_LITERALS = ("true", "false", "null")


def camel(name: str) -> str:
    """The IDL's spelling of one of our names: ``conv_transpose2d`` is ``convTranspose2d``."""
    first, *words = name.split("_")
    return _ODD.get(name) or first + "".join(w[:1].upper() + w[1:] for w in words)


OPERATOR_NAMES = {camel(name): operator for name, operator in OPERATORS.items()}


def option_name(operator: Operator, parameter: Parameter) -> str:
    """The name of an operator's parameter in files."""
    return _RUSTNN.get((operator.name, parameter.name)) or camel(parameter.name)


def parameters(operator: Operator) -> dict[str, Parameter]:
    """An operator's parameters by every name that a file may use for them."""
    named = {camel(p.name): p for p in operator.parameters}
    return named | {option_name(operator, p): p for p in operator.parameters}


def is_identifier(name: str) -> bool:
    """Whether a name can stand in a file as it is."""
    return _IDENTIFIER.fullmatch(name) is not None and not name.startswith(_LITERALS)


class Identifiers:
    """Identifiers for names, each given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def claim(self, name: str) -> str:
        """The name as it is if it can be, or else one that resembles it."""
        if is_identifier(name) and name not in self._taken:
            self._taken.add(name)
            return name
        stem = re.sub(r"[^A-Za-z0-9_]", "_", name)[:64]
        if not is_identifier(stem):
            stem = f"_{stem}"
        return self.fresh(f"{stem}_")

    def fresh(self, stem: str) -> str:
        """``stem`` with the next number."""
        number = self._next.get(stem, 0)
        while f"{stem}{number}" in self._taken:
            number += 1
        self._next[stem] = number + 1
        self._taken.add(f"{stem}{number}")
        return f"{stem}{number}"


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)
