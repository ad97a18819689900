"""Updates of donated inputs in place.

A donated input and its output share one tensor. A scatter into such an input then writes only the
scattered elements: the others are there already. If steps after it read the input, the program
copies the input for them first (``program/overwriting``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir import Node, Value
from ..ops.lowering import Elementwise, Scatter, View
from .family import is_whole
from .node import KernelGraph, KernelNode


def update_in_place(graph: KernelGraph, donated: Mapping[str, str]) -> KernelGraph:
    """The graph with ``in_place`` set in the scatters that can update a donated input."""
    if not donated:
        return graph
    found = set(_updates(graph, donated))
    if not found:
        return graph
    return replace(graph, nodes=tuple(
        replace(node, in_place=frozenset((0,))) if node in found else node for node in graph.nodes
    ))


def reads_as_it_writes(node: KernelNode) -> bool:
    """Whether each invocation reads, of tensors that are not constant, only the elements with the
    numbers of those that it writes: then the output may be in the memory of such a tensor."""
    if node.extra_outputs or node.prologue is not None or len(node.outputs) != 1:
        return False
    if not isinstance(node.lowering, Elementwise) or not is_whole(node.output):
        return False
    target = node.output
    return all(
        access.value.is_constant or (is_whole(access) and access.size == target.size)
        for access in (*node.operands.values(), *node.side_inputs)
    )


def _updates(graph: KernelGraph, donated: Mapping[str, str]) -> Iterator[KernelNode | Node]:
    bases: dict[Value, Value] = {}
    for node in graph.nodes:
        if isinstance(node, Node) and isinstance(node.operator.lowering, View) and not node.on_cpu:
            bases[node.output] = bases.get(node.inputs[0], node.inputs[0])
    for past, present in donated.items():
        result = graph.outputs[present]
        node = graph.producers.get(bases.get(result, result))
        if not isinstance(node, KernelNode) or not isinstance(node.lowering, Scatter):
            continue
        source = node.operands["input"]
        if (
            is_whole(source) and is_whole(node.output)
            and bases.get(source.value, source.value) is graph.inputs.get(past)
        ):
            yield node
