"""Placement: which nodes run on the device and which on the CPU, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..graph import Graph, Node, Value


@dataclass
class Placement:
    """Device ("vulkan" or "cpu") and reason of every node."""

    device: dict[Node, str] = field(default_factory=dict)
    reason: dict[Node, str] = field(default_factory=dict)

    def on_cpu(self, node: Node) -> bool:
        return self.device[node] == "cpu"


def place(graph: Graph, obstacle: Callable[[Node], str | None]) -> Placement:
    """Every node goes to the device, unless ``obstacle`` names why it can't."""
    placement = Placement()
    for node in graph.nodes:
        reason = obstacle(node)
        placement.device[node] = "cpu" if reason else "vulkan"
        placement.reason[node] = reason or ""
    return placement


def schedule(graph: Graph, placement: Placement) -> Graph:
    """The same nodes in an order with few changes between device and CPU: everything ready on one
    side runs before the other side's turn."""
    if len(set(placement.device.values())) < 2:
        return graph
    waiting: dict[Node, int] = {}
    ready: dict[str, list[Node]] = {"vulkan": [], "cpu": []}
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        unmet = {v for v in node.inputs if v in graph.producers}
        waiting[node] = len(unmet)
        for value in unmet:
            readers.setdefault(value, []).append(node)
        if not unmet:
            ready[placement.device[node]].append(node)
    order: list[Node] = []
    side = "vulkan"
    while len(order) < len(graph.nodes):
        if not ready[side]:
            side = "cpu" if side == "vulkan" else "vulkan"
        node = ready[side].pop(0)
        order.append(node)
        for value in node.outputs:
            for reader in readers.get(value, ()):
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready[placement.device[reader]].append(reader)
    return replace(graph, nodes=tuple(order))
