"""LoweredGraph → Program: step lowering, memory plan, barriers, report, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import room_for

from ..ir import Graph, Value
from ..kernels.lowered_graph import LoweredGraph
from ..passes.rewrite import Substitution
from ..types.sizes import Size
from .constants import Constants, HostArray, Reference, TensorStorage
from .graph_report import GraphReport
from .hazards import with_barriers
from .make_report import with_report
from .memory import plan_memory, stack_scratch
from .program import (
    CopyStep,
    CpuStep,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Program,
    Range,
    RepeatStep,
    Segment,
    SetupPart,
    Slot,
)
from .steps import OpenSegment, lower_steps
from .symbolic import joined, upper_bound


def assemble(
    graph: LoweredGraph, profile: DeviceProfile | None, compiled: Graph | None = None
) -> tuple[Program, Constants]:
    """The program of a lowered graph (``profile`` None: for the CPU device) and its constants.
    ``compiled``: the graph before lowering. MemoryError if an intermediate exceeds the device's
    largest allocation."""
    lowered = lower_steps(graph, profile)
    # On the CPU device nothing is placed.
    limit = (
        0 if profile is None else min(profile.max_memory_allocation_size, profile.max_buffer_size)
    )
    whole = profile is not None and profile.whole_bindings
    uses = [_touched(step) for segment in lowered.segments for step in segment.steps]

    def room(size: int) -> int:
        return size if profile is None else room_for(size, profile)

    viewed = room if profile is not None and profile.compiles_by_size else int
    # Slots whose sizes are known at dispatch have room for the largest.
    largest = [replace(slot, size=upper_bound(slot.size)) for slot in lowered.slots]
    plan = plan_memory(largest, uses, limit, whole=whole, room=room)
    placed = tuple(map(_with_size_of, plan.slots, lowered.slots))
    setup, slots = _set_up(lowered.setup, placed, room)
    program = Program(
        {name: value.descriptor for name, value in graph.inputs.items()},
        {name: value.descriptor for name, value in graph.outputs.items()},
        slots,
        tuple(_finished(segment, slots, viewed) for segment in lowered.segments if segment.steps),
        setup,
        tuple(value.descriptor for value in lowered.constants),
        plan.arenas,
        plan.host_size,
        joined(lowered.params),
        tuple(lowered.origins),
        compiled=None if compiled is None else without_weights(compiled, lowered.constants),
        donated=dict(graph.donated),
    )
    constants = Constants(map(_reference, lowered.constants))
    if any(isinstance(d, Size) for value in graph.inputs.values() for d in value.shape):
        # The report is made for a shape, of the program that has the shape's numbers.
        return replace(program, report=GraphReport(folded=graph.folded)), constants
    return with_report(program, graph.folded), constants


def _with_size_of(placed: Slot, slot: Slot) -> Slot:
    return placed if placed.size is slot.size else replace(placed, size=slot.size)


def without_weights(graph: Graph, constants: Sequence[Value]) -> Graph:
    """The graph with numbers in place of its constants: their ``source`` is the index in
    ``constants``. Other constants, small numbers in the kernels' code, stay."""
    numbered = Substitution(
        (value, Value(value.descriptor, source=number)) for number, value in enumerate(constants)
    )
    return numbered.rebuild(graph, map(numbered.apply, graph.nodes))


def _reference(value: Value) -> Reference:
    if value.data is None:
        return TensorStorage(value.source)
    return HostArray(value.data, value.key)


def _touched(step: DispatchStep | CopyStep | CpuStep | RepeatStep) -> list[int]:
    if isinstance(step, CpuStep):
        return [t.slot for t in (*step.operands.values(), *step.results)]
    return [place.slot for place, _, _ in step.accesses()]


def _finished(
    segment: OpenSegment, slots: Sequence[Slot], viewed: Callable[[int], int]
) -> Segment:
    if segment.on_host:
        return HostSegment(tuple(segment.steps))
    return DeviceSegment(with_barriers(slots, segment.steps, viewed))


def _set_up(
    parts: Iterable[SetupPart], slots: tuple[Slot, ...], room: Callable[[int], int]
) -> tuple[tuple[SetupPart, ...], tuple[Slot, ...]]:
    """The parts of the set-up with scratch memory and barriers, and the slots."""
    finished = []
    for part in parts:
        places: list[Range] = [place for step in part.steps for place, _, _ in step.accesses()]
        scratch = dict.fromkeys(p.slot for p in places if slots[p.slot].kind == "scratch")
        slots, size = stack_scratch(slots, scratch, room)
        steps = with_barriers(slots, part.steps)
        finished.append(replace(part, steps=steps, scratch=size))
    return tuple(finished), slots
