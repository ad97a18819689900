"""Constant folding: what depends on constants alone is computed at build time."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ..ir import Graph, Node, Value
from .pipeline import Compilation, Pass
from .rewrite import Substitution

# A folded result may be larger than what it comes from (an expand); beyond this it would cost
# more memory than the kernel costs time.
_MAX_GROWTH_BYTES = 1 << 20


def fold_constants(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with constants in the place of what depends on constants alone; the notes name the
    nodes computed here.

    Constants that come from a constant tensor live on the device and are not folded.
    """
    known = Substitution()
    kept: list[Node] = []
    for node in graph.nodes:
        node = known.apply(node)
        if _foldable(node):
            known.update(zip(node.outputs, evaluated(node), strict=True))
            compilation.notes.add("fold", node.title)
        else:
            kept.append(node)
    if not known:
        return graph
    outputs = {name: known.get(v) for name, v in graph.outputs.items()}
    return replace(graph, outputs=outputs, nodes=tuple(kept))


def evaluated(node: Node) -> list[Value]:
    """The results of a node whose operands are constants with known elements, as constants."""
    constants = []
    for value, array in zip(node.outputs, node.evaluate(lambda v: v.data), strict=True):
        array.setflags(write=False)
        constants.append(Value(value.descriptor, data=array, key=_key(node, value)))
    return constants


def _key(node: Node, result: Value) -> str | None:
    """What tells the result from others, when that is known of all that it is computed from."""
    operands = [(name, value.key) for name, value in node.operands.items()]
    if any(key is None for _, key in operands):
        return None
    arguments = sorted(node.arguments.items())
    made = (node.operator.name, arguments, operands, node.outputs.index(result))
    return hashlib.sha256(repr(made).encode()).hexdigest()


def _foldable(node: Node) -> bool:
    if not node.inputs or any(v.data is None for v in node.inputs):
        return False
    read = sum(v.descriptor.byte_length for v in node.inputs)
    made = sum(v.descriptor.byte_length for v in node.outputs)
    return made <= read + _MAX_GROWTH_BYTES


FOLD = Pass("fold", fold_constants)
