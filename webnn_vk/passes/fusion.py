"""Element-wise fusion: an element-wise node joins the kernel that produces its operand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..graph import Fused, Graph, Node, Value
from ..ops.lowering import Elementwise

Accepts = Callable[[Node, Fused], bool]


def fuse_elementwise(graph: Graph, accepts: Accepts, fusable: Callable[[Node], bool]) -> Graph:
    """Fuse element-wise nodes into producers whose result nothing else reads.

    ``accepts`` says whether the producer's kernel can take the step, ``fusable`` whether a node
    runs on the device at all. The fused node stands where its last part stood, so that every side
    operand is computed before it.
    """
    users = dict(graph.users)
    producers: dict[Value, Node] = {}
    nodes: dict[Node, None] = {}
    for node in graph.nodes:
        fused = None
        joins = isinstance(node.operator.lowering, Elementwise) and not node.epilogue
        if joins and fusable(node):
            for producer in _producers(node, producers):
                if (
                    len(producer.outputs) != 1
                    or users.get(producer.output, []) != [node]
                    or producer.output in graph.output_values
                    or not fusable(producer)
                ):
                    continue
                fused = _join(producer, node, accepts)
                if fused is not None:
                    del nodes[producer]
                    break
        made = fused or node
        nodes[made] = None
        for value in made.outputs:
            producers[value] = made
        # The users of every operand now name the original; keep the map true for later nodes.
        if fused is not None:
            for value in fused.inputs:
                if value in users:
                    users[value] = list(
                        dict.fromkeys(fused if u in (node, producer) else u for u in users[value])
                    )
    return replace(graph, nodes=tuple(nodes))


def _producers(node: Node, producers: dict[Value, Node]) -> list[Node]:
    """The nodes whose results ``node`` reads: those with a kernel of their own first, since
    joining them saves a pass over the larger kernel's output."""
    found = dict.fromkeys(producers[v] for v in node.inputs if v in producers)
    return sorted(found, key=lambda n: isinstance(n.operator.lowering, Elementwise))


def _join(producer: Node, node: Node, accepts: Accepts) -> Node | None:
    operands = dict(producer.operands)
    names: dict[str, str | None] = {}
    for name, value in node.operands.items():
        if value is producer.output:
            names[name] = None
            continue
        own = next((k for k, v in operands.items() if v is value and k.startswith("side")), None)
        if own is None:
            own = f"side{sum(k.startswith('side') for k in operands)}"
            operands[own] = value
        names[name] = own
    step = Fused(node.operator, names, node.arguments, node.results[0], node.label)
    if not accepts(replace(producer, operands=operands), step):
        return None
    return replace(
        producer,
        operands=operands,
        epilogue=(*producer.epilogue, step),
        outputs=node.outputs,
        origins=tuple(dict.fromkeys(producer.origins + node.origins)),
    )
