"""Dead-code removal: nodes that no output depends on."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from webnn_vk.support.topological import needed_nodes

from ..ir import Graph
from .pipeline import Pass


def remove_dead_code(graph: Graph) -> Graph:
    """The graph without nodes whose results are never used. All inputs stay."""
    kept, _ = needed_nodes(
        graph.nodes, graph.outputs.values(), attrgetter("inputs"), attrgetter("outputs")
    )
    return graph if len(kept) == len(graph.nodes) else replace(graph, nodes=kept)


# Required, since later passes assume that every node is needed.
DEAD_CODE = Pass("dead_code", lambda graph, compilation: remove_dead_code(graph), required=True)
