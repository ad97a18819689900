"""Decomposition: composite operators become the operators that their records name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..ir import Emitter, Graph, Node
from ..ops import COMPILER_OPERATORS
from ..ops.lowering import Decompose, Repeat
from ..types.sizes import Size
from .pipeline import Compilation, Pass
from .rewrite import Substitution


def decompose(graph: Graph, compilation: Compilation) -> Graph:
    """The graph without composite nodes, except those forced to the CPU, which has references for
    them, and without loops with a part forced to it. The new nodes have the label and origins of
    the composite node."""

    def composite(node: Node) -> bool:
        if isinstance(node.operator.lowering, Repeat):
            calls, _ = node.arguments["body"]
            return any(name in compilation.force_cpu for name, *_ in calls)
        return (
            isinstance(node.operator.lowering, Decompose)
            and node.operator.name not in compilation.force_cpu
        )

    return decompose_nodes(graph, composite)


def decompose_nodes(graph: Graph, wanted: Callable[[Node], bool]) -> Graph:
    """The graph with the ``wanted`` nodes replaced by the nodes that their lowerings' ``decompose``
    emits."""
    known = Substitution()
    nodes: list[Node] = []
    pending = [(node, node) for node in reversed(graph.nodes)]
    while pending:
        # The node of the graph, which ``wanted`` may compare by identity, and its current form.
        original, node = pending.pop()
        node = known.apply(node)
        if not wanted(original):
            nodes.append(node)
            continue
        emit = Emitter(node.label)
        decompose: Any = node.operator.lowering.decompose  # type: ignore[union-attr]
        made = decompose(emit, node.gather(lambda v: v), node.arguments, node.results)
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
        # The new nodes may be composite in turn.
        pending.extend((part, part) for part in reversed(parts))
    return known.rebuild(graph, nodes)


def without_loops(graph: Graph) -> Graph:
    """The graph with every loop unrolled, also those in loops."""

    def repeats(node: Node) -> bool:
        return isinstance(node.operator.lowering, Repeat)

    while any(map(repeats, graph.nodes)):
        graph = decompose_nodes(graph, repeats)
    return graph


def by_specification(graph: Graph) -> Graph:
    """The graph without compiler operators that can be decomposed, for formats that don't have
    them. Only loops are decomposed on named dimensions, whose sizes others may fix."""

    def wanted(node: Node) -> bool:
        lowering = node.operator.lowering
        return isinstance(lowering, Repeat) or (
            node.operator.name in COMPILER_OPERATORS
            and getattr(lowering, "decompose", None) is not None
            and not any(
                isinstance(d, Size) for v in (*node.inputs, *node.outputs) for d in v.shape
            )
        )

    return decompose_nodes(graph, wanted)


DECOMPOSE = Pass("decompose", decompose, required=True)
