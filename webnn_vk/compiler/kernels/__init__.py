"""From a graph's nodes to compute dispatches on a device of a given profile.

``lower_graph`` is the way through: nodes become ``KernelNode``s, element-wise ones are fused into
others, movements absorbed into accesses, and each kernel's family chooses a schedule and makes
dispatches. For the pack of precompiled shaders ``catalogue()`` lists the kernels of every unfused
operator and data type, and ``common()`` fused ones that many models have.
"""

from __future__ import annotations

from webnn_vk.driver.device_profile import DeviceProfile

from ..ir import Node
from .coopmat import FEATURES as MATRIX_FEATURES
from .coopmat2 import FEATURES as MATRIX2_FEATURES
from .dispatch import Binding, Dispatch, Packed, Packing, Refused, Scratch, Unsupported
from .families import FAMILIES, catalogue, common, family_of
from .lower import KERNEL_PASSES, kernel_nodes, lower_graph, packing_of
from .lowered import Alias, DeviceWork, HostWork, LoweredGraph
from .node import KernelGraph, KernelNode
from .packing import packing_called
from .schedule import Schedule

__all__ = [
    "FAMILIES",
    "KERNEL_PASSES",
    "MATRIX2_FEATURES",
    "MATRIX_FEATURES",
    "Alias",
    "Binding",
    "DeviceWork",
    "Dispatch",
    "HostWork",
    "KernelGraph",
    "KernelNode",
    "LoweredGraph",
    "Packed",
    "Packing",
    "Refused",
    "Schedule",
    "Scratch",
    "Unsupported",
    "catalogue",
    "common",
    "family_of",
    "kernel_nodes",
    "lower_graph",
    "packing_called",
    "packing_of",
    "plan",
]


def plan(node: Node | KernelNode, profile: DeviceProfile) -> list[Dispatch]:
    """The dispatches that compute a node by itself; Unsupported where the device can't run it."""
    if isinstance(node, Node):
        node = KernelNode.of(node)
    return family_of(node).plan(node, profile)
