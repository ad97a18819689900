"""Comparisons and logic with uint8 results, 0 or 1 (§8.9.14)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..types.data_types import ALL_TYPES, FLOAT_TYPES
from .lowering import Elementwise
from .unary import elementwise


def _logical(
    name: str, doc: str, types: tuple[str, ...], expression: str,
    reference: Callable[..., np.ndarray], *operands: str,
) -> None:
    lowering = Elementwise(expression)
    elementwise("§8.9.14", name, doc, types, lowering, reference, operands, output="uint8")


for _name, _doc, _function, _reference in (
    ("equal", "1 where a = b; NaN equals nothing.", "w_eq", np.equal),
    ("not_equal", "1 where a ≠ b; NaN differs from everything.", "w_ne", np.not_equal),
    ("greater", "1 where a > b; 0 where either is NaN.", "w_gt", np.greater),
    ("greater_or_equal", "1 where a ≥ b; 0 where either is NaN.", "w_ge", np.greater_equal),
    ("lesser", "1 where a < b; 0 where either is NaN.", "w_lt", np.less),
    ("lesser_or_equal", "1 where a ≤ b; 0 where either is NaN.", "w_le", np.less_equal),
):
    _expression = f"w_bool({_function}({{a}}, {{b}}))"
    _logical(_name, _doc, ALL_TYPES, _expression, _reference, "a", "b")

for _name, _doc, _function, _reference in (
    ("logical_and", "1 where neither operand is 0.", "w_and", np.logical_and),
    ("logical_or", "1 where an operand is not 0.", "w_or", np.logical_or),
    ("logical_xor", "1 where exactly one operand is 0.", "w_xor", np.logical_xor),
):
    _expression = f"{_function}({{a}}, {{b}})"
    _logical(_name, _doc, ("uint8",), _expression, _reference, "a", "b")

# spec: element-wise logical operations, steps 4 and 5 (in the table: "given in the steps")
for _name, _doc, _types, _expression, _reference in (
    ("logical_not", "1 where the operand is 0.", ("uint8",), "w_not({a})", np.logical_not),
    ("is_nan", "1 where the operand is NaN.", FLOAT_TYPES, "w_bool(w_is_nan({a}))", np.isnan),
    ("is_infinite", "1 where the operand is infinite.", FLOAT_TYPES, "w_bool(w_is_inf({a}))",
     np.isinf),
):
    _logical(_name, _doc, _types, _expression, _reference, "a")
