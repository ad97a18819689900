"""Element-wise fusion: an element-wise node joins the kernel that produces its operand, behind
reshapes too. An intermediate result that other nodes read too is stored as an extra output, and
chains that meet become one."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile

from ..ir import Node, Value
from ..ops.lowering import Elementwise, View
from ..types.access import Access
from ..types.data_types import DATA_TYPES, FLOAT_TYPES
from ..types.sizes import preferring
from .family import family_of
from .heuristics import device_class
from .node import KernelGraph, KernelNode, Step, reads, writes
from .prologue import is_factor

# Longer chains make the driver's compile longer and win little.
MAX_STEPS = 16
# This many operations on an element, counted each time that it is loaded, cost no more than storing
# and loading it.
MAX_FLOPS_BEFORE = 30


def fuse(graph: KernelGraph, profile: DeviceProfile) -> KernelGraph:
    """Fuse element-wise nodes into the producers of their operands.

    The fused node stands where its last part stood, so that every side operand is computed before
    it; so nothing before that may read what it stores.
    """
    fusion = _Fusion(graph, profile)
    for node in graph.nodes:
        fusion.visit(node)
    fusion.compute_inputs()
    return replace(graph, nodes=tuple(fusion.nodes))


class _Fusion:
    """The state of a walk over the nodes in order: what has been fused so far."""

    def __init__(self, graph: KernelGraph, profile: DeviceProfile) -> None:
        self.graph = graph
        self.profile = profile
        self.nodes: dict[KernelNode | Node, None] = {}
        #: How many nodes read a value: of all, and of those visited.
        self.readers = Counter({value: len(nodes) for value, nodes in graph.readers.items()})
        self.visited: Counter[Value] = Counter()
        #: Kernels by the value that they store last.
        self.producers: dict[Value, KernelNode] = {}
        self.views: dict[Value, Node] = {}

    def visit(self, node: KernelNode | Node) -> None:
        if isinstance(node, KernelNode) and isinstance(node.lowering, Elementwise):
            joined = next(self._joined(node), None)
            while joined is not None:
                parts, node = joined
                for part in parts:
                    del self.nodes[part]
                    self.visited.subtract(reads(part))
                    for value in writes(part):
                        self.producers.pop(value, None)
                joined = next(self._met(node), None)
        self.nodes[node] = None
        self.visited.update(reads(node))
        if isinstance(node, KernelNode):
            if len(node.outputs) == 1:
                self.producers[node.output.value] = node
        elif isinstance(node.operator.lowering, View) and not node.on_cpu:
            self.views[node.output] = node

    def _joined(
        self, node: KernelNode
    ) -> Iterator[tuple[tuple[KernelNode | Node, ...], KernelNode]]:
        """The kernels that ``node`` could be the last step of, and what they become with it, the
        best first. Kernels whose result nothing else reads come first; among these, kernels that
        aren't element-wise, since joining them saves a pass over the larger kernel's output."""
        found: dict[KernelNode, tuple[Node, ...]] = {}
        for value in node.reads:
            views = self._views_before(value)
            producer = self.producers.get(views[-1].inputs[0] if views else value)
            # The element-wise family has one shape for all of its operands.
            if producer is not None and not (views and isinstance(producer.lowering, Elementwise)):
                found.setdefault(producer, views)
        order = sorted(
            found, key=lambda p: (self._is_shared(p), isinstance(p.lowering, Elementwise))
        )
        for producer in order:
            fused = self._join(producer, node, found[producer])
            if fused is not None:
                for value in set(producer.reads) & set(node.reads):
                    self.readers[value] -= 1  # two readers have become one
                yield (producer, *found[producer]), fused

    def _views_before(self, value: Value) -> tuple[Node, ...]:
        """The views that lead to a value, the last one first; none where other nodes read one of
        the views or the value that they start from."""
        views = []
        while value in self.views and self._read_once(value):
            views.append(self.views[value])
            value = self.views[value].inputs[0]
        return tuple(views) if self._read_once(value) else ()

    def _read_once(self, value: Value) -> bool:
        return self.readers[value] == 1 and value not in self.graph.output_values

    def _is_shared(self, producer: KernelNode) -> bool:
        value = producer.output.value
        return self.readers[value] > 1 or value in self.graph.output_values

    def _stores(self, producer: KernelNode) -> bool:
        """Whether a kernel can store its present result as an extra output. Kernels that aren't
        element-wise store it element by element, in whole words."""
        if isinstance(producer.lowering, Elementwise):
            return True
        words = DATA_TYPES[producer.out_type].size == 4
        return words and device_class(self.profile).stores_extra_outputs

    def _may_move(self, producer: KernelNode) -> bool:
        """Whether nothing visited reads what a kernel stores."""
        return not any(self.visited[value] for value in producer.writes)

    def _join(
        self, producer: KernelNode, node: KernelNode, views: tuple[Node, ...]
    ) -> KernelNode | None:
        """The producer with the node's operator as its last step, or None where that isn't
        possible. The node reads the producer's result through these views."""
        unfused = self.graph.unfused
        if not unfused.isdisjoint((*producer.sources, *node.sources)) or node.epilogue:
            return None
        value = producer.output.value
        own = {access.value: steps for steps, access in producer.extra_outputs.items()} | {
            views[0].output if views else value: None
        }
        operands = _operands(node, own)
        moved = [stored for stored in producer.writes if stored is not value or not views]
        if operands is None or any(self.visited[stored] for stored in moved):
            return None
        extra_outputs = producer.extra_outputs
        if self._is_shared(producer):
            if not self._stores(producer) or node.output.shape != value.shape:
                return None
            extra_outputs = {**extra_outputs, len(producer.epilogue): producer.output}
        step = Step(node.operator, operands, node.arguments, node.results[0], node.label)
        shape = producer.results[0].shape
        output = node.output
        fused = replace(
            producer,
            outputs=(output if output.shape == shape else Access.dense(output.value, shape),),
            epilogue=(*producer.epilogue, step),
            sources=(*producer.sources, *node.sources),
            extra_outputs=extra_outputs,
        )
        return fused if _accepts(fused, step, self.profile) else None

    def compute_inputs(self) -> None:
        """Moves element-wise kernels into the kernels after them that load each element once or a
        few times: these compute the element where they load it."""
        found: dict[KernelNode, KernelNode] = {}
        for node in self.nodes:
            before = None
            if isinstance(node, KernelNode):
                before = self._before(node) or self._normalization_before(node)
            if before is not None:
                found[node] = before
        if not found:
            return
        gone = set(found.values())
        self.nodes = {
            replace(node, prologue=found[node], sources=(*found[node].sources, *node.sources))
            if node in found else node: None
            for node in self.nodes if node not in gone
        }

    def _before(self, node: KernelNode) -> KernelNode | None:
        """The element-wise kernel that a kernel can compute where it loads its operand."""
        loads = family_of(node).input_loads
        if not loads:
            return None
        access = node.operands["input"]
        before, profile = self.producers.get(access.value), self.profile
        if (
            before is None
            or not isinstance(before.lowering, Elementwise)
            or before.lowering.blockwise
            or before.extra_outputs
            or not self._read_once(access.value)
            or _times_read(node, access.value) > 1
            or not (access.is_dense and access.shape == before.output.shape)
            or not self.graph.unfused.isdisjoint((*before.sources, *node.sources))
            or not set(before.reads).isdisjoint(node.writes)
        ):
            return None
        size, data_type = access.size, access.data_type
        with preferring():
            small = size < device_class(profile).min_prologue_elements
        if data_type not in FLOAT_TYPES or small:
            return None
        made = (*before.results, *(step.output for step in before.epilogue))
        values = [*(value.descriptor for value in before.reads), *made]
        operators = before.operator, *(step.operator for step in before.epilogue)
        flops = sum(operator.lowering.flops for operator in operators)
        # Absent operands are bound too, and the parameters.
        buffers = len(before.reads) + len(node.operator.operands) + len(node.side_inputs) + 3
        limits = profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set
        fits = (
            all(v.data_type == data_type for v in values)
            and all(v.byte_length <= profile.max_storage_buffer_range for v in values)
            and flops * loads <= MAX_FLOPS_BEFORE
            and buffers <= min(limits)
        )
        return before if fits else None

    def _normalization_before(self, node: KernelNode) -> KernelNode | None:
        """The normalisation of a row that a product can compute with its sums."""
        access = node.operands.get("a")
        if access is None or not device_class(self.profile).extends_row_products:
            return None
        before = self.producers.get(access.value)
        if (
            before is None
            or not is_factor(before)
            or not self._read_once(access.value)
            or _times_read(node, access.value) > 1
            or not (access.is_dense and access.size == before.output.size)
            or not self.graph.unfused.isdisjoint((*before.sources, *node.sources))
            or not set(before.reads).isdisjoint(node.writes)
        ):
            return None
        fused = replace(node, prologue=before)
        return before if family_of(node).extends(fused, self.profile) else None

    def _met(self, node: KernelNode) -> Iterator[tuple[tuple[KernelNode, ...], KernelNode]]:
        """The element-wise kernels whose results the last step of a fused kernel reads, and the
        kernel with them as steps before its last. Kernels of other families are left alone: each
        chain would need another compiled kernel."""
        if not isinstance(node.lowering, Elementwise):
            return
        *before, last = node.epilogue
        for access in last.operands.values():
            other = self.producers.get(access.value) if isinstance(access, Access) else None
            if (
                other is None
                or not isinstance(other.lowering, Elementwise)
                or other.lowering.blockwise
                or self._is_shared(other)
                or not self._may_move(other)
                or _reads_before_last(node, other.writes)
                or not self.graph.unfused.isdisjoint(other.sources)
            ):
                continue
            value, count = other.output.value, len(before) + 1
            moved = {count + n: access for n, access in other.extra_outputs.items()}
            own = {access.value: n for n, access in moved.items()} | {value: None}
            operands = _operands(last, own, else_previous=count - 1)
            if operands is None or other.output.shape != node.output.shape:
                continue
            first = Step(
                other.operator, other.operands, other.arguments, other.results[0], other.label
            )
            steps = (first, *(_shifted(step, count) for step in other.epilogue))
            fused = replace(
                node,
                epilogue=(*before, *steps, replace(last, operands=operands)),
                sources=(*node.sources, *other.sources),
                extra_outputs=node.extra_outputs | moved,
            )
            if all(_accepts(fused, step, self.profile) for step in (*steps, last)):
                for value in set(other.reads) & set(node.reads):
                    self.readers[value] -= 1
                yield (other,), fused


def _times_read(node: KernelNode, value: Value) -> int:
    """How many of the accesses by which a kernel reads are of a value."""
    return [a.value for a in (*node.operands.values(), *node.side_inputs)].count(value)


def _reads_before_last(node: KernelNode, values: Iterable[Value]) -> bool:
    """Whether a kernel reads one of the values before its last step."""
    of_steps = (step.operands.values() for step in node.epilogue[:-1])
    read = {
        access.value for access in (*node.operands.values(), *itertools.chain(*of_steps))
        if isinstance(access, Access)
    }
    return not read.isdisjoint(values)


def _operands(
    node: KernelNode | Step, own: Mapping[Value, int | None], else_previous: int | None = None
) -> dict[str, Access | int | None] | None:
    """The operands, where values that the kernel itself computes are replaced as ``own`` says, and
    the result so far by ``else_previous``; None where a part of such a value is read."""
    operands: dict[str, Access | int | None] = {}
    shape = node.output.shape
    for name, access in node.operands.items():
        if not isinstance(access, Access):
            operands[name] = else_previous if access is None else access
        elif access.value not in own:
            operands[name] = access
        elif access.is_dense and access.shape == shape:
            operands[name] = own[access.value]
        else:
            return None
    return operands


def _shifted(step: Step, count: int) -> Step:
    """The step after ``count`` more steps have been put before it."""
    return replace(step, operands={
        name: access + count if isinstance(access, int) else access
        for name, access in step.operands.items()
    })


def _fits(fused: KernelNode, step: Step) -> bool:
    """Whether a step applies to each element of a kernel's result in place, possibly in another
    shape, and every operand is read by steps of one shape."""
    result = fused.results[0]
    if step.output.shape == result.shape and all(
        other.output.shape == result.shape for other in fused.epilogue
    ):
        return True
    shapes: dict[Access, set[tuple[int, ...]]] = {}
    for other in fused.epilogue:
        for access in other.operands.values():
            if isinstance(access, Access):
                shapes.setdefault(access, set()).add(other.output.shape)
    return (
        not isinstance(fused.lowering, Elementwise)
        and step.output.size == result.size
        and all(len(found) == 1 for found in shapes.values())
    )


def _accepts(fused: KernelNode, step: Step, profile: DeviceProfile) -> bool:
    """Whether the kernel of ``fused`` can apply ``step``, one of its steps, to its result."""
    if (
        not family_of(fused).fuses
        # The kernel can read what it stores only as a result.
        or not set(fused.reads).isdisjoint(fused.writes)
        or step.operator.lowering.blockwise
        or len(fused.results) != 1
        or not _fits(fused, step)
        or len(fused.epilogue) > MAX_STEPS
    ):
        return False
    # Beside the result, kernels may bind absent operands too, and the parameters.
    buffers = len(fused.operator.operands) + len(fused.side_inputs) + len(fused.extra_outputs) + 2
    if buffers > min(profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set):
        return False
    # Only the element-wise family slices its side operands.
    if isinstance(fused.lowering, Elementwise):
        return True
    tensors = [v.descriptor for v in (*fused.reads, *fused.writes)]
    tensors += fused.results
    return all(t.byte_length <= profile.max_storage_buffer_range for t in tensors)
