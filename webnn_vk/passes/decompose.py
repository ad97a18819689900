"""Decomposition: composite operators become the operators that their records name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..graph import Emitter, Graph, Node
from ..ops.lowering import Decompose
from .rewrite import Substitution


def decompose(graph: Graph, keep: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph without composite nodes, except those for which ``keep`` is true (operators
    forced to the CPU have a reference of their own)."""
    known = Substitution()
    nodes: list[Node] = []
    pending = list(reversed(graph.nodes))
    while pending:
        node = known.apply(pending.pop())
        lowering = node.operator.lowering
        if not isinstance(lowering, Decompose) or keep(node):
            nodes.append(node)
            continue
        emit = Emitter(node.label)
        made = lowering.expand(emit, node.gather(lambda v: v), node.arguments, node.results)
        made = (made,) if len(node.outputs) == 1 and not isinstance(made, (list, tuple)) else made
        for old, new in zip(node.outputs, made, strict=True):
            if old.descriptor != new.descriptor:
                raise ValueError(
                    f"{node.title} decomposes to {new.descriptor}, not {old.descriptor}"
                )
            known[old] = new
        # What it decomposes to may be composite in turn.
        pending.extend(reversed(emit.nodes))
    outputs = {name: known.get(v) for name, v in graph.outputs.items()}
    return replace(graph, outputs=outputs, nodes=tuple(nodes))
