"""Where every value lives, and the steps that touch it.

Fed the nodes in order, ``Layout`` decides memory as it goes: a view shares its source's memory, a
graph output is written where it stays, everything else gets a place in the arena for as long as it
is needed. It inserts the barriers and the copies at the borders between device and CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..device_profile import DeviceProfile
from ..graph import Graph, Node, Value
from ..kernels import Binding, Dispatch, Scratch
from ..kernels.dispatch import padded
from ..ops.lowering import View
from .arena import ALIGNMENT, ArenaPlanner
from .hazards import HazardTracker
from .program import (
    BarrierStep,
    CopyStep,
    DeviceSegment,
    DeviceStep,
    DispatchStep,
    HostSegment,
    Location,
    Segment,
)


class Layout:
    """See the module's docstring; after ``finish()`` its attributes make up a program."""

    def __init__(self, graph: Graph, profile: DeviceProfile) -> None:
        self.graph = graph
        self.profile = profile
        block_limit = min(profile.max_memory_allocation_size, profile.max_buffer_size)
        self.arena = ArenaPlanner(block_limit // ALIGNMENT * ALIGNMENT)
        self.segments: list[Segment] = []
        self.constants: list[Value] = []
        self.params = bytearray()
        self.host_size = 0
        self._constant_index: dict[Value, int] = {}
        self._places: dict[Value, Location] = {}
        self._host_places: dict[Value, Location] = {}
        self._steps: list[DeviceStep] = []
        self._flops = 0
        self._hazards = HazardTracker()
        self._host_nodes: list[Node] = []
        self._index = 0
        self._roots = self._find_roots()
        self._inputs = {v: name for name, v in graph.inputs.items()}
        # The first output name of each root written by a node: that node writes it in place.
        self._output_of: dict[Value, str] = {}
        for name, value in graph.outputs.items():
            root = self._root(value)
            if root in graph.producers:
                self._output_of.setdefault(root, name)
        self._last_use = self._find_last_uses()
        self._host_last_use = {
            value: i
            for i, node in enumerate(graph.nodes)
            if node.on_cpu
            for value in node.inputs
        }
        self._on_device = self._find_device_values()
        self._expiring: dict[int, list[Value]] = {}

    # -- analysis ------------------------------------------------------------------------------
    def _find_roots(self) -> dict[Value, Value]:
        roots: dict[Value, Value] = {}
        for node in self.graph.nodes:
            if isinstance(node.operator.lowering, View) and not node.on_cpu:
                source = node.inputs[0]
                roots[node.output] = roots.get(source, source)
        return roots

    def _root(self, value: Value) -> Value:
        return self._roots.get(value, value)

    def _find_last_uses(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for i, node in enumerate(self.graph.nodes):
            for value in node.inputs:
                last[self._root(value)] = i
        for value in self.graph.outputs.values():
            last[self._root(value)] = len(self.graph.nodes)
        return last

    def _find_device_values(self) -> set[Value]:
        """Roots that need device memory: touched by a device node, or an output."""
        found = {self._root(v) for v in self.graph.outputs.values()}
        for node in self.graph.nodes:
            if not node.on_cpu:
                found.update(self._root(v) for v in (*node.inputs, *node.outputs))
        return found

    # -- places --------------------------------------------------------------------------------
    def place(self, value: Value) -> Location:
        """The device memory of a value, allotted at its first use."""
        root = self._root(value)
        if root not in self._places:
            size = padded(root.descriptor.byte_length)
            if root in self._inputs:
                where = Location("input", self._inputs[root], 0, size)
            elif root.is_constant:
                where = Location("constant", self._constant(root), 0, size)
            elif root in self._output_of:
                where = Location("output", self._output_of[root], 0, size)
            else:
                block, offset = self.arena.allocate(size)
                where = Location("arena", block, offset, size)
                last = self._last_use.get(root, self._index)
                self._expiring.setdefault(max(last, self._index), []).append(root)
            self._places[root] = where
        return self._places[root]

    def _constant(self, value: Value) -> int:
        if value not in self._constant_index:
            self._constant_index[value] = len(self.constants)
            self.constants.append(value)
        return self._constant_index[value]

    def _host_place(self, value: Value) -> Location:
        if value not in self._host_places:
            size = padded(value.descriptor.byte_length)
            self._host_places[value] = Location("host", 0, self.host_size, size)
            self.host_size += -(-size // ALIGNMENT) * ALIGNMENT
        return self._host_places[value]

    # -- nodes ---------------------------------------------------------------------------------
    def view_node(self, node: Node) -> None:
        """Nothing to run: the output is the source's memory."""
        self._end_host_segment()
        self._advance()

    def device_node(self, node: Node, dispatches: Sequence[Dispatch]) -> None:
        self._end_host_segment()
        for value in node.inputs:
            self._fetch(value)
        scratch: dict[Scratch, Location] = {}
        for dispatch in dispatches:
            self._dispatch(node, dispatch, scratch)
        for place in scratch.values():
            self.arena.free(int(place.key), place.offset, place.size)
        self._advance()

    def host_node(self, node: Node) -> None:
        if not self._host_nodes:
            self._end_device_segment_for_host()
        self._host_nodes.append(node)
        self._advance()

    def _advance(self) -> None:
        for root in self._expiring.pop(self._index, ()):
            place = self._places[root]
            self.arena.free(int(place.key), place.offset, place.size)
        self._index += 1

    def _dispatch(self, node: Node, dispatch: Dispatch, scratch: dict[Scratch, Location]) -> None:
        spec = dispatch.spec
        bindings: list[Location] = []
        reads: list[Location] = []
        writes: list[Location] = []
        given = iter(dispatch.bindings)
        for buffer in spec.buffers:
            for _ in range(buffer.windows):
                place = self._binding(next(given), scratch)
                bindings.append(place)
                if "r" in buffer.access:
                    reads.append(place)
                if "w" in buffer.access:
                    writes.append(place)
        push = spec.pack_params(dispatch.params) if spec.params else b""
        if spec.param_storage == "buffer":
            offset = len(self.params)
            self.params += push.ljust(-(-len(push) // ALIGNMENT) * ALIGNMENT, b"\0")
            bindings.append(Location("params", 0, offset, len(push)))
            push = b""
        ids, data = spec.pack_constants(dispatch.constants)
        constants = tuple((i, data[4 * n : 4 * n + 4]) for n, i in enumerate(ids))
        self._barrier(reads, writes)
        self._steps.append(
            DispatchStep(spec, constants, push, tuple(bindings), dispatch.groups, node.title)
        )
        self._flops += dispatch.flops

    def _binding(self, binding: Binding, scratch: dict[Scratch, Location]) -> Location:
        target = binding.value
        if isinstance(target, Scratch):
            if target not in scratch:
                block, offset = self.arena.allocate(padded(target.size))
                scratch[target] = Location("arena", block, offset, padded(target.size))
            place = scratch[target]
        else:
            place = self.place(target)
        size = place.size - binding.offset if binding.size is None else binding.size
        if binding.offset + size > place.size:
            raise ValueError(f"a binding of {binding.offset}+{size} bytes exceeds {place}")
        return Location(place.space, place.key, place.offset + binding.offset, size)

    def _barrier(self, reads: Sequence[Location], writes: Sequence[Location]) -> None:
        if self._hazards.step(reads, writes):
            self._steps.append(BarrierStep())

    def _copy(self, source: Location, target: Location) -> None:
        self._barrier([source], [target])
        self._steps.append(CopyStep(source, target))

    # -- borders -------------------------------------------------------------------------------
    def _fetch(self, value: Value) -> None:
        """Bring a value that the CPU computed onto the device, at its first use there."""
        root = self._root(value)
        producer = self.graph.producers.get(root)
        if root in self._places or producer is None or not producer.on_cpu:
            return
        self._copy(self._host_place(root), self.place(root))

    def _end_device_segment_for_host(self) -> None:
        """Leave in the host block what the CPU nodes that follow will read."""
        upcoming = []
        for node in self.graph.nodes[self._index :]:
            if not node.on_cpu:
                break
            upcoming.append(node)
        made = {v for node in upcoming for v in node.outputs}
        for value in dict.fromkeys(v for node in upcoming for v in node.inputs):
            if value in made or value.data is not None or value in self._host_places:
                continue
            producer = self.graph.producers.get(value)
            if producer is not None and producer.on_cpu:
                continue
            self._fetch(value)
            self._copy(self.place(value), self._host_place(value))
        self._flush()

    def _end_host_segment(self) -> None:
        if not self._host_nodes:
            return
        nodes = tuple(self._host_nodes)
        self._host_nodes = []
        reads = {
            v: self._host_places[v] for node in nodes for v in node.inputs if v in self._host_places
        }
        writes = {
            v: self._host_place(v) for node in nodes for v in node.outputs if v in self._on_device
        }
        end = self._index
        dead = []
        for i, node in enumerate(nodes, start=end - len(nodes)):
            values = dict.fromkeys((*node.inputs, *node.outputs))
            dead.append(tuple(v for v in values if self._host_last_use.get(v, -1) <= i))
        self.segments.append(HostSegment(nodes, reads, writes, tuple(dead)))

    def _flush(self) -> None:
        if self._steps:
            self.segments.append(DeviceSegment(tuple(self._steps), self._flops))
        self._steps, self._flops = [], 0
        self._hazards.reset()

    def finish(self) -> None:
        """Write every output that no kernel wrote in place, and end the last segment."""
        self._end_host_segment()
        for name, value in self.graph.outputs.items():
            root = self._root(value)
            if self._output_of.get(root) == name:
                self._fetch(value)
                continue
            self._fetch(root)
            target = Location("output", name, 0, padded(value.descriptor.byte_length))
            self._copy(self.place(root), target)
        self._flush()
