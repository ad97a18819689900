"""Arithmetic with sizes that are known at dispatch: what models compute of their inputs' shapes.

A tensor that holds such sizes (``Tensor.sizes``) is an array of objects: numbers, and sizes that
behave as numbers and remember how they were computed (``compiler.types.sizes``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from webnn_vk.compiler.program.symbolic import upper_bound
from webnn_vk.compiler.types.sizes import Size

from . import folding
from .nodes import NodeCall
from .types import type_name

#: Elements of a table of numbers from which a size is read as data.
_MAX_TABLE = 1 << 20

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
        return [(target, given[0])] if target in ("int64", "int32") else None
    if kind not in ("int64", "int32", "bool"):
        return None
    if name in _ELEMENTWISE and (len(given) < 3 or name == "Where"):
        made = np.frompyfunc(_ELEMENTWISE[name], len(given), 1)(*(x.astype(object) for x in given))
        return [("bool" if name in _COMPARISONS else kind, np.asarray(made, object))]
    if name in _REDUCTIONS and len(given) == 1 and given[0].ndim == 1 and "axes" not in (
        node.attributes
    ):
        made = np.empty((1,) if node.attributes.get("keepdims", 1) else (), object)
        made[...] = _REDUCTIONS[name](given[0].tolist())
        return [(kind, made)]
    return None


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
    return any(isinstance(item, Size) for item in items)


def alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal for all sizes, without a decision about them."""
    return len(a) == len(b) and all(
        x.terms == y.terms if isinstance(x, Size) and isinstance(y, Size)
        else not isinstance(x, Size) and not isinstance(y, Size) and x == y
        for x, y in zip(a, b, strict=True)
    )


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
