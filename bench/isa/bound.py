"""A bound on the time of a workload from the ISA of its kernels, by one formula for all engines.

The bound is the number of multiply-adds times the cost of one in the loop that computes them. That
is the cost of the loop's vector instructions, of the bytes of its LDS instructions, or of the bytes
of its loads and stores: the one that takes a compute unit longest. Kernels without such a loop cost
as much as their instructions, once for each invocation. Nothing runs: waits, caches and memory are
left out, so the real time is never less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from webnn_vk.codegen.isa.listing import Block, Kind, Mix, loops, main_loop, mix


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
#: Sides of the transformed tiles of 3 × 3 Winograd convolutions. The square of a side is the number
#: of products that a convolution is divided into.
WINOGRAD_SIDES = (4, 6, 8)


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
class Layer:
    """A product of a workload. ``outputs``: its number of elements; ``needs``: the numbers of the
    products that come before it; ``winograd``: for a convolution that Winograd's algorithm can
    compute, its multiply-adds by the side of the transformed tiles."""

    multiply_adds: int
    outputs: int
    needs: frozenset[int] = frozenset()
    winograd: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Kernel:
    """What counts of a compiled kernel. ``multiply_adds``: of a lane in the part that does them, a
    turn of a loop, or where they are in no loop the whole kernel; ``looped`` says which.
    ``per_fma``: what one costs there. ``share``: of the multiply-adds in what that part issues.
    ``once``: of every instruction run once; ``repeated``: (cost, bytes loaded) of one turn of each
    innermost loop that loads."""

    multiply_adds: int
    per_fma: Cost
    looped: bool
    share: float
    once: Cost
    repeated: tuple[tuple[Cost, int], ...] = ()


@dataclass(frozen=True)
class Dispatch:
    """A use of a kernel. ``multiply_adds``: those of the workload that it computes, 0 where it only
    moves or transforms data."""

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
    """The cost of running these instructions once in one lane."""
    moved = [*found.loads.items(), *found.stores.items()]
    return Cost(
        (found.kinds[Kind.FMA] + found.kinds[Kind.VECTOR]) / chip.lanes,
        sum(width * count for width, count in found.lds.items()) / chip.lds,
        sum(max(width, 4) * count for width, count in moved) / chip.memory,
    )


def judged(blocks: Sequence[Block], chip: Chip) -> Kernel:
    """What counts of a listing."""
    loop = main_loop(blocks)
    chosen = loop or blocks
    everything, part = mix(blocks), mix(chosen)
    # A chain of multiply-adds without an addend begins with a multiplication.
    multiplied = part.multiply_adds and part.multiply_adds + sum(
        i.opcode.startswith("v_mul_f32") for block in chosen for i in block.instructions
    )
    per_fma = cost(part, chip).times(1 / multiplied) if multiplied else Cost()
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
    return Kernel(multiplied, per_fma, bool(loop), share, cost(everything, chip), repeated)


def attributed(layers: Sequence[Layer], dispatches: Sequence[Dispatch]) -> list[Dispatch] | None:
    """The dispatches with the multiply-adds that each does of a workload's layers; None where the
    two don't match.

    Each layer is one dispatch, and comes after those that it needs. A dispatch does the first of
    the layers that may come next for which it has the registers: a turn of its loop multiplies for
    as many outputs as an invocation has, or for more; of several the one with most outputs. What
    fits none, as normalisations, is no product.
    """
    done, left, finished = list(dispatches), dict(enumerate(layers)), set[int]()
    for n, dispatch in enumerate(dispatches):
        fitting = [
            (number, count)
            for number, layer in left.items()
            if layer.needs <= finished and (count := _work(dispatch, layer))
        ]
        if fitting:
            number, count = max(fitting, key=lambda each: layers[each[0]].outputs)
            done[n] = replace(dispatch, multiply_adds=count)
            finished.add(number)
            del left[number]
    return None if left else done


def _work(dispatch: Dispatch, layer: Layer) -> int:
    """The multiply-adds of a dispatch if it computes this layer; 0 where it can't."""
    kernel = dispatch.kernel
    deep = dispatch.groups[2] * dispatch.local_size[2]
    by_tiles = {side * side: count for side, count in layer.winograd}
    count = by_tiles.get(deep, layer.multiply_adds)
    possible = dispatch.invocations * kernel.multiply_adds
    # Without a loop it does all: or half, where it does some in other ways.
    wanted = layer.outputs if kernel.looped else count / 2
    return count if kernel.multiply_adds and possible >= wanted else 0


def winograd(channels: int, outputs: int, height: int, width: int) -> tuple[tuple[int, int], ...]:
    """`Layer.winograd` of a convolution of 3 × 3 taps and stride 1 with this output."""
    return tuple(
        (side, side**2 * channels * outputs
         * math.ceil(height / (side - 2)) * math.ceil(width / (side - 2)))
        for side in WINOGRAD_SIDES
    )


def bound(dispatches: Sequence[Dispatch], chip: Chip, elements: int = 0) -> Bound:
    """The bound of a workload whose dispatches know their multiply-adds.

    elements: of 4 bytes, that a workload without products reads; its loops that load then turn as
    often as that takes. Where it is 0, as within a model, every loop without products counts once.
    """
    products = total = whole = 0.0
    longest: tuple[float, str, float, int] = 0.0, "", 0.0, 0
    for dispatch in dispatches:
        kernel = dispatch.kernel
        if dispatch.multiply_adds:
            looped = kernel.per_fma.times(dispatch.multiply_adds)
            spent = looped if kernel.looped else kernel.once.times(dispatch.invocations)
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
    return Bound(products / rate, total / rate, whole / rate, *longest[1:], len(dispatches))
