"""Placement: which nodes run on the device and which on the CPU, and in which order they run."""

from __future__ import annotations

from dataclasses import replace

from webnn_vk.support.topological import alternating_runs

from ..ir import Graph, Node, Value
from .pipeline import Compilation, Pass


def place(graph: Graph, compilation: Compilation) -> Graph:
    """Place every node on the device unless it is forced to the CPU. Without a device, place all
    nodes on the CPU."""

    def reason(node: Node) -> str:
        if compilation.profile is None:
            return "the CPU device was chosen"
        return "forced to the CPU" if node.operator.name in compilation.force_cpu else ""

    nodes = []
    for node in graph.nodes:
        why = reason(node)
        nodes.append(replace(node, device="cpu" if why else "vulkan", reason=why))
    return replace(graph, nodes=tuple(nodes))


def order(graph: Graph, compilation: Compilation) -> Graph:
    """The graph with its nodes in an order with few changes between device and CPU: everything
    ready on one side runs before the other side continues."""
    if len({node.device for node in graph.nodes}) < 2:
        return graph
    readers: dict[Value, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        for value in dict.fromkeys(node.inputs):
            readers.setdefault(value, []).append(number)
    runs = alternating_runs(
        [node.on_cpu for node in graph.nodes],
        [[n for value in node.outputs for n in readers.get(value, ())] for node in graph.nodes],
    )
    return replace(graph, nodes=tuple(graph.nodes[n] for _, run in runs for n in run))


PLACE = Pass("place", place, required=True)
ORDER = Pass("order", order)
