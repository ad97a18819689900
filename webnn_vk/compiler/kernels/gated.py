"""Gated linear units: an element-wise kernel that combines the two halves of a product's row
becomes the product's epilogue (``node.gated``). Each invocation sums up what belongs together, so
that the halves are not stored.
"""

from __future__ import annotations

from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile

from ..ir import Node
from ..ops.lowering import Elementwise
from ..types.access import Access, compose
from ..types.sizes import Size
from .absorb import origins
from .family import family_of
from .heuristics import device_class
from .node import KernelGraph, KernelNode, Step


def fuse_gates(graph: KernelGraph, profile: DeviceProfile) -> KernelGraph:
    """The graph with the halves of products combined by the products' kernels. Movements whose
    results nothing reads any more are left."""
    if not device_class(profile).extends_row_products:
        return graph
    nodes: dict[KernelNode | Node, KernelNode | Node] = {node: node for node in graph.nodes}
    for node in graph.nodes:
        if isinstance(node, KernelNode) and isinstance(node.lowering, Elementwise):
            product, made = _gated(graph, node)
            if made is not None and family_of(made).extends(made, profile):
                del nodes[product]
                nodes[node] = made
    return replace(graph, nodes=tuple(nodes.values()))


def _gated(
    graph: KernelGraph, node: KernelNode
) -> tuple[KernelNode, KernelNode] | tuple[None, None]:
    """A product of one row whose halves an element-wise kernel combines, and both as one kernel."""
    size, accesses = node.results[0].size, (*node.operands.values(), *node.side_inputs)
    if isinstance(size, Size):  # known only at dispatch
        return None, None
    read = {access: _behind(access, graph) for access in accesses}
    halves = {
        access: origin for access, origin in read.items()
        if not isinstance(origin.value.descriptor.size, Size)
        and origin.size == size and 2 * size == origin.value.descriptor.size
        and replace(origin, offset=0).is_dense
    }
    product = graph.producers.get(next(iter(halves.values())).value) if halves else None
    if not isinstance(product, KernelNode) or len(product.writes) != 1:
        return None, None
    whole = product.output
    numbers = {
        access: origin.offset // size for access, origin in halves.items()
        if origin.value is whole.value and origin.offset in (0, size)
    }
    parts = [access for access, origin in read.items() if origin.value is whole.value]
    if (
        sorted(numbers.values()) != [0, 1]
        or len(parts) != 2
        or node.lowering.blockwise
        or node.prologue is not None
        or len(node.writes) != 1
        or not node.output.is_dense
        or product.epilogue
        or not (whole.is_dense and whole.shape[-1] == whole.size)
        or whole.value in graph.output_values
        or not all(_leads_to(node, reader, graph) for reader in graph.readers[whole.value])
        or not graph.unfused.isdisjoint((*product.sources, *node.sources))
        or not set(product.reads).isdisjoint(node.writes)
    ):
        return None, None

    def renumbered(operand: Access | int | None) -> Access | int | None:
        if isinstance(operand, Access):
            return numbers.get(operand, operand)
        return None if operand is None else operand + len(numbers)

    first = Step(node.operator, node.operands, node.arguments, node.results[0], node.label)
    steps = tuple(
        replace(step, operands={key: renumbered(a) for key, a in step.operands.items()})
        for step in (first, *node.epilogue)
    )
    return product, replace(
        product, epilogue=steps, outputs=node.outputs, sources=(*product.sources, *node.sources),
        gated=True,
    )


def _behind(access: Access, graph: KernelGraph) -> Access:
    """The access by which the same is read behind the movement that made it."""
    made = graph.producers.get(access.value)
    origin = origins(made).get(access.value) if made is not None else None
    return access if origin is None else compose(access, origin) or access


def _leads_to(node: KernelNode, reader: KernelNode | Node, graph: KernelGraph) -> bool:
    """Whether what reads a value is the node, or moves it for the node alone."""
    moved = origins(reader)
    return reader is node or bool(moved) and all(
        value not in graph.output_values and graph.readers.get(value, []) in ([], [node])
        for value in moved
    )
