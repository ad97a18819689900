"""A bound on the time of a workload from the ISA of its kernels: the same formula for everybody's.

Multiply-adds times what one costs in the loop that does them: the loop's instructions of the vector
unit, the bytes of its LDS instructions, or those of its loads and stores, whichever takes a compute
unit longest. Kernels without multiply-adds cost what their instructions cost, once for each
invocation. Nothing runs: waits, caches and the memory behind them are left out, so the time is never
less than this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webnn_vk.codegen.isa.listing import Block, Kind, Mix, loops, main_loop, mix


@dataclass(frozen=True)
class Chip:
    """Compute units, their clock, and what one does in a cycle: instructions of the vector unit for
    this many lanes, bytes to and from LDS and the vector cache."""

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
#: Side of the transformed tiles of Winograd's convolutions of 3 × 3 taps: squares of these are the
#: numbers of products that one is divided into.
WINOGRAD_SIDES = (4, 6, 8)


@dataclass(frozen=True)
class Cost:
    """Cycles of a compute unit that one lane takes of each of its ports."""

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
        """The one that takes longest."""
        return max(("issue", "lds", "memory"), key=lambda name: float(getattr(self, name)))


@dataclass(frozen=True)
class Layer:
    """A product of a workload. ``winograd``: its multiply-adds by the side of the transformed
    tiles, where it is a convolution that Winograd's way can compute."""

    multiply_adds: int
    winograd: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Kernel:
    """What counts of a compiled kernel. ``per_fma``: of the loop that does the multiply-adds, or
    where these are in no loop of the whole kernel; None where it has none. ``looped``: whether they
    are in a loop. ``share``: of the multiply-adds in what that part issues. ``once``: of every
    instruction run once; ``repeated``: (cost, bytes loaded) of one turn of each innermost loop that
    loads."""

    per_fma: Cost | None
    looped: bool
    share: float
    once: Cost
    repeated: tuple[tuple[Cost, int], ...] = ()


@dataclass(frozen=True)
class Dispatch:
    """A use of a kernel. ``multiply_adds``: of the workload that it does, 0 where it only moves or
    transforms."""

    kernel: Kernel
    groups: tuple[int, int, int]
    local_size: tuple[int, int, int]
    multiply_adds: int = 0

    @property
    def workgroups(self) -> int:
        return math.prod(self.groups)

    @property
    def invocations(self) -> int:
        return self.workgroups * math.prod(self.local_size)


@dataclass(frozen=True)
class Bound:
    """Microseconds at least: of the ``products``, of ``all`` dispatches, and of all where no
    workgroup is shared between compute units (``whole``). ``port`` and ``share`` are those of the
    dispatch that takes longest, ``workgroups`` its number of them."""

    products: float
    all: float
    whole: float
    port: str
    share: float
    workgroups: int
    dispatches: int


def cost(found: Mix, chip: Chip) -> Cost:
    """What a lane costs that runs these instructions once."""
    moved = [*found.loads.items(), *found.stores.items()]
    return Cost(
        (found.kinds[Kind.FMA] + found.kinds[Kind.VECTOR]) / chip.lanes,
        sum(width * count for width, count in found.lds.items()) / chip.lds,
        sum(max(width, 4) * count for width, count in moved) / chip.memory,
    )


def judged(blocks: Sequence[Block], chip: Chip) -> Kernel:
    """What counts of a listing."""
    everything, loop = mix(blocks), mix(main_loop(blocks))
    part = loop if loop.multiply_adds else everything
    per_fma = None
    if part.multiply_adds:
        per_fma = cost(part, chip).times(1 / part.multiply_adds)
    issued = sum(
        part.kinds[kind] for kind in (Kind.FMA, Kind.VECTOR, Kind.LDS, Kind.MEMORY)
    )
    share = part.kinds[Kind.FMA] / issued if issued else 0.0
    found = loops(blocks)
    innermost = [
        each for each in found
        if not any(other is not each and set(other) < set(each) for other in found)
    ]
    turns = [mix(each) for each in innermost]
    repeated = tuple(
        (cost(turn, chip), sum(width * count for width, count in turn.loads.items()))
        for turn in turns if turn.loads
    )
    return Kernel(per_fma, loop.multiply_adds > 0, share, cost(everything, chip), repeated)


def attributed(layers: Sequence[Layer], dispatches: Sequence[Dispatch]) -> list[Dispatch] | None:
    """The dispatches with the multiply-adds that each does of a workload's layers, which are taken
    to come in the same order; None where the two don't match.

    Those with multiply-adds in a loop are the layers'; where there are fewer of them than layers,
    those without a loop are too.
    """
    if not layers:
        return list(dispatches)
    candidates: list[int] = []
    for loops_alone in (True, False):
        candidates = [
            n for n, dispatch in enumerate(dispatches)
            if dispatch.kernel.per_fma and (dispatch.kernel.looped or not loops_alone)
        ]
        if len(candidates) >= len(layers):
            break
    if len(candidates) != len(layers):
        return None
    done = list(dispatches)
    for layer, n in zip(layers, candidates, strict=True):
        done[n] = _given(dispatches[n], layer)
    return done


def _given(dispatch: Dispatch, layer: Layer) -> Dispatch:
    deep = dispatch.groups[2] * dispatch.local_size[2]
    by_tiles = {side * side: count for side, count in layer.winograd}
    count = by_tiles.get(deep, layer.multiply_adds)
    return Dispatch(dispatch.kernel, dispatch.groups, dispatch.local_size, count)


def winograd(channels: int, outputs: int, height: int, width: int) -> tuple[tuple[int, int], ...]:
    """`Layer.winograd` of a convolution of 3 × 3 taps and stride 1 with this output."""
    return tuple(
        (side, side**2 * channels * outputs
         * math.ceil(height / (side - 2)) * math.ceil(width / (side - 2)))
        for side in WINOGRAD_SIDES
    )


def bound(dispatches: Iterable[Dispatch], chip: Chip, elements: int = 0) -> Bound:
    """The bound of a workload whose dispatches know their multiply-adds.

    elements: of 4 bytes, that a workload without products reads; its loops that load then turn as
    often as that takes. Where it is 0, as within a model, every loop without products counts once.
    """
    products = total = whole = 0.0
    longest: tuple[float, str, float, int] = 0.0, "", 0.0, 0
    number = 0
    for number, dispatch in enumerate(dispatches, 1):
        kernel = dispatch.kernel
        if dispatch.multiply_adds and kernel.per_fma:
            spent = kernel.per_fma.times(dispatch.multiply_adds)
            products += spent.cycles
        else:
            spent = kernel.once.times(dispatch.invocations)
            for turn, loaded in kernel.repeated if elements else ():
                turns = 4 * elements / loaded - dispatch.invocations
                spent += turn.times(max(turns, 0))
        total += spent.cycles
        rounds = math.ceil(dispatch.workgroups / chip.units) * chip.units
        whole += spent.cycles * rounds / dispatch.workgroups
        share = kernel.share if dispatch.multiply_adds else 0.0
        longest = max(longest, (spent.cycles, spent.port, share, dispatch.workgroups))
    rate = chip.units * chip.gigahertz * 1e3
    return Bound(products / rate, total / rate, whole / rate, *longest[1:], dispatches=number)
