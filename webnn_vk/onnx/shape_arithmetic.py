"""Arithmetic with sizes that are known at dispatch: what models compute of their inputs' shapes.

A tensor that holds such sizes (``Tensor.sizes``) is an array of objects: numbers, and sizes that
behave as numbers and remember how they were computed (``compiler.types.sizes``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.program.symbolic import lower_bound, upper_bound
from webnn_vk.compiler.types.sizes import Size

from . import folding
from .nodes import NodeCall
from .types import type_name

#: Elements of a table of numbers from which a size is read as data.
_MAX_TABLE = 1 << 20

#: Single floats hold all integers up to this.
_EXACT = 1 << 24
#: Operators that only move elements.
_MOVES = {
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze",
}


def _divided(a: Any, b: Any) -> Any:
    """Rounded towards zero."""
    if a >= 0 and b > 0:
        return a // b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


class Scaled:
    """A size times a single float, or divided by an integer: a float that is rounded later."""

    def __init__(self, size: Any, factor: float | None, divisor: int | None) -> None:
        self.size, self.factor, self.divisor = size, factor, divisor

    def __floor__(self) -> Any:
        if self.divisor is not None:
            return self.size // self.divisor  # singles never round up to the next integer here
        return self.size.scaled(self.factor)

    def __ceil__(self) -> Any:
        if self.divisor is None:
            raise _NoForm
        return -(-self.size // self.divisor)


class _NoForm(Exception):
    """There is no expression for a float's value."""


def _exact(value: Any) -> Any:
    """A number, or a size that single floats hold exactly."""
    if isinstance(value, Scaled):
        raise _NoForm
    if isinstance(value, Size):
        if max(abs(lower_bound(value)), abs(upper_bound(value))) > _EXACT:
            raise _NoForm
        return value
    return int(value) if float(value).is_integer() and abs(value) <= _EXACT else float(value)


def _of_floats(name: str, *given: Any) -> Any:
    """Arithmetic of floats of which one is a size at least; _NoForm where it isn't exact."""
    first = given[0]
    if name in ("Floor", "Ceil"):
        rounded = math.floor if name == "Floor" else math.ceil
        return rounded(first) if isinstance(first, Scaled) else _exact(first)
    a, b = map(_exact, given)
    if name == "Div":
        if isinstance(b, int) and b > 0 and isinstance(a, Size) and lower_bound(a) >= 0:
            return Scaled(a, None, b)
        raise _NoForm
    if name == "Mul" and (isinstance(a, float) or isinstance(b, float)):
        size, factor = (b, a) if isinstance(a, float) else (a, b)
        if factor > 0 and lower_bound(size) >= 0:
            return Scaled(size, float(np.float32(factor)), None)
        raise _NoForm
    if isinstance(a, float) or isinstance(b, float):
        raise _NoForm
    return _exact(_ELEMENTWISE[name](a, b))


_FLOATS = {"Add", "Sub", "Mul", "Div", "Floor", "Ceil"}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b,
    "Div": _divided, "Neg": lambda a: -a, "Abs": abs,
    "Max": max, "Min": min, "Where": lambda condition, a, b: a if condition else b,
    "Equal": lambda a, b: a == b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b,
    "LessOrEqual": lambda a, b: a <= b, "GreaterOrEqual": lambda a, b: a >= b,
}
_REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "ReduceProd": math.prod, "ReduceSum": sum, "ReduceMax": max, "ReduceMin": min,
}
_COMPARISONS = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}


def evaluate(
    node: NodeCall, types: Sequence[str], inputs: Sequence[np.ndarray | None]
) -> list[tuple[str, np.ndarray]] | None:
    """The data types and values of the node's outputs, for inputs some of which hold sizes; None
    where the operator has no such arithmetic."""
    name, given = node.operator, [x for x in inputs if x is not None]
    if node.domain != "" or not given:
        return None
    kind = types[1] if name == "Where" else types[0]
    if name in _MOVES:
        moved = _moved(node, inputs)
        return None if moved is None else [(kind, x) for x in moved]
    if name == "Cast":
        target = type_name(node.attributes["to"])
        if target not in ("int64", "int32", "float32"):
            return None
        if target == "float32" and kind == "float32":
            return [(target, given[0])]
        change = _exact if target == "float32" else _whole
        return _changed(target, change, given[0])
    if kind == "float32" and name in _FLOATS:
        return _changed(kind, partial(_of_floats, name), *given)
    if kind not in ("int64", "int32", "bool"):
        return None
    if name == "Mod" and not node.attributes.get("fmod", 0):
        return _changed(kind, lambda a, b: a % b, *given)
    if name in _ELEMENTWISE and (len(given) < 3 or name == "Where"):
        return _changed("bool" if name in _COMPARISONS else kind, _ELEMENTWISE[name], *given)
    if name in _REDUCTIONS and len(given) == 1 and given[0].ndim == 1 and "axes" not in (
        node.attributes
    ):
        made = np.empty((1,) if node.attributes.get("keepdims", 1) else (), object)
        made[...] = _REDUCTIONS[name](given[0].tolist())
        return [(kind, made)]
    return None


def _whole(value: Any) -> Any:
    """A float as an integer, rounded towards zero; integers as they are."""
    return math.floor(value) if isinstance(value, Scaled) else value


def _changed(
    kind: str, change: Callable[..., Any], *given: np.ndarray
) -> list[tuple[str, np.ndarray]] | None:
    """The results of a function, element by element."""
    try:
        made = np.frompyfunc(change, len(given), 1)(*(x.astype(object) for x in given))
    except _NoForm:
        return None
    return [(kind, np.asarray(made, object))]


def _moved(
    node: NodeCall, inputs: Sequence[np.ndarray | None]
) -> list[np.ndarray] | None:
    """Elements moved as ONNX's reference implementation moves their numbers."""
    data = len(inputs) if node.operator == "Concat" else 1
    elements: list[Any] = []
    numbers: list[np.ndarray] = []
    for x in inputs[:data]:
        if x is None:
            return None
        numbers.append(np.arange(len(elements), len(elements) + x.size).reshape(x.shape))
        elements += x.reshape(-1).tolist()
    if any(x is not None and x.dtype.kind == "O" for x in inputs[data:]):
        return None
    try:
        made = folding.run(node, [*numbers, *inputs[data:]])
    except Exception:
        return None  # the operator's function says what is wrong
    table = np.empty(len(elements), object)
    table[:] = elements
    return [np.asarray(table[x], object) for x in made]


def has_sizes(values: Any) -> bool:
    """Whether an array, or a sequence, has an element that is known only at dispatch."""
    items = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else values
    return any(isinstance(item, (Size, Scaled)) for item in items)


def table_length(size: Any) -> int | None:
    """Elements of a table of 0, 1, 2 … that a size is read from; None for one that is too large."""
    if isinstance(size, Size) and size.trace.interval(size.terms)[0] < 0:
        return None
    length = upper_bound(size) + 1
    return length if 0 < length <= _MAX_TABLE else None


def window(length: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """The first and last bound of Python's slice ``start:end`` of ``length`` elements."""
    ends = []
    for place in (start, end):
        if place < 0:
            place = place + length
        ends.append(0 if place < 0 else length if place > length else place)
    return ends[0], max(ends[1], ends[0])
