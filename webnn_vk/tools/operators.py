"""The table of supported operators, made from their records."""

from __future__ import annotations

from webnn_vk.compiler.ops.record import OPERATORS, Operator
from webnn_vk.compiler.types.data_types import ALL_TYPES


def table() -> str:
    """A Markdown table of operators by the data types of their operands."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(OPERATORS):
        rows.setdefault(_types(OPERATORS[name]), []).append(f"`{name}`")
    lines = ["| data types | operators |", "| --- | --- |"]
    for types in sorted(rows, key=lambda types: (-len(types), types)):
        shown = "all eight" if set(types) == set(ALL_TYPES) else ", ".join(types)
        lines.append(f"| {shown} | {' '.join(rows[types])} |")
    return "\n".join(lines)


def listing() -> dict[str, dict[str, list[str]]]:
    """Data types by operator and operand."""
    return {
        name: {
            operand: [t for t in ALL_TYPES if t in OPERATORS[name].limit(operand).types]
            for operand in OPERATORS[name].limits
        }
        for name in sorted(OPERATORS)
    }


def _types(operator: Operator) -> tuple[str, ...]:
    allowed = {t for operand in operator.operands for t in operator.limit(operand.name).types}
    return tuple(name for name in ALL_TYPES if name in allowed)
