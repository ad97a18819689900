"""A program: the steps that run at set-up and at each dispatch, as plain data.

Memory is numbered *slots*, work is *steps* that name ranges of slots. No step refers to a
graph, a device or an array: constants are numbers into a ``Constants`` store beside the program,
operators of CPU steps are names. One program serves many contexts and can be written to a file
(``serial``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.dataclass import dataclass

from ..types.data_types import MLOperandDescriptor
from .graph_report import GraphReport

if TYPE_CHECKING:
    from ..ir import Graph

T = TypeVar("T")

#: Values of specialisation constants: number and 4 bytes of each.
SpecConstants = tuple[tuple[int, bytes], ...]
#: Is told the module and the constants of each pipeline as soon as its dispatch is planned. A later
#: plan may do without it.
Planned = Callable[[KernelSpec, SpecConstants], None]

#: Kinds of slots; see ``Slot``.
KINDS = (
    "input", "output", "constant", "packed", "arena", "scratch", "params", "host", "array",
)


@dataclass(frozen=True)
class Slot:
    """One piece of memory of ``size`` bytes (padded to whole vectors).

    ``kind``
      * "input", "output": the tensor given to a dispatch for ``name``
      * "constant": number ``index`` of the constants
      * "packed": filled by part ``index`` of the set-up
      * "arena": ``offset`` in block ``index`` of the memory that intermediates share
      * "scratch": ``offset`` in the memory that lasts for part ``index`` of the set-up
      * "params": parameters that exceed the push constants, from ``offset`` of the program's
        ``params`` on
      * "host": ``offset`` in the memory that device copies and CPU steps share
      * "array": a result that only CPU steps read, anywhere in host memory

    ``descriptor`` of the tensor in the slot, for pictures; programs from files don't have it.
    """

    kind: str
    size: int
    name: str = ""
    index: int = 0
    offset: int = 0
    descriptor: MLOperandDescriptor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Range:
    """``size`` bytes of a slot from ``offset`` on."""

    slot: int
    offset: int
    size: int


@dataclass(frozen=True)
class Origin:
    """The origin of steps, for reports: operators with their labels, device and reason."""

    operators: tuple[str, ...]
    device: str
    reason: str


def buffer_accesses(spec: KernelSpec, bindings: Iterable[T]) -> Iterator[tuple[T, bool, bool]]:
    """(binding, whether it is read, whether it is written) of every buffer of a kernel."""
    bound = iter(bindings)
    for buffer in spec.buffers:
        for _ in range(buffer.portions):
            yield next(bound), "r" in buffer.access, "w" in buffer.access


@dataclass(frozen=True)
class DispatchStep:
    """One compute dispatch: pipeline by (spec, constants), descriptors by range. ``bindings``
    follow the spec's buffers, then the parameter memory if there is any. ``origin`` is a number
    into the program's origins; ``flops`` and ``bytes`` are of this dispatch."""

    spec: KernelSpec
    constants: SpecConstants
    push: bytes
    bindings: tuple[Range, ...]
    groups: tuple[int, int, int]
    origin: int
    kernel: str = ""
    variant: str = ""
    flops: int = 0
    bytes: int = 0

    def accesses(self) -> Iterator[tuple[Range, bool, bool]]:
        """(range, whether it is read, whether it is written) of every buffer."""
        return buffer_accesses(self.spec, self.bindings)


@dataclass(frozen=True)
class CopyStep:
    """Copy ``source`` to ``target``, of equal size. Where the step is repeated, both begin so many
    bytes later each time as ``strides`` say."""

    source: Range
    target: Range
    strides: tuple[int, int] = (0, 0)

    def accesses(self) -> Iterator[tuple[Range, bool, bool]]:
        """As of a ``DispatchStep``."""
        yield self.source, True, False
        yield self.target, False, True


@dataclass(frozen=True)
class BarrierStep:
    """Steps after the barrier see the memory effects of the steps before it."""


@dataclass(frozen=True)
class RepeatStep:
    """``steps``, ``count`` times, one after the other: one recording, whose commands differ from
    one time to the next only in the places of copies. Copies of a loop inside begin again at their
    first place each time."""

    count: int
    steps: tuple[DispatchStep | CopyStep | BarrierStep | RepeatStep, ...]
    origin: int

    def accesses(self) -> Iterator[tuple[Range, bool, bool]]:
        """As of a ``DispatchStep``, of all repetitions together."""
        for step in self.steps:
            if isinstance(step, CopyStep):
                yield self._whole(step.source, step.strides[0]), True, False
                yield self._whole(step.target, step.strides[1]), False, True
            elif not isinstance(step, BarrierStep):
                yield from step.accesses()

    def _whole(self, place: Range, stride: int) -> Range:
        way = stride * (self.count - 1)
        return Range(place.slot, place.offset + min(way, 0), place.size + abs(way))


DeviceStep = DispatchStep | CopyStep | BarrierStep | RepeatStep


def executed(
    steps: Iterable[DeviceStep], times: int = 1
) -> Iterator[tuple[int, DispatchStep | CopyStep]]:
    """The dispatches and copies among the steps and in their loops, with the number of times that
    each runs."""
    for step in steps:
        if isinstance(step, RepeatStep):
            yield from executed(step.steps, times * step.count)
        elif not isinstance(step, BarrierStep):
            yield times, step


@dataclass(frozen=True)
class CpuTensor:
    """A slot as an array of a CPU step."""

    slot: int
    descriptor: MLOperandDescriptor


@dataclass(frozen=True)
class CpuStep:
    """An operator's NumPy reference. ``operands`` by the operator's names (``inputs[0]`` … for a
    sequence), absent ones left out; ``dead`` are slots whose arrays no later CPU step reads."""

    operator: str
    arguments: Mapping[str, Any]
    operands: Mapping[str, CpuTensor]
    results: tuple[CpuTensor, ...]
    origin: int
    dead: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeviceSegment:
    """Steps for one command buffer."""

    steps: tuple[DeviceStep, ...]


@dataclass(frozen=True)
class HostSegment:
    """Steps of the CPU, while the device is idle. Copies occur only on the CPU device, where every
    slot is host memory."""

    steps: tuple[CpuStep | CopyStep, ...]


Segment = DeviceSegment | HostSegment


@dataclass(frozen=True)
class SetupPart:
    """Steps that fill the slot ``target`` once, from one constant, with ``scratch`` bytes of
    scratch memory. Parts with the same non-empty ``packing`` compute the same result from the same
    constant: graphs share it."""

    target: int
    constant: int
    packing: str = ""
    scratch: int = 0
    steps: tuple[DeviceStep, ...] = ()


Originals = tuple[tuple[tuple[int, str], ...], ...]


@dataclass(frozen=True)
class Program:
    """A compiled graph.

    ``setup`` runs once, ``segments`` at each dispatch. ``constants`` describes what the store of
    constants holds; ``arenas`` and ``host_size`` are sizes in bytes of the memory that
    intermediates and border copies share; ``params`` is the content of the "params" slot. A program
    for the CPU device has one HostSegment.

    ``donated`` maps inputs to the outputs that take over their memory. On a device no slot is of
    such an input: steps read its elements from the "output" slot, which holds them when the program
    begins (the runtime copies them there from a tensor of its own). On the CPU device the runtime
    keeps a copy of the input where both are one tensor.

    ``compiled`` is the graph that the program was compiled from, with numbers for its constants
    (see ``assemble.without_weights``), or the text that files have for it (``compiled_from.py``).
    ``originals`` says, by the constants' numbers in that graph, which constants of the program hold
    them and with which packing ("" for unchanged elements). If it is empty, the numbers are equal.
    """

    inputs: Mapping[str, MLOperandDescriptor]
    outputs: Mapping[str, MLOperandDescriptor]
    slots: tuple[Slot, ...]
    segments: tuple[Segment, ...]
    setup: tuple[SetupPart, ...] = ()
    constants: tuple[MLOperandDescriptor, ...] = ()
    arenas: tuple[int, ...] = ()
    host_size: int = 0
    params: bytes = b""
    origins: tuple[Origin, ...] = ()
    report: GraphReport = field(default_factory=GraphReport)
    compiled: Graph | str | None = field(default=None, compare=False, repr=False)
    originals: Originals = field(default=(), compare=False, repr=False)
    donated: Mapping[str, str] = field(default_factory=dict)

    @property
    def device_steps(self) -> Iterator[DeviceStep]:
        """Every step for the device that is part of a dispatch."""
        for segment in self.segments:
            if isinstance(segment, DeviceSegment):
                yield from segment.steps

    @property
    def cpu_steps(self) -> Iterator[CpuStep]:
        """Every operator that the CPU computes."""
        for segment in self.segments:
            if isinstance(segment, HostSegment):
                yield from (step for step in segment.steps if isinstance(step, CpuStep))

    @property
    def dispatches(self) -> Iterator[DispatchStep]:
        """Every dispatch; the dispatches of the set-up come first."""
        yield from self.dispatches_of_setup
        yield from self.dispatches_of_a_run

    @property
    def dispatches_of_setup(self) -> Iterator[DispatchStep]:
        """The dispatches of the set-up."""
        for part in self.setup:
            yield from (step for step in part.steps if isinstance(step, DispatchStep))

    @property
    def dispatches_of_a_run(self) -> Iterator[DispatchStep]:
        """The dispatches that are not of the set-up. Repeated steps count once."""
        for _, step in executed(self.device_steps):
            if isinstance(step, DispatchStep):
                yield step

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """Every distinct shader, in order of first use."""
        return tuple(dict.fromkeys(step.spec for step in self.dispatches))

    @property
    def flops(self) -> int:
        """Floating-point operations of one run on the device."""
        return sum(
            times * step.flops for times, step in executed(self.device_steps)
            if isinstance(step, DispatchStep)
        )

    def resident_constants(self) -> frozenset[int]:
        """Numbers of the constants that the device reads at each dispatch."""
        return frozenset(
            self.slots[place.slot].index
            for step in self.device_steps
            if not isinstance(step, BarrierStep)
            for place, _, _ in step.accesses()
            if self.slots[place.slot].kind == "constant"
        )

    def host_constants(self) -> frozenset[int]:
        """Numbers of the constants that the CPU reads at each dispatch."""
        read = {t.slot for step in self.cpu_steps for t in step.operands.values()}
        for segment in self.segments:
            if isinstance(segment, HostSegment):
                read |= {s.source.slot for s in segment.steps if isinstance(s, CopyStep)}
        return frozenset(
            self.slots[slot].index for slot in read if self.slots[slot].kind == "constant"
        )
