"""MLOperand: a tensor in the graph being built (§8.6)."""

from __future__ import annotations

from typing import Any

from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.types.data_types import MLOperandDescriptor, is_sequence, items
from webnn_vk.compiler.types.dimensions import shown_dimension
from webnn_vk.support.mixins import OneOfAKind, PublicDir
from webnn_vk.support.promise import kind_of

from .operand_arithmetic import Arithmetic


class MLOperand(PublicDir, OneOfAKind, Arithmetic):
    """A tensor in the graph being built (§8.6).

    Python's operators call the builder's methods (extension): ``+ - * / ** @``, unary minus,
    ``< <= > >=``. A number on either side becomes a constant of the operand's data type. ``==`` and
    ``!=`` compare identity, and an operand has no truth value (TypeError)."""

    # The builder owns the value and drops it when the graph is built, so that an operand that
    # outlives the build keeps neither constants nor nodes alive.
    __slots__ = ("_builder", "_descriptor", "_number", "_title")

    def __init__(
        self, builder: Any, descriptor: MLOperandDescriptor, number: int, title: str
    ) -> None:
        self._title = title
        self._builder = builder
        self._descriptor = descriptor
        self._number = number

    @property
    def _value(self) -> Value:
        return self._builder._values[self._number]

    @property
    def data_type(self) -> str:
        """The data type's name."""
        return self._descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements; those that are known at dispatch as MLDynamicDimension."""
        shape = self._descriptor.shape
        return shape if self._builder._computes_sizes else tuple(map(shown_dimension, shape))

    def __repr__(self) -> str:
        return f"<MLOperand {self._title}: {self._descriptor}>"


def to_operands(value: Any, many: bool, what: str) -> Any:
    if many:
        if not is_sequence(value):
            raise TypeError(f"{what}: a sequence of operands is expected")
        return [to_operands(v, False, f"{what}[{i}]") for i, v in enumerate(items(value, what))]
    if not isinstance(value, MLOperand):
        raise TypeError(f"{what}: an MLOperand is expected, not {kind_of(value)}")
    return value
