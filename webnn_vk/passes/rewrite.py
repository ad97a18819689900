"""What rewriting passes share: replacing values in the nodes that read them."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Node, Value


class Substitution(dict[Value, Value]):
    """Old value → new value; ``apply`` gives a node that reads the new ones."""

    def get(self, value: Value) -> Value:  # type: ignore[override]
        while value in self:
            value = self[value]
        return value

    def apply(self, node: Node) -> Node:
        if not any(v in self for v in node.inputs):
            return node
        return replace(node, operands={k: self.get(v) for k, v in node.operands.items()})
