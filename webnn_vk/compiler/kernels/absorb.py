"""Absorbing movements: a transpose, slice or expansion becomes part of the access by which another
kernel reads its operand or writes its output, and needs no dispatch of its own.

Each family says what accesses it takes. A movement that a neighbour doesn't take stays a copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from webnn_vk.support.topological import needed_nodes

from ..ir import Node, Value
from ..ops.lowering import Move, View
from ..types.access import Access, compose, inverse
from .copy import sources
from .family import family_of
from .node import KernelGraph, KernelNode, reads, writes


def absorb(graph: KernelGraph, limit: float = math.inf, merges: bool = False) -> KernelGraph:
    """The graph with movements absorbed: first by the kernels that read their result, then by those
    that wrote their operand. ``limit``: bytes that may be bound at once. ``merges``: whether one
    kernel of products serves many chains (``epilogue.merged``). That kernel reads an addend in the
    order of its result, so one whose elements lie apart is copied."""
    return _into_writers(remove_dead(_into_readers(graph, limit, merges)))


def remove_dead(graph: KernelGraph) -> KernelGraph:
    """The graph without nodes whose results are unused."""
    kept, _ = needed_nodes(graph.nodes, graph.outputs.values(), reads, writes)
    return graph if len(kept) == len(graph.nodes) else replace(graph, nodes=kept)


def origins(node: KernelNode | Node) -> Mapping[Value, Access]:
    """For each value that a movement or view fills, row by row: the access it is filled from."""
    if isinstance(node, KernelNode):
        if not isinstance(node.lowering, Move):
            return {}
        return dict(zip(node.writes, sources(node), strict=True))
    if isinstance(node.operator.lowering, View) and not node.on_cpu:
        return {node.output: Access.dense(node.inputs[0])}
    return {}


# -- readers --------------------------------------------------------------------------------------
def _into_readers(graph: KernelGraph, limit: float, merges: bool) -> KernelGraph:
    found: dict[Value, Access] = {}
    nodes: list[KernelNode | Node] = []
    for node in graph.nodes:
        unfused = isinstance(node, KernelNode) and not graph.unfused.isdisjoint(node.sources)
        if isinstance(node, KernelNode) and not unfused:
            node = _sides_through(_read_through(node, found), found, limit, merges)
            if node.prologue is not None:
                before = _read_through(node.prologue, found)
                before = _sides_through(before, found, limit, merges)
                node = replace(node, prologue=before)
        if not unfused:
            found |= {v: _behind_views(a, found) for v, a in origins(node).items()}
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _behind_views(access: Access, origins: Mapping[Value, Access]) -> Access:
    """A view's origin, past the views before it: their readers need not walk a chain of them."""
    before = origins.get(access.value)
    if before is None or not (access.is_dense and before.is_dense):
        return access
    return compose(access, before) or access


def _read_through(node: KernelNode, origins: Mapping[Value, Access]) -> KernelNode:
    """The node with its operands read from as far back as its family takes them."""
    family = family_of(node)
    for name in node.operands:
        access: Access | None = node.operands[name]
        while access is not None and access.value in origins:
            access = compose(access, origins[access.value])
            if access is None or access.is_dense:
                continue  # a view alone is for free: reading behind it wins nothing
            closer = replace(node, operands={**node.operands, name: access})
            if family.takes(closer, name):
                node = closer
    return node


def _sides_through(
    node: KernelNode, origins: Mapping[Value, Access], limit: float, merges: bool
) -> KernelNode:
    """The node with what its fused steps read, read from as far back as its family takes it."""
    if not any(access.value in origins for access in node.side_inputs):
        return node
    epilogue = []
    copies = merges and bool(family_of(node).weights)
    for step in node.epilogue:
        operands = dict(step.operands)
        for name, side in step.operands.items():
            access = side if isinstance(side, Access) else None
            while access is not None and access.value in origins:
                access = compose(access, origins[access.value])
                if access is None or access.is_dense:
                    continue
                if copies and access.strides[-1] > 1:
                    break
                fits = access.value.descriptor.byte_length <= limit
                if fits and family_of(node).takes_side(step, access):
                    operands[name] = access
        epilogue.append(replace(step, operands=operands))
    return replace(node, epilogue=tuple(epilogue))


# -- writers --------------------------------------------------------------------------------------
def _into_writers(graph: KernelGraph) -> KernelGraph:
    producers = dict(graph.producers)
    nodes: dict[KernelNode | Node, KernelNode | Node] = {node: node for node in graph.nodes}
    #: Nodes that have already been moved once, and the node that each stands for.
    moved: dict[KernelNode | Node, KernelNode | Node] = {}
    for node in graph.nodes:
        if not isinstance(node, KernelNode) or not isinstance(node.lowering, Move):
            continue
        writer = _written_through(node, graph, producers)
        if writer is None:
            continue
        old = producers[_written(node, graph, producers)]
        moved[writer] = original = moved.get(old, old)
        nodes[original] = writer
        del nodes[node]
        producers[writer.output.value] = writer
    if not moved:
        return graph
    return remove_dead(replace(graph, nodes=tuple(nodes.values())))


def _written(
    node: KernelNode, graph: KernelGraph, producers: Mapping[Value, KernelNode | Node]
) -> Value:
    """The value that a movement moves, behind views."""
    value = sources(node)[0].value
    while isinstance(producer := producers.get(value), Node) and isinstance(
        producer.operator.lowering, View
    ):
        value = producer.inputs[0]
    return value


def _written_through(
    move: KernelNode, graph: KernelGraph, producers: Mapping[Value, KernelNode | Node]
) -> KernelNode | None:
    """The kernel before a movement, writing where the movement would have put its result; None
    unless nothing else needs the result where it was and the kernel's family stores so."""
    if len(move.outputs) != 1 or not graph.unfused.isdisjoint(move.sources):
        return None
    access: Access | None = sources(move)[0]
    while access is not None:
        value = access.value
        if value in graph.output_values or len(graph.readers.get(value, ())) != 1:
            return None
        producer = producers.get(value)
        if isinstance(producer, KernelNode):
            break
        if producer is None or producer.on_cpu or not isinstance(
            producer.operator.lowering, View
        ):
            return None
        access = compose(access, Access.dense(producer.inputs[0]))
    if access is None or producer.extra_outputs or not graph.unfused.isdisjoint(producer.sources):
        return None
    if any(step.output.shape != producer.results[0].shape for step in producer.epilogue):
        return None  # elements in the order of another shape
    if len(producer.outputs) != 1 or access.size != value.descriptor.size:
        return None
    place = inverse(access, move.output.value)
    if place is None:
        return None
    output = compose(producer.output, place)
    if output is None:
        return None
    through = replace(
        producer, outputs=(output,), sources=(*producer.sources, *move.sources)
    )
    return through if family_of(through).stores(through) else None
