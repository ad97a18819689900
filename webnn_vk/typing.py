"""Types for type checkers: descriptors, options and enumerations (extension).

The options are made from the operator records, as the builder's methods are; type checkers read
typing.pyi.
"""

# ruff: noqa: F401  (imported names are exported, or stand in annotations)

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from .api.builder import MLOperand
from .api.navigator import MLPowerPreference
from .compiler.ops import OPERATORS, Operator
from .compiler.types.data_types import DataTypeLike, MLOperandDataType
from .compiler.types.dimensions import MLDynamicDimension


class MLOperandDescriptorDict(TypedDict):
    """A mapping in place of an MLOperandDescriptor."""

    data_type: DataTypeLike
    shape: Sequence[int]


class MLDynamicDimensionDict(TypedDict):
    """A mapping in place of an MLDynamicDimension (experimental "dynamic-shapes")."""

    name: str
    max_size: int
    min_size: NotRequired[int]


class MLInputOperandDescriptorDict(TypedDict):
    """A mapping that describes an input, maybe with named dimensions."""

    data_type: DataTypeLike
    shape: Sequence[int | MLDynamicDimension | MLDynamicDimensionDict]


class MLTensorDescriptorDict(MLOperandDescriptorDict, total=False):
    """A mapping in place of an MLTensorDescriptor."""

    readable: bool
    writable: bool
    importable_to_web_gpu: bool


def _options_name(record: Operator) -> str:
    """The IDL's name of an operator's options, if it has one for each operator."""
    return f"ML{''.join(word.capitalize() for word in record.name.split('_'))}Options"


def _options(record: Operator) -> Any:
    """The options of an operator, for `**` in a call."""
    parameters = record.signature().parameters.values()
    keywords = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    made: Any = TypedDict(_options_name(record), keywords, total=False)  # type: ignore[misc]
    made.__doc__ = f"Of `{record.name}`."
    return made


globals().update((_options_name(record), _options(record)) for record in OPERATORS.values())
__all__ = sorted([
    "DataTypeLike", "MLDynamicDimension", "MLDynamicDimensionDict",
    "MLInputOperandDescriptorDict", "MLOperandDataType", "MLOperandDescriptorDict",
    "MLPowerPreference", "MLTensorDescriptorDict", *map(_options_name, OPERATORS.values()),
])
