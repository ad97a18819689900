"""Constant folding: nodes that depend only on constants are computed at build time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np

from webnn_vk.support.mmap_array import drop_pages

from ..ir import Graph, Node, Value
from ..types.data_types import MLOperandDescriptor
from ..types.sizes import sizes_in, symbolic
from .pipeline import Compilation, Pass
from .rewrite import Substitution

# A folded result may be larger than its operands (an expand). Beyond this growth the memory would
# cost more than the kernel's time.
_MAX_GROWTH_BYTES = 1 << 20


def fold_constants(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with constants in place of nodes that depend only on constants. The notes name the
    nodes computed here.

    Constants that come from a constant tensor are on the device and are not folded.
    """
    return fold_nodes(graph, compilation, _foldable)


def fold_nodes(
    graph: Graph, compilation: Compilation, wanted: Callable[[Node], bool]
) -> Graph:
    """The graph with constants in place of the ``wanted`` nodes, whose operands have to be
    constants with known elements by then."""
    known = Substitution()
    kept: list[Node] = []
    for node in graph.nodes:
        node = known.apply(node)
        if wanted(node):
            known.update(zip(node.outputs, _evaluated(node), strict=True))
            compilation.notes.add("fold", node.title)
        else:
            kept.append(node)
    return known.rebuild(graph, kept)


def _evaluated(node: Node) -> list[Value]:
    computation = (node.operator.name, sorted(node.arguments.items()), list(node.operands))
    arrays = node.evaluate(lambda v: v.data)
    return [
        derived_constant(array, node.inputs, computation, number, data_type=value.data_type)
        for number, (value, array) in enumerate(zip(node.outputs, arrays, strict=True))
    ]


def derived_constant(
    data: np.ndarray, sources: Iterable[Value], *computation: object, data_type: str | None = None
) -> Value:
    """A constant computed from other constants. It has a key if all ``sources`` have one;
    ``computation`` says how it was computed, so that different results have different keys: with
    the numbers of sizes that are known at dispatch. Without ``data_type`` it has the array's."""
    data.setflags(write=False)
    keys = []
    for source in sources:
        keys.append(source.key)
        if source.data is not None:
            drop_pages(source.data)
    key = None
    if None not in keys:
        numbers = symbolic(computation, lambda size: size.value)
        key = hashlib.sha256(repr((numbers, keys)).encode()).hexdigest()
    return Value(MLOperandDescriptor(data_type or data.dtype, data.shape), data=data, key=key)


def _foldable(node: Node) -> bool:
    if not node.inputs or any(v.data is None for v in node.inputs):
        return False
    shapes = [v.shape for v in node.outputs]
    if any(sizes_in([shapes, dict(node.arguments)])):
        return False  # the result is another for each size
    read = sum(v.descriptor.byte_length for v in node.inputs)
    made = sum(v.descriptor.byte_length for v in node.outputs)
    return made <= read + _MAX_GROWTH_BYTES


FOLD = Pass("fold", fold_constants)
