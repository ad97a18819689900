"""A bound on the time of a workload from the ISA of its kernels, by one formula for all engines.

Each instruction of a kernel counts as often as it runs in a dispatch (`turns`). A dispatch takes a
compute unit as long as its vector instructions, the bytes of its LDS instructions, or the bytes of
its loads and stores: whichever takes longest. Nothing runs: waits, caches and memory are left out,
so the real time is never less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webnn_vk.codegen.isa.listing import Block, Kind, Mix, mix

from .execution import Loop
from .turns import executions


@dataclass(frozen=True)
class Chip:
    """The number of compute units, their clock, and the work of one in a cycle: lanes of vector
    instructions, bytes to and from LDS and the vector cache."""

    units: int
    gigahertz: float
    lanes: int
    lds: int
    memory: int


#: Published figures of the largest card with each chip: Vega 64, RX 6900 XT, RX 7900 XTX. The
#: architectures' papers have lanes and bytes: RDNA doubled what the cache gives a cycle.
CHIPS = {
    "VEGA10": Chip(64, 1.546, 64, 128, 64),
    "NAVI21": Chip(80, 2.25, 64, 128, 128),
    "GFX1100": Chip(96, 2.5, 64, 128, 128),
}


@dataclass(frozen=True)
class Cost:
    """Cycles of each port of a compute unit that one lane takes."""

    issue: float = 0.0
    lds: float = 0.0
    memory: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.issue + other.issue, self.lds + other.lds, self.memory + other.memory)

    def times(self, factor: float) -> Cost:
        return Cost(self.issue * factor, self.lds * factor, self.memory * factor)

    @property
    def cycles(self) -> float:
        return max(self.issue, self.lds, self.memory)

    @property
    def port(self) -> str:
        """The port that takes longest."""
        return max(("issue", "lds", "memory"), key=lambda name: float(getattr(self, name)))


@dataclass(frozen=True)
class Kernel:
    """The cost of a compiled kernel in a dispatch. ``one``: an invocation; ``share``: of
    multiply-adds in what it issues to vector unit, LDS and memory; ``multiply_adds``: of an
    invocation."""

    one: Cost
    share: float
    multiply_adds: float


@dataclass(frozen=True)
class Dispatch:
    """A use of a kernel."""

    kernel: Kernel
    groups: tuple[int, int, int]
    local_size: tuple[int, int, int]

    @property
    def workgroups(self) -> int:
        return math.prod(self.groups)

    @property
    def invocations(self) -> int:
        return self.workgroups * math.prod(self.local_size)


@dataclass(frozen=True)
class Bound:
    """Microseconds at least: of ``all`` dispatches, and of all where no workgroup is shared between
    compute units (``whole``). ``port``, ``share`` and ``workgroups`` describe the dispatch that
    takes longest."""

    all: float
    whole: float
    port: str
    share: float
    workgroups: int
    dispatches: int


def cost(found: Mix, chip: Chip) -> Cost:
    """The cost of running these instructions once in one lane."""
    moved = [*found.loads.items(), *found.stores.items()]
    return Cost(
        (found.kinds[Kind.FMA] + found.kinds[Kind.VECTOR]) / chip.lanes,
        sum(width * count for width, count in found.lds.items()) / chip.lds,
        sum(max(width, 4) * count for width, count in moved) / chip.memory,
    )


def judged(blocks: Sequence[Block], module: Loop, chip: Chip) -> Kernel:
    """The cost of a listing whose module has these loops. `Undetermined` where how often its loops
    turn can't be told."""
    total, issued, adding, done = Cost(), 0.0, 0.0, 0.0
    for block, count in executions(blocks, module):
        found = mix([block])
        total += cost(found, chip).times(count)
        adding += count * found.kinds[Kind.FMA]
        done += count * found.multiply_adds
        issued += count * sum(
            found.kinds[kind] for kind in (Kind.FMA, Kind.VECTOR, Kind.LDS, Kind.MEMORY)
        )
    return Kernel(total, adding / issued if issued else 0.0, done)


def bound(dispatches: Sequence[Dispatch], chip: Chip) -> Bound:
    """The bound of a workload."""
    total = whole = 0.0
    longest: tuple[float, str, float, int] = 0.0, "", 0.0, 0
    for dispatch in dispatches:
        kernel = dispatch.kernel
        spent = kernel.one.times(dispatch.invocations)
        total += spent.cycles
        rounds = math.ceil(dispatch.workgroups / chip.units) * chip.units
        whole += spent.cycles * rounds / dispatch.workgroups
        longest = max(longest, (spent.cycles, spent.port, kernel.share, dispatch.workgroups))
    rate = chip.units * chip.gigahertz * 1e3
    return Bound(total / rate, whole / rate, *longest[1:], len(dispatches))
