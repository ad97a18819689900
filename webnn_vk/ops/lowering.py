"""How an operator is computed on a device, as plain data.

Four kinds are enough for the whole draft; kernels and passes read them, nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Elementwise:
    """A GLSL expression for one output element.

    ``expression`` names operands and numeric arguments in braces: ``"w_add({a}, {b})"``. Operands
    stand for values of their arithmetic type, numbers are passed as parameters of the first
    operand's arithmetic type. ``variants`` replaces the expression
    when it depends on arguments or data types: called with (descriptors by operand name,
    output descriptor, arguments), it returns an expression. Operands broadcast to the output.
    """

    expression: str = ""
    variants: Callable[[Mapping[str, Any], Any, Mapping[str, Any]], str] | None = None
    # Operands that are blockwise broadcast (each dimension divides the output's).
    blockwise: tuple[str, ...] = ()
    flops: int = 1


@dataclass(frozen=True)
class View:
    """The output has the input's elements in the same order: no work, a shared buffer."""


@dataclass(frozen=True)
class Kernel:
    """Computed by the kernel family of that name; the family reads operands and arguments."""

    family: str


@dataclass(frozen=True)
class Decompose:
    """Expressed by other operators: ``expand(emit, operands, arguments, outputs)`` returns the
    output values; ``emit`` offers every operator as a method."""

    expand: Callable[..., Any]


Lowering = Elementwise | View | Kernel | Decompose
