"""Dead-code removal: nodes that no output depends on."""

from __future__ import annotations

from ..ir import Graph
from .pipeline import Pass


def remove_dead_code(graph: Graph) -> Graph:
    """The graph without nodes whose results are never used. All inputs stay."""
    live = set(graph.outputs.values())
    kept = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.inputs)
            kept.append(node)
    if len(kept) == len(graph.nodes):
        return graph
    return Graph(graph.inputs, graph.outputs, tuple(reversed(kept)))


# Required, since later passes assume that every node is needed.
DEAD_CODE = Pass("dead_code", lambda graph, compilation: remove_dead_code(graph), required=True)
