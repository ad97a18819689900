"""Element-wise fusion: an element-wise node joins the kernel that produces its operand."""

from __future__ import annotations

from dataclasses import replace

from ..access import Access
from ..device_profile import DeviceProfile
from ..graph import Node, Value
from ..ops.lowering import Elementwise
from .families import family_of
from .node import KernelGraph, KernelNode, Step

# Longer chains make the driver's compile longer and win little.
MAX_STEPS = 16


def fuse(graph: KernelGraph, profile: DeviceProfile) -> KernelGraph:
    """Fuse element-wise nodes into producers whose result nothing else reads.

    The fused node stands where its last part stood, so that every side operand is computed before
    it.
    """
    readers: dict[Value, int] = {value: len(nodes) for value, nodes in graph.readers.items()}
    producers: dict[Value, KernelNode] = {}
    nodes: dict[KernelNode | Node, None] = {}
    for node in graph.nodes:
        fused = None
        if isinstance(node, KernelNode) and isinstance(node.lowering, Elementwise):
            for producer in _producers(node, producers):
                if readers[producer.output.value] == 1 and (
                    producer.output.value not in graph.output_values
                ):
                    fused = _join(producer, node, graph, profile)
                if fused is not None:
                    del nodes[producer]
                    for value in set(producer.reads) & set(node.reads):
                        readers[value] -= 1  # two readers have become one
                    break
        result = fused or node
        nodes[result] = None
        if isinstance(result, KernelNode) and len(result.outputs) == 1:
            producers[result.output.value] = result
    return replace(graph, nodes=tuple(nodes))


def _producers(node: KernelNode, producers: dict[Value, KernelNode]) -> list[KernelNode]:
    """The nodes whose results ``node`` reads: those with a kernel of their own first, since
    joining them saves a pass over the larger kernel's output."""
    candidates = dict.fromkeys(producers[v] for v in node.reads if v in producers)
    return sorted(candidates, key=lambda n: isinstance(n.lowering, Elementwise))


def _join(
    producer: KernelNode, node: KernelNode, graph: KernelGraph, profile: DeviceProfile
) -> KernelNode | None:
    """The producer with the node's operator as its last step, or None where that can't be."""
    if not graph.apart.isdisjoint((*producer.sources, *node.sources)) or node.epilogue:
        return None
    value = producer.output.value
    operands: dict[str, Access | None] = {}
    for name, access in node.operands.items():
        if access.value is not value:
            operands[name] = access
        elif access.is_dense and access.shape == node.output.shape:
            operands[name] = None
        else:
            return None
    step = Step(node.operator, operands, node.arguments, node.results[0], node.label)
    fused = replace(
        producer,
        outputs=node.outputs,
        epilogue=(*producer.epilogue, step),
        sources=(*producer.sources, *node.sources),
    )
    return fused if _accepts(producer, fused, profile) else None


def _accepts(producer: KernelNode, fused: KernelNode, profile: DeviceProfile) -> bool:
    """Whether the producer's kernel can apply the last step of ``fused`` to its result."""
    step = fused.epilogue[-1]
    if (
        not family_of(producer).fuses
        or step.operator.lowering.blockwise
        or len(producer.results) != 1
        or step.output.shape != producer.results[0].shape
        or len(fused.epilogue) > MAX_STEPS
    ):
        return False
    # Beside the result, kernels may bind absent operands too, and the parameters.
    buffers = len(producer.operator.operands) + len(fused.sides) + 2
    if buffers > min(profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set):
        return False
    # Only the element-wise family slices its side operands.
    if isinstance(producer.lowering, Elementwise):
        return True
    tensors = [v.descriptor for v in (*fused.reads, *fused.writes, *producer.writes)]
    return all(t.byte_length <= profile.max_storage_buffer_range for t in tensors)


