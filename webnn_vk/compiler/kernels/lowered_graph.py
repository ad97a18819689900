"""A graph whose device nodes have become dispatches: what `program/` lays out in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from webnn_vk.support.dataclass import dataclass

from ..ir import Node, Value
from .dispatch import Dispatch


@dataclass(frozen=True)
class DeviceWork:
    """Dispatches that compute one kernel's results. ``titles`` name the operators in it, for
    reports; what is read and written stands in the dispatches' bindings. ``Scratch`` memory is
    shared by the dispatches of one ``DeviceWork`` and dead after it."""

    titles: tuple[str, ...]
    dispatches: tuple[Dispatch, ...]
    reason: str = ""
    #: Each element that is written is read by the same invocation only, before.
    in_place: bool = False


@dataclass(frozen=True)
class HostWork:
    """A node that the CPU computes, and why."""

    node: Node
    reason: str


@dataclass(frozen=True)
class Alias:
    """``output`` lies in the memory of ``source``, from byte ``offset`` on: it has the same
    elements in the same order, or a range of them. It may stand before the work that makes either.
    """

    output: Value
    source: Value
    offset: int = 0


@dataclass(frozen=True)
class RepeatWork:
    """The work of ``body``, ``count`` times. ``states``: what a repetition reads, the first of
    these, what it makes of it, and the last of these. ``scanned``: what a repetition reads, and
    the whole of which it is a slice along the first dimension; ``stacked``: what a repetition
    makes, and the whole; each with whether slices go from the last to the first. Nodes of the CPU
    are not in the body."""

    titles: tuple[str, ...]
    count: int
    body: LoweredGraph
    states: tuple[tuple[Value, Value, Value, Value], ...]
    scanned: tuple[tuple[Value, Value, bool], ...]
    stacked: tuple[tuple[Value, Value, bool], ...]
    reason: str = ""

    @property
    def repetitions(self) -> int:
        """All of them, with the repetitions of loops in the body."""
        inside = (work for work in self.body.works if isinstance(work, RepeatWork))
        return self.count * (1 + sum(work.repetitions for work in inside))

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values that have to be there before the first repetition."""
        captured = (work.source for work in self.body.works if isinstance(work, Alias))
        return (*(s[1] for s in self.states), *(s[1] for s in self.scanned), *captured)

    @property
    def writes(self) -> tuple[Value, ...]:
        """The values that are there after the last repetition."""
        return (*(s[3] for s in self.states), *(s[1] for s in self.stacked))


@dataclass(frozen=True)
class LoweredGraph:
    """Work in the order of execution. ``folded`` are the titles of nodes that were computed when
    the graph was built."""

    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    works: tuple[DeviceWork | HostWork | Alias | RepeatWork, ...]
    folded: tuple[str, ...] = ()
    #: Inputs whose memory an output takes over: input → output.
    donated: Mapping[str, str] = field(default_factory=dict)
