"""The text of ``help()`` for a builder method, from its operator's record."""

from __future__ import annotations

from ..types.data_types import ALL_TYPES, MAX_RANK
from .record import Like, Operator


def method_help(record: Operator) -> str:
    """The record's docstring; data types and ranks of operands and outputs; errors; section."""
    names = [p.name for p in record.operands]
    outputs = [name for name in record.limits if name not in names]
    result = "a list of MLOperands" if record.many else "an MLOperand"
    return "\n".join([
        record.doc,
        "",
        *(f"    {name}: {_limits(record, name)}" for name in names),
        "",
        f"Returns {result}, at once: nothing is computed before ``build``.",
        "",
        *(f"    {name}: {_limits(record, name)}" for name in outputs),
        "",
        "Raises TypeError, with operator and ``[label]``, for operands and options that don't fit;",
        "InvalidStateError after ``build()`` and when the context is lost.",
        f"Specification: {record.section}.",
    ])


def _limits(record: Operator, name: str) -> str:
    row, limit = record.limits[name], record.limit(name)
    if isinstance(row, Like):
        types = f"as {row.operand}"
        if row.rank is None:
            return types
    else:
        types = "any data type" if set(limit.types) == set(ALL_TYPES) else ", ".join(limit.types)
    low, high = limit.rank
    if (low, high) == (0, MAX_RANK):
        return f"{types}; any rank"
    return f"{types}; rank {low}" if low == high else f"{types}; rank {low} … {high}"
