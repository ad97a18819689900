"""Decomposition: composite operators become the operators that their records name."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Emitter, Graph, Node
from ..ops.lowering import Decompose
from .pipeline import Compilation, Pass
from .rewrite import Substitution


def decompose(graph: Graph, compilation: Compilation) -> Graph:
    """The graph without composite nodes, except those forced to the CPU, which has a reference of
    their own. What they become has their label and origins."""
    known = Substitution()
    nodes: list[Node] = []
    pending = list(reversed(graph.nodes))
    while pending:
        node = known.apply(pending.pop())
        lowering = node.operator.lowering
        if not isinstance(lowering, Decompose) or node.operator.name in compilation.force_cpu:
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
        parts = [
            replace(n, origins=node.origins, device=node.device, reason=node.reason)
            for n in emit.nodes
        ]
        # What it decomposes to may be composite in turn.
        pending.extend(reversed(parts))
    if not known:
        return graph
    outputs = {name: known.get(v) for name, v in graph.outputs.items()}
    return replace(graph, outputs=outputs, nodes=tuple(nodes))


DECOMPOSE = Pass("decompose", decompose, required=True)
