"""Placement: which nodes run on the device and which on the CPU, and in which order."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from ..ir import Graph, Node, Value
from .pipeline import Compilation, Pass


def place(graph: Graph, compilation: Compilation) -> Graph:
    """Every node goes to the device, unless it is forced to the CPU or ``compilation.obstacle``
    names why the device can't run it; all go to the CPU where there is no device."""

    def reason(node: Node) -> str:
        if compilation.profile is None:
            return "the CPU device was chosen"
        if node.operator.name in compilation.force_cpu:
            return "forced to the CPU"
        return compilation.obstacle(node) or ""

    nodes = []
    for node in graph.nodes:
        why = reason(node)
        nodes.append(replace(node, device="cpu" if why else "vulkan", reason=why))
    return replace(graph, nodes=tuple(nodes))


def order(graph: Graph, compilation: Compilation) -> Graph:
    """The same nodes in an order with few changes between device and CPU: everything ready on one
    side runs before the other side's turn."""
    if len({node.device for node in graph.nodes}) < 2:
        return graph
    waiting: dict[Node, int] = {}
    ready: dict[str, deque[Node]] = {"vulkan": deque(), "cpu": deque()}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        unmet = {v for v in node.inputs if v in graph.producers}
        waiting[node] = len(unmet)
        for value in unmet:
            readers.setdefault(value, []).append(node)
        if not unmet:
            ready[node.device].append(node)
    nodes: list[Node] = []
    side = "vulkan"
    while len(nodes) < len(graph.nodes):
        if not ready[side]:
            side = "cpu" if side == "vulkan" else "vulkan"
        node = ready[side].popleft()
        nodes.append(node)
        for value in node.outputs:
            for reader in readers.get(value, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready[reader.device].append(reader)
    return replace(graph, nodes=tuple(nodes))


PLACE = Pass("place", place, required=True)
ORDER = Pass("order", order)
