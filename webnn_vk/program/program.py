"""A program: what runs at each dispatch, with every address resolved to a location."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from webnn_vk.codegen.spec import KernelSpec

from ..data_types import MLOperandDescriptor
from ..graph import Node, Value
from .report import GraphReport


@dataclass(frozen=True)
class Location:
    """A range of bytes in one of the program's spaces.

    ``space`` is "input" or "output" (``key`` its name), "constant" (``key`` its index), "arena"
    (``key`` the block), "params" or "host" (one block each).
    """

    space: str
    key: str | int
    offset: int
    size: int


@dataclass(frozen=True)
class DispatchStep:
    """One compute dispatch: pipeline by (spec, constants), descriptors by location."""

    spec: KernelSpec
    constants: tuple[tuple[int, bytes], ...]
    push: bytes
    bindings: tuple[Location, ...]
    groups: tuple[int, int, int]
    title: str


@dataclass(frozen=True)
class CopyStep:
    """Copy ``target.size`` bytes between locations."""

    source: Location
    target: Location


@dataclass(frozen=True)
class BarrierStep:
    """What follows sees the memory effects of what came before."""


DeviceStep = DispatchStep | CopyStep | BarrierStep


@dataclass(frozen=True)
class DeviceSegment:
    """Steps for one command buffer."""

    steps: tuple[DeviceStep, ...]
    flops: int = 0


@dataclass(frozen=True)
class HostSegment:
    """Nodes that the CPU computes, in order.

    ``reads`` are the values that earlier device segments left in the host block, ``writes`` those
    that later ones take from it. ``dead`` lists, per node, values no one on the CPU needs after it.
    """

    nodes: tuple[Node, ...]
    reads: Mapping[Value, Location] = field(default_factory=dict)
    writes: Mapping[Value, Location] = field(default_factory=dict)
    dead: tuple[tuple[Value, ...], ...] = ()


Segment = DeviceSegment | HostSegment


@dataclass(frozen=True)
class Program:
    """A compiled graph. Immutable; holds no handle, so one program may serve many contexts.

    ``constants`` are uploaded once; ``arenas`` and ``host_size`` are sizes in bytes of the memory
    that intermediates share; ``params`` is the parameter memory of kernels whose parameters
    exceed the push constants. A program for the CPU device is one HostSegment whose values are
    found by name: ``inputs`` and ``outputs`` give the graph's values.
    """

    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    segments: tuple[Segment, ...]
    constants: tuple[Value, ...]
    arenas: tuple[int, ...]
    host_size: int
    params: bytes
    report: GraphReport

    @property
    def input_descriptors(self) -> dict[str, MLOperandDescriptor]:
        return {name: v.descriptor for name, v in self.inputs.items()}

    @property
    def output_descriptors(self) -> dict[str, MLOperandDescriptor]:
        return {name: v.descriptor for name, v in self.outputs.items()}

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """Every distinct shader, in order of first use."""
        return tuple(
            dict.fromkeys(
                step.spec
                for segment in self.segments
                if isinstance(segment, DeviceSegment)
                for step in segment.steps
                if isinstance(step, DispatchStep)
            )
        )
