"""Concat and split without copies: parts of a tensor lie in its memory.

Along a dimension with nothing before it, each operand of a concat is a range of the result: the
kernels before the concat write there. A result of a split or slice along such a dimension is a
range of the operand, and is read there. A range has to begin where the device can bind it; other
parts, and values that are needed elsewhere as they are, are copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import VECTOR_BYTES

from ..ir import Node, Value
from ..ops.lowering import Join, Move, View
from ..types.access import Access, collapse
from .copy import sources
from .family import is_whole
from .node import KernelGraph, KernelNode, Part, reads
from .parts import alignment
from .raw_copy import item_size


def lie_in_place(graph: KernelGraph, profile: DeviceProfile) -> KernelGraph:
    """The graph with ``parts``, and the numbers of the copies that they make needless in the nodes
    that would have made them."""
    if profile.whole_bindings:
        return graph
    unit = max(alignment(profile), profile.min_texel_buffer_offset_alignment)
    placing = _Placing(graph, unit)
    nodes = tuple(placing.visit(node) for node in graph.nodes)
    if not placing.parts:
        return graph
    return replace(graph, nodes=nodes, parts={**graph.parts, **placing.parts})


class _Placing:
    """The state of a walk over the nodes in order: what has been placed so far."""

    def __init__(self, graph: KernelGraph, unit: int) -> None:
        self.graph = graph
        self.unit = unit
        self.parts: dict[Value, Part] = {}
        self._bases: dict[Value, Value] = {}
        for node in graph.nodes:
            if isinstance(node, Node) and isinstance(node.operator.lowering, View) and not (
                node.on_cpu
            ):
                self._bases[node.output] = self._base(node.inputs[0])
        # Outputs are tensors of their own, and the CPU has memory of its own.
        self._fixed = {self._base(v) for v in graph.outputs.values()} | {
            self._base(v)
            for node in graph.nodes if isinstance(node, Node) and node.on_cpu
            for v in reads(node)
        }

    def _base(self, value: Value) -> Value:
        """The value that a view is of."""
        return self._bases.get(value, value)

    def visit(self, node: KernelNode | Node) -> KernelNode | Node:
        if not isinstance(node, KernelNode) or not self.graph.unfused.isdisjoint(node.sources):
            return node
        if isinstance(node.lowering, Move):
            found = self._taken(node)
        elif isinstance(node.lowering, Join):
            found = self._joined(node)
        else:
            return node
        placed = dict(found)
        self.parts.update(placed.values())
        return replace(node, in_place=frozenset(placed)) if placed else node

    def _taken(self, node: KernelNode) -> Iterator[tuple[int, tuple[Value, Part]]]:
        """The outputs of a movement that are ranges of its operand, by number."""
        for number, (access, output) in enumerate(zip(sources(node), node.outputs, strict=True)):
            start = _contiguous(access)
            if (
                start is not None
                and start % self.unit == 0
                and isinstance(access.value, Value)
                and not access.value.is_constant
                and is_whole(output)
                and output.value not in self._fixed
            ):
                yield number, (output.value, Part(access.value, start))

    def _joined(self, node: KernelNode) -> Iterator[tuple[int, tuple[Value, Part]]]:
        """The operands of a concat that can lie in its result, by number."""
        inputs = node.sequence("inputs")
        if not is_whole(node.output):
            return
        shapes = [access.shape for access in inputs]
        places = node.lowering.places(node.output, shapes, **node.arguments)
        end = node.output.value.descriptor.byte_length
        seen: set[Value] = set()
        for number, (access, place) in enumerate(zip(inputs, places, strict=True)):
            base, start = self._base(access.value), _contiguous(place)
            if not isinstance(base, Value) or start is None or not is_whole(access):
                continue
            length = base.descriptor.byte_length
            # Kernels may write a value up to the end of its last vector.
            fits = start % self.unit == 0 and (length % VECTOR_BYTES == 0 or start + length == end)
            if fits and base not in seen and self._is_free(base):
                seen.add(base)
                yield number, (base, Part(node.output.value, start))

    def _is_free(self, base: Value) -> bool:
        """Whether a value may lie anywhere that its kernel writes it."""
        return (
            isinstance(self.graph.producers.get(base), KernelNode)
            and base not in self._fixed
            and base not in self.parts
        )


def _contiguous(access: Access) -> int | None:
    """The byte at which an access begins whose elements follow each other; None for others."""
    shape, (steps,) = collapse(access.shape, access.strides)
    if shape != (1,) and steps != (1,):
        return None
    return access.offset * item_size(access.value)
