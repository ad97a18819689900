"""Step lowering: the works of a ``LoweredGraph`` become steps over slots.

Slots have no place in memory yet, and there are no barriers (see ``memory`` and ``hazards``). A
view shares the slot of its source, a part is in the slot of the whole, and a graph output is
written in place. Values are copied between device and CPU at the borders: before a run of CPU steps
that reads them, and before the first device step that reads a CPU step's result.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import ALIGNMENT
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import padded, round_up

from ..ir import Value
from ..kernels.dispatch import Binding, Dispatch, Packed, Scratch
from ..kernels.lowered_graph import Alias, DeviceWork, HostWork, LoweredGraph, RepeatWork
from .overwriting import overwritten_early
from .program import (
    CopyStep,
    CpuStep,
    CpuTensor,
    DispatchStep,
    Origin,
    Range,
    RepeatStep,
    SetupPart,
    Slot,
    buffer_accesses,
)
from .symbolic import SizedParams, packed_params


@dataclass
class OpenSegment:
    """A segment of a program while its steps are collected, without barriers."""

    on_host: bool
    steps: list[DispatchStep | CopyStep | CpuStep | RepeatStep] = field(default_factory=list)


def lower_steps(graph: LoweredGraph, profile: DeviceProfile | None) -> StepLowering:
    """The steps of a graph. ``profile`` None is the CPU device, where CPU steps work on the tensors
    and constants themselves; elsewhere they see "host" slots and constants from host memory."""
    lowering = StepLowering(graph, profile)
    works = (work for work in graph.works if not isinstance(work, Alias))
    for kind, run in itertools.groupby(works, type):
        if kind is HostWork:
            lowering.cpu_run(list(run))
        else:
            for work in run:
                if isinstance(work, RepeatWork):
                    lowering.repeat_work(work)
                else:
                    lowering.device_work(work)
    lowering.finish()
    return lowering


def packing_name(packing: object) -> str:
    """A name of a packing, equal for equal packings in every process: the class and its fields."""
    if not dataclasses.is_dataclass(packing):
        raise TypeError(f"{type(packing).__name__} is not a dataclass, as packings have to be")
    fields = {f.name: getattr(packing, f.name) for f in dataclasses.fields(packing)}
    text = json.dumps(fields, sort_keys=True, default=operator.index)
    return f"{type(packing).__name__}({text})"


class StepLowering:
    """``segments`` in order of execution. ``setup`` parts come without barriers and places for
    their scratch; ``constants`` are the values by number."""

    def __init__(self, graph: LoweredGraph, profile: DeviceProfile | None) -> None:
        self.graph, self.profile = graph, profile
        self.slots: list[Slot] = []
        self.segments: list[OpenSegment] = []
        self.setup: list[SetupPart] = []
        self.constants: list[Value] = []
        self.origins: list[Origin] = []
        self.params: list[bytes | SizedParams] = []
        self._params_size = 0
        self._aliases = _resolved(w for w in _all_works(graph) if isinstance(w, Alias))
        self._inputs = {v: name for name, v in graph.inputs.items()}
        # On the CPU device the runtime copies what is overwritten.
        self._donated = {} if profile is None else dict(graph.donated)
        self._in_place: set[int] = set()
        produced = set(self._produced())
        # The first output name of each value that a work computes, which writes it in place.
        self._output_of: dict[Value, str] = {}
        for name, value in graph.outputs.items():
            if self._root(value) in produced:
                self._output_of.setdefault(self._root(value), name)
        self._on_device = self._device_values()
        # Slots of values on the device, in memory shared with the CPU, and as arrays of the CPU.
        self._device_slots: dict[Value, int] = {}
        self._host_slots: dict[Value, int] = {}
        self._arrays: dict[Value, int] = {}
        self._packed: dict[Packed, int] = {}
        self._copied: set[Value] = set()
        self._params_slot: int | None = None

    # -- analysis ------------------------------------------------------------------------------
    def _root(self, value: Value) -> Value:
        """The value that has the memory."""
        return self._aliases.get(value, (value, 0))[0]

    def _produced(self) -> Iterator[Value]:
        for work in _all_works(self.graph):
            if isinstance(work, HostWork):
                yield from work.node.outputs
            elif isinstance(work, RepeatWork):
                yield from map(self._root, work.writes)
            elif isinstance(work, DeviceWork):
                for dispatch in work.dispatches:
                    for binding, _, write in buffer_accesses(dispatch.spec, dispatch.bindings):
                        if write and isinstance(binding.value, Value):
                            yield self._root(binding.value)

    def _device_values(self) -> set[Value]:
        """Roots that need device memory: bound by a dispatch, or an output."""
        found = {self._root(v) for v in self.graph.outputs.values()}
        for work in _all_works(self.graph):
            if isinstance(work, DeviceWork):
                targets = [b.value for d in work.dispatches for b in d.bindings]
                found.update(self._root(v) for v in targets if isinstance(v, Value))
            elif isinstance(work, RepeatWork):
                found.update(map(self._root, (*work.reads, *work.writes)))
        return found

    # -- slots ---------------------------------------------------------------------------------
    def _add(self, slot: Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def _slot(self, value: Value) -> int:
        """The slot of a value on the device (on the CPU device: of a tensor or constant)."""
        root = self._root(value)
        if root not in self._device_slots:
            size = padded(root.descriptor.byte_length)
            if root in self._inputs:
                slot = Slot("input", size, name=self._inputs[root], descriptor=root.descriptor)
                if slot.name in self._donated:
                    slot = replace(slot, kind="output", name=self._donated[slot.name])
            elif root.is_constant:
                slot = Slot("constant", size, index=len(self.constants))
                self.constants.append(root)
            elif root in self._output_of:
                name = self._output_of[root]
                slot = Slot("output", size, name=name, descriptor=root.descriptor)
            else:
                slot = Slot("arena", size, descriptor=root.descriptor)
            self._device_slots[root] = self._add(slot)
        return self._device_slots[root]

    def _host_slot(self, root: Value) -> int:
        if root not in self._host_slots:
            size = padded(root.descriptor.byte_length)
            self._host_slots[root] = self._add(Slot("host", size, descriptor=root.descriptor))
        return self._host_slots[root]

    def _whole(self, slot: int) -> Range:
        return Range(slot, 0, self.slots[slot].size)

    # -- the device ----------------------------------------------------------------------------
    def device_work(self, work: DeviceWork, segment: OpenSegment | None = None) -> None:
        """The dispatches of one kernel, after copies of the CPU's results that they read."""
        segment = segment or self._segment(on_host=False)
        for dispatch in work.dispatches:
            for binding, read, _ in buffer_accesses(dispatch.spec, dispatch.bindings):
                if read and isinstance(binding.value, Value):
                    self._copy_to_device(binding.value, segment)
        origin = self._origin(work.titles, "vulkan", work.reason)
        scratch: dict[Scratch, int] = {}
        for dispatch in work.dispatches:
            step = self._dispatch(dispatch, origin, scratch, "arena")
            if work.in_place:
                self._in_place.add(id(step))
            segment.steps.append(step)

    def repeat_work(self, work: RepeatWork, segment: OpenSegment | None = None) -> None:
        """The steps of a loop's body once, between copies of the slices and states of a repetition
        from and to their places: the same memory each time, and so the same descriptors."""
        segment = segment or self._segment(on_host=False)
        for value in work.reads:
            self._copy_to_device(value, segment)
        body = OpenSegment(on_host=False)
        for state, first, _, _ in work.states:
            segment.steps.append(CopyStep(self._exact(first), self._exact(state)))
        for part, whole, backward in work.scanned:
            body.steps.append(self._slice(whole, part, work.count, backward, reads=True))
        for inner in work.body.works:
            if isinstance(inner, DeviceWork):
                self.device_work(inner, body)
            elif isinstance(inner, RepeatWork):
                self.repeat_work(inner, body)
        for part, whole, backward in work.stacked:
            body.steps.append(self._slice(whole, part, work.count, backward, reads=False))
        # A state may become another one: all are read before the first is written.
        read = {self._root(state) for state, *_ in work.states}
        moved = [(made, state) for state, _, made, _ in work.states
                 if self._exact(made) != self._exact(state)]
        for number, (made, state) in enumerate(moved):
            if self._root(made) in read:
                aside = self._add(Slot("arena", padded(made.descriptor.byte_length)))
                place = Range(aside, 0, made.descriptor.byte_length)
                body.steps.append(CopyStep(self._exact(made), place))
                moved[number] = place, state
        for made, state in moved:
            source = made if isinstance(made, Range) else self._exact(made)
            body.steps.append(CopyStep(source, self._exact(state)))
        origin = self._origin(work.titles, "vulkan", work.reason)
        segment.steps.append(RepeatStep(work.count, tuple(body.steps), origin))  # type: ignore[arg-type]
        for state, _, _, last in work.states:
            segment.steps.append(CopyStep(self._exact(state), self._exact(last)))

    def _exact(self, value: Value) -> Range:
        """The bytes of a value, without the padding of its slot."""
        start = self._aliases.get(value, (value, 0))[1]
        return Range(self._slot(value), start, value.descriptor.byte_length)

    def _slice(
        self, whole: Value, part: Value, count: int, backward: bool, reads: bool
    ) -> CopyStep:
        """The copy of one slice after the other from or to the whole."""
        here, size = self._exact(part), part.descriptor.byte_length
        outer = self._exact(whole)
        first = Range(outer.slot, outer.offset + (count - 1) * size * backward, size)
        stride = -size if backward else size
        if reads:
            return CopyStep(first, here, (stride, 0))
        return CopyStep(here, first, (0, stride))

    def _dispatch(
        self, dispatch: Dispatch, origin: int, scratch: dict[Scratch, int], kind: str
    ) -> DispatchStep:
        spec = dispatch.spec
        bindings = [self._binding(binding, scratch, kind) for binding in dispatch.bindings]
        push = packed_params(spec, dispatch.params)
        if spec.param_storage == "buffer":
            bindings.append(self._store_params(push))
            push = b""
        return DispatchStep(
            spec,
            dispatch.specialised,
            push,
            tuple(bindings),
            dispatch.groups,
            origin,
            dispatch.kernel,
            dispatch.variant,
            dispatch.flops,
            dispatch.bytes,
        )

    def _binding(self, binding: Binding, scratch: dict[Scratch, int], kind: str) -> Range:
        start = 0
        match binding.value:
            case Scratch() as target:
                if target not in scratch:
                    scratch[target] = self._add(Slot(kind, padded(target.size)))
                slot = scratch[target]
                available = self.slots[slot].size
            case Packed() as target:
                slot = self._packed_slot(target)
                available = self.slots[slot].size
            case target:
                slot = self._slot(target)
                start = self._aliases.get(target, (target, 0))[1]
                available = padded(target.descriptor.byte_length)
        size = available - binding.offset if binding.size is None else binding.size
        if binding.offset + size > available:
            raise ValueError(
                f"a binding of {binding.offset}+{size} bytes exceeds {available} of slot "
                f"{self.slots[slot]}"
            )
        return Range(slot, start + binding.offset, size)

    def _store_params(self, data: bytes | SizedParams) -> Range:
        offset, room = self._params_size, round_up(len(data), ALIGNMENT)
        self.params += [data, bytes(room - len(data))]
        self._params_size += room
        if self.profile is not None and self.profile.whole_bindings:
            slot = self._add(Slot("params", room, offset=offset))
            return Range(slot, 0, len(data))
        if self._params_slot is None:
            self._params_slot = self._add(Slot("params", 0))
        self.slots[self._params_slot] = Slot("params", self._params_size)
        return Range(self._params_slot, offset, len(data))

    def _packed_slot(self, packed: Packed) -> int:
        """The slot of a packed constant. The first use adds the set-up part that fills it."""
        root, described = self._root(packed.value), packed.value.descriptor
        if packed not in self._packed:
            if not root.is_constant or self.profile is None:
                raise ValueError(f"only constants on a device are packed, not {described}")
            number = len(self.setup)
            slot = self._packed[packed] = self._add(
                Slot("packed", padded(packed.size), index=number)
            )
            constant = self.slots[self._slot(root)].index
            # The same bytes seen in another shape may be packed in another way.
            name = f"{packing_name(packed.packing)} of {described}"
            self.setup.append(SetupPart(slot, constant, name))
            origin = self._origin((f"constant {constant}",), "vulkan", name)
            scratch: dict[Scratch, int] = {}
            steps = tuple(
                self._dispatch(dispatch, origin, scratch, "scratch")
                for dispatch in packed.packing.pack(packed, self.profile)
            )
            for used in scratch.values():
                self.slots[used] = replace(self.slots[used], index=number)
            self.setup[number] = replace(self.setup[number], steps=steps)
        return self._packed[packed]

    def _copy_to_device(self, value: Value, segment: OpenSegment) -> None:
        """Copy a value that the CPU computed to the device, at its first use there."""
        root = self._root(value)
        if self.profile is not None and root in self._arrays and root not in self._copied:
            self._copied.add(root)
            self._copy(self._host_slot(root), self._slot(root), segment)

    def _copy(self, source: int, target: int, segment: OpenSegment) -> None:
        size = min(self.slots[source].size, self.slots[target].size)
        segment.steps.append(CopyStep(Range(source, 0, size), Range(target, 0, size)))

    # -- the CPU -------------------------------------------------------------------------------
    def cpu_run(self, works: Sequence[HostWork]) -> None:
        """Consecutive CPU steps, after copies of the device's results that they read."""
        computed = {v for work in works for v in work.node.outputs}
        read = [v for work in works for v in work.node.inputs]
        borders = self._segment(on_host=False)
        for root in dict.fromkeys(map(self._root, read)):
            if self.profile is None or root in computed or root in self._arrays:
                continue
            if root.source is not None:
                self._keep_on_host(root)
            elif root.data is None and root not in self._host_slots:
                self._copy(self._slot(root), self._host_slot(root), borders)
        for work in works:
            self._segment(on_host=True).steps.append(self._cpu_step(work))

    def _keep_on_host(self, root: Value) -> None:
        """Copy a constant tensor that CPU steps read to host memory, once, at set-up."""
        if root not in self._host_slots:
            source, target = self._slot(root), self._host_slot(root)
            constant = self.slots[source].index
            copy = CopyStep(self._whole(source), self._whole(target))
            self.setup.append(SetupPart(target, constant, steps=(copy,)))

    def _cpu_step(self, work: HostWork) -> CpuStep:
        node = work.node
        operands = {
            name: CpuTensor(self._readable(value), value.descriptor)
            for name, value in node.operands.items()
        }
        results = []
        for value in node.outputs:
            if self.profile is None:
                slot = self._slot(value) if value in self._output_of else self._array(value)
            elif value in self._on_device:
                slot = self._host_slot(value)
            else:
                slot = self._array(value)
            self._arrays[value] = slot
            results.append(CpuTensor(slot, value.descriptor))
        origin = self._origin((node.title,), "cpu", work.reason)
        return CpuStep(node.operator.name, node.arguments, operands, tuple(results), origin)

    def _array(self, value: Value) -> int:
        size = padded(value.descriptor.byte_length)
        return self._add(Slot("array", size, descriptor=value.descriptor))

    def _readable(self, value: Value) -> int:
        """The slot from which a CPU step reads a value."""
        root = self._root(value)
        if root in self._arrays:
            return self._arrays[root]
        if self.profile is None or root.data is not None:
            return self._slot(root)
        return self._host_slots[root]

    # -- the rest ------------------------------------------------------------------------------
    def _segment(self, on_host: bool) -> OpenSegment:
        """The segment for the next steps: the last one if these run on the same side."""
        if self.segments and not self.segments[-1].steps:
            self.segments.pop()
        if not self.segments or self.segments[-1].on_host != on_host:
            self.segments.append(OpenSegment(on_host))
        return self.segments[-1]

    def _origin(self, operators: tuple[str, ...], device: str, reason: str) -> int:
        self.origins.append(Origin(operators, device, reason))
        return len(self.origins) - 1

    def finish(self) -> None:
        """Write every output that no work wrote in place, and mark where arrays are dead."""
        segment = self._segment(on_host=self.profile is None)
        for name, value in self.graph.outputs.items():
            root = self._root(value)
            self._copy_to_device(root, segment)
            if self._output_of.get(root) != name:
                size = padded(root.descriptor.byte_length)
                target = Slot("output", size, name=name, descriptor=value.descriptor)
                self._copy(self._slot(root), self._add(target), segment)
        for past, present in self._donated.items():
            if past in self.graph.inputs:
                self._keep_what_is_read_late(self.graph.inputs[past], present)
        self._mark_dead()

    def _keep_what_is_read_late(self, past: Value, present: str) -> None:
        """Copy a donated input first, if steps read elements of it that were overwritten before."""
        source = self._device_slots.get(past)
        if source is None:
            return
        slot = self.slots[source]
        targets = {
            number for number, other in enumerate(self.slots)
            if (other.kind, other.name) == ("output", present) and number != source
        }
        steps = [step for segment in self.segments for step in segment.steps]
        in_place = [id(step) in self._in_place for step in steps]
        if not any(overwritten_early(steps, in_place, source, target) for target in targets):
            return
        memory = self._add(slot)
        self.slots[source] = replace(slot, kind="arena", name="")
        if self.segments[0].on_host:
            self.segments.insert(0, OpenSegment(on_host=False))
        copy = CopyStep(self._whole(memory), self._whole(source))
        self.segments[0].steps.insert(0, copy)

    def _mark_dead(self) -> None:
        seen: set[int] = set()
        for segment in reversed(self.segments):
            for number, step in reversed([*enumerate(segment.steps)]):
                if not isinstance(step, CpuStep):
                    continue
                touched = [t.slot for t in (*step.operands.values(), *step.results)]
                dead = tuple(s for s in dict.fromkeys(touched) if s not in seen)
                seen.update(touched)
                segment.steps[number] = replace(step, dead=dead)


def _all_works(graph: LoweredGraph) -> Iterator[DeviceWork | HostWork | Alias | RepeatWork]:
    """The works of a graph and of the loops in it."""
    for work in graph.works:
        yield work
        if isinstance(work, RepeatWork):
            yield from _all_works(work.body)


def _resolved(aliases: Iterable[Alias]) -> dict[Value, tuple[Value, int]]:
    """For each alias the value that has the memory, and the byte of it that the alias begins at."""
    known = {alias.output: alias for alias in aliases}
    places: dict[Value, tuple[Value, int]] = {}
    for value in known:
        path: list[Alias] = []
        while value in known and value not in places:
            path.append(known[value])
            value = known[value].source
        root, offset = places.get(value, (value, 0))
        for alias in reversed(path):
            offset += alias.offset
            places[alias.output] = (root, offset)
    return places
