"""The cost of a schedule: a model of the time that a device takes, from the problem's and the
schedule's numbers and a few parameters of the device (``heuristics.device_classes``).

A pure function over plain data, by which ``choose`` compares candidates. Its unit is the unit of
the parameters: nanoseconds where they were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log2
from typing import Any

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from .schedule import Schedule


@dataclass(frozen=True)
class CostParameters:
    """The costs of operations on a class of devices.

    units: workgroups that run side by side. width: invocations of a SIMD group. registers: values
    that an invocation keeps without spilling. The others are costs for one SIMD group: a
    multiply-add; an element (4 bytes) loaded from a storage buffer, as a part of a texel, from
    shared memory; an element stored; a barrier; the start of a workgroup. compile: what the driver
    takes to compile the code of one sum, divided by the runs that a graph is made for.
    """

    units: int
    width: int
    registers: int
    multiply_add: float
    storage: float
    texel: float
    shared: float
    store: float
    barrier: float
    group: float
    compile: float

    def element(self, load: str, alone: bool = False) -> float:
        """The cost of loading an element in this way: as one of a vector, or ``alone``, which takes
        a texel as long as the four of a vector."""
        if load == "texel":
            return self.texel * 4 if alone else self.texel
        return self.storage


@dataclass(frozen=True)
class Workload:
    """The work of a dispatch: its workgroups, the invocations of each, and what each invocation
    does, edges included. ``loads`` are elements from buffers in whole vectors, ``singles`` those
    loaded one at a time, ``registers`` values that it keeps, ``unrolled`` the sums for each of
    which its code is repeated (0: few).
    """

    groups: int
    invocations: int
    multiply_adds: float
    loads: float
    stores: float
    singles: float = 0
    shared: float = 0
    barriers: float = 0
    registers: int = 1
    unrolled: int = 0


def estimate(problem: Any, schedule: Schedule, device: CostParameters) -> float | None:
    """The modelled time of a schedule for a problem that it can compute; None where the model
    doesn't know the kernel."""
    works = _works(problem, schedule)
    return sum(_time(work, schedule.load, device) for work in works) if works else None


def compiling(problem: Any, schedule: Schedule, device: CostParameters) -> float:
    """What a run pays for compiling a schedule; 0 where the model doesn't know the kernel."""
    return device.compile * sum(work.unrolled for work in _works(problem, schedule))


def registers(problem: Any, schedule: Schedule) -> int:
    """The values that an invocation keeps, in the dispatch that keeps most; 0 where the model
    doesn't know the kernel."""
    return max((work.registers for work in _works(problem, schedule)), default=0)


def _works(problem: Any, schedule: Schedule) -> list[Workload]:
    """The dispatches of a schedule; none where the model doesn't know the kernel."""
    describe = _DESCRIBE.get(schedule.kernel)
    return describe(problem, schedule) if describe else []


def _time(work: Workload, load: str, device: CostParameters) -> float:
    one = (
        work.multiply_adds * device.multiply_add
        + work.loads * device.element(load)
        + work.singles * device.element(load, alone=True)
        + work.shared * device.shared
        + work.stores * device.store
        + work.barriers * device.barrier
    )
    # Values that don't fit in registers go through memory at every use.
    one *= max(1.0, work.registers / device.registers)
    waves = max(1.0, work.groups / device.units)
    return waves * (device.group + ceil_divide(work.invocations, device.width) * one)


# -- products -------------------------------------------------------------------------------------
def _tile(s: Schedule, groups: int, k: int) -> Workload:
    """Tiles of TM × TN in registers, operands straight from the buffers."""
    tm, tn = s["TM"], s["TN"]
    return Workload(
        groups, s["LX"] * s["LY"], k * tm * tn, k * (tm + tn), tm * tn,
        registers=tm * tn + tm + tn, unrolled=tm * tn if tm > 1 else 0,
    )


def _shared_tile(s: Schedule, groups: int, k: int) -> Workload:
    """The same, with operands in shared memory that a workgroup loads in steps of BK."""
    tm, tn, lanes, steps = s["TM"], s["TN"], s["LX"] * s["LY"], ceil_divide(k, s["BK"])
    k = steps * s["BK"]
    loaded = k * (s["LY"] * tm + s["LX"] * tn) / lanes
    return Workload(
        groups, lanes, k * tm * tn, loaded, tm * tn, shared=k * (tm + tn) + loaded,
        barriers=2 * steps, registers=tm * tn + tm + tn + ceil_divide(s["BK"] * loaded, k),
    )


def _matmul(p: Any, s: Schedule) -> list[Workload]:
    return [_tile(s, p.batches * s.tiles(p.m, p.n), p.k)]


def _matmul_rows(p: Any, s: Schedule) -> list[Workload]:
    """Lanes below each other share what they load of b."""
    tm, tn = s["TM"], s["TN"]
    return [Workload(
        p.batches * s.tiles(p.m, p.n), s["LX"], p.k * tm * tn, p.k * (tm + tn / s["LX"]), tm * tn,
        registers=tm * tn + tm + tn, unrolled=tm * tn,
    )]


def _matmul_tiled(p: Any, s: Schedule) -> list[Workload]:
    groups = s.parts * p.batches * s.tiles(p.m, p.n)
    return [_shared_tile(s, groups, ceil_divide(p.k, s.parts)), *_sum(p, s.parts)]


def _sum(p: Any, parts: int) -> list[Workload]:
    """The second dispatch of a product in parts adds up their sums, four columns an invocation."""
    if parts == 1:
        return []
    count = ceil_divide(p.batches * p.m * p.n, 4)
    return [Workload(ceil_divide(count, 64), 64, 4 * parts, 4 * parts, 4, registers=8)]


def _coopmat(p: Any, s: Schedule) -> list[Workload]:
    """Comparable with each other: multiply-adds cost as much here as in other kernels."""
    lanes, rows, columns = s["LX"], s["BM"], s["BN"]
    steps = ceil_divide(p.k, s.parts * s["BK"])
    k, sums = steps * s["BK"], rows * columns / lanes
    shared = loaded = k * (rows + columns) / lanes
    registers = 0
    if s.by_matrices:
        shared += k * (s["WM"] * s["FM"] + s["WN"] * s["FN"]) / s["SUBGROUP"]
        registers = _of_fragments(p, s)
    groups = s.parts * p.batches * s.tiles(p.m, p.n)
    work = Workload(groups, lanes, k * sums, loaded, sums, shared=shared, barriers=2 * steps,
                    registers=registers)
    return [work, *_sum(p, s.parts)]


def _of_fragments(p: Any, s: Schedule) -> int:
    """The values that an invocation keeps of a product by cooperative matrices: its share of a
    subgroup's sums, of the fragments of a, and of one of b; vectors of the next tile, with two
    addresses each."""
    halves = 2 if p.data_type == "float16" else 1
    lanes, rows, columns = s["SUBGROUP"], s["WM"] * s["FM"], s["WN"] * s["FN"]
    fragments = ceil_divide((rows + s["FN"]) * s["FK"], halves * lanes)
    vectors = sum(ceil_divide(s[side] * s["BK"], 4 * halves * s["LX"]) for side in ("BM", "BN"))
    return ceil_divide(rows * columns, lanes) + fragments + 6 * vectors


def _matvec(p: Any, s: Schedule) -> list[Workload]:
    """TM rows an invocation, times TR vectors; those beside it share their inner dimension. Their
    sums are added up by halves, or at once where there are as many outputs as sums of each. AHEAD
    steps are loaded at once: of vectors of a, and of b an element where a is stored transposed."""
    p, tm, numbers = p.by_vector, s["TM"], dict(s.numbers)
    tr, ahead = numbers.get("TR", 1), numbers.get("AHEAD", 1)
    outputs = tm * tr
    along, beside = (s["LX"], s["LY"]) if p.a_transposed else (s["LY"], s["LX"])
    steps = ceil_divide(p.k, beside)
    groups = p.batches * ceil_divide(p.m, tm * along)
    rounds = 0.0 if beside == 1 else 1 if beside <= outputs else log2(beside)
    shared = 2 * outputs if rounds == 1 else outputs * (1 + 3 * rounds)
    kept = ahead * (4 + tr if p.a_transposed else 4 * tm + 4 * tr) if ahead > 1 else tm + tr
    return [Workload(groups, along * beside, outputs * steps, (tm + tr) * steps, outputs,
                     shared=shared if rounds else 0, barriers=rounds, registers=outputs + kept)]


@dataclass(frozen=True)
class MatrixTimes:
    """What products by cooperative matrices take on a device, measured: microseconds.

    steps: by rows and columns of a tile what 32 steps of the inner dimension take, and how many
    workgroups of a core run side by side. launch, joining: of a dispatch, and of the one that adds
    up parts, beside the rest. cached, stored: kilobytes that come from the cache, and that the sums
    of parts take to memory and back, for each core.
    """

    steps: Mapping[tuple[int, int], tuple[float, int]]
    launch: float
    joining: float
    cached: float
    stored: float

    def of(self, p: Any, s: Schedule, cores: int) -> float:
        """Of a product: its steps wait for each other, or all tiles' operands for the cache."""
        rows, columns = s["BM"], s["BN"]
        each, beside = self.steps[rows, columns]
        tiles = p.batches * s.tiles(p.m, p.n)
        steps = ceil_divide(tiles * s.parts, cores * beside) * ceil_divide(p.k, 32 * s.parts) * each
        operands = tiles * (rows + columns) * p.k * 2 / (1000 * self.cached * cores)
        time = self.launch + max(steps, operands)
        if s.parts > 1:
            sums = 8 * s.parts * p.batches * p.m * p.n
            time += self.joining + sums / (1000 * self.stored * cores)
        return time


# -- convolutions ---------------------------------------------------------------------------------
def _taps(g: Any) -> int:
    return g.IC * g.KH * g.KW


def _pixels(g: Any) -> int:
    return g.N * g.OH * g.OW


def _by_fours(g: Any) -> bool:
    """Whether input channels are loaded in vectors."""
    return g.xc == 1 and not g.IC % 4


def _conv(g: Any, s: Schedule) -> list[Workload]:
    tc, tp, k = s["TC"], s["TP"], _taps(g)
    lanes = s["LX"], s["LY"]
    channels, along = lanes if s["CHANNEL_LANES"] else lanes[::-1]
    groups = g.G * ceil_divide(g.OC, channels * tc) * ceil_divide(_pixels(g), along * tp)
    elements = k * (tc + tp)
    vectors = _by_fours(g) and g.fc == 1
    # A constant filter is reordered, so that it is loaded in vectors too: one for each channel, and
    # for a pixel at a time.
    operands = 4 * (tc + 1) if _by_fours(g) and (g.fc == 1 or g.constant) else tc + tp
    # The phase of the outputs, and the steps between its taps.
    phase = 6 if g.transposed else 0
    return [Workload(
        groups, lanes[0] * lanes[1], k * tc * tp, elements if vectors else 0, tc * tp,
        0 if vectors else elements, registers=tc * tp + operands + phase, unrolled=tc * tp,
    )]


def _conv_wide(g: Any, s: Schedule) -> list[Workload]:
    """The filter in vectors of output channels."""
    tc, tp, k = s["TC"], s["TP"], _taps(g)
    groups = g.G * ceil_divide(g.OC, tc) * ceil_divide(_pixels(g), s["LX"] * tp)
    vectors = _by_fours(g)
    return [Workload(
        groups, s["LX"], k * tc * tp, k * (tc + tp * vectors), tc * tp,
        # The filter is the same for all invocations of a workgroup: it takes scalar registers.
        0 if vectors else k * tp, registers=tc * tp + tp, unrolled=tc * tp,
    )]


def _conv_tiled(g: Any, s: Schedule) -> list[Workload]:
    extents = (_pixels(g), g.OC) if g.channels_last else (g.OC, _pixels(g))
    work = _shared_tile(s, g.G * s.tiles(*extents), _taps(g))
    # Positions of a tap and of a pixel, and of four elements if channels are loaded one by one.
    positions = 6 if g.channels_last and g.IC % 4 else 2
    return [replace(work, registers=work.registers + positions)]


def _conv_coopmat(g: Any, s: Schedule) -> list[Workload]:
    """The product; the columns take as long by each."""
    return _coopmat(g.columns, s)


def _conv_depthwise(g: Any, s: Schedule) -> list[Workload]:
    """TP outputs below each other, and 4 side by side where rows are stored in vectors, or inputs
    read as texels."""
    tall = s["TP"]
    rows = g.xw == g.ys == 1 and not (g.W % 4 or g.OW % 4)
    side = 4 if rows or (s.load == "texel" and g.xw == g.ys == 1) else 1
    reach = (side - 1) * g.SW + (g.KW - 1) * g.DW
    across = 4 * (reach // 4 + 2) if rows else reach + 1 if side > 1 else g.KW
    loads = ((tall - 1) * g.SH + (g.KH - 1) * g.DH + 1) * across + g.KH * g.KW
    count = g.N * g.G * g.OC * ceil_divide(g.OH, tall) * ceil_divide(g.OW, side)
    return [Workload(ceil_divide(count, s["LX"]), s["LX"], g.KH * g.KW * tall * side, loads,
                     tall * side, registers=tall * side + across)]


def _winograd(g: Any, s: Schedule) -> list[Workload]:
    """Transforms, an addition or two for each point and row, around a product for each point."""
    tile = s["TILE"]
    side = tile + 2
    points = side * side
    tiles = g.N * ceil_divide(g.OH, tile) * ceil_divide(g.OW, tile)
    columns = ceil_divide(g.OC, s["LX"] * s["TN"])
    product = Workload(
        points * ceil_divide(tiles, s["TM"]) * columns, s["LX"], g.IC * s["TM"] * s["TN"],
        g.IC * (s["TM"] + s["TN"]), s["TM"] * s["TN"],
        registers=s["TM"] * s["TN"] + s["TM"] + s["TN"],
    )
    return [
        Workload(ceil_divide(tiles * g.IC, 8), 8, 2 * points * side, points, points,
                 registers=points),
        product,
        # For four channels, half of each row's remaining points, before columns become pixels:
        # compilers interleave the two steps.
        Workload(ceil_divide(tiles * g.OC, 8), 8, 2 * points * side, points, tile * tile,
                 registers=max(points, 2 * tile * side)),
    ]


def _winograd_tiled(g: Any, s: Schedule) -> list[Workload]:
    """The same, an invocation for each tile and channel, around products with tiles in shared
    memory."""
    tile = s["TILE"]
    side = tile + 2
    points = side * side
    tiles = g.N * ceil_divide(g.OH, tile) * ceil_divide(g.OW, tile)
    extents = (tiles, g.OC) if g.channels_last else (g.OC, tiles)
    return [
        Workload(ceil_divide(tiles * g.IC, 64), 64, 2 * points * side, 0, points, points,
                 registers=points),
        _shared_tile(s, points * s.tiles(*extents), g.IC),
        Workload(ceil_divide(tiles * g.OC, 64), 64, 2 * points * side, 0, tile * tile, points,
                 registers=points),
    ]


# -- the others -----------------------------------------------------------------------------------
def _attention(p: Any, s: Schedule) -> list[Workload]:
    """Queries of a workgroup read each key and value once between them."""
    numbers = dict(s.numbers)
    lanes, high, tall, parts = s["LX"], s["LY"], s["TM"], numbers.get("LZ", 1)
    groups = s.parts * p.batches * ceil_divide(p.rows, high * tall)
    steps = ceil_divide(p.keys, 4 * lanes * parts * s.parts)
    each = 4 * steps * (p.depth + p.width)
    work = Workload(
        groups, lanes * high * parts, tall * each, each + tall * p.depth, tall * p.width / lanes,
        shared=tall * steps * 4, barriers=steps,
        registers=tall * (4 * s["TE"] + 4) + max(9, 16 * numbers.get("AHEAD", 0)),
    )
    if s.parts == 1:
        return [work]
    sums = s.parts * p.batches * p.rows * (p.width + 4) / 64
    return [work, Workload(ceil_divide(p.batches * p.rows * p.width, 256), 64, sums, sums, 4)]


def _attention_tiled(p: Any, s: Schedule) -> list[Workload]:
    """The same, with tiles of queries, keys and values in shared memory."""
    tall, lanes = s["TM"], s["LX"] * s["LY"]
    groups = p.batches * ceil_divide(p.rows, s["LY"] * tall)
    steps = ceil_divide(p.keys, 4 * s["LX"])
    each = 4 * steps * (p.depth + p.width)
    loaded = p.keys * (p.depth + p.width) / lanes
    return [Workload(
        groups, lanes, tall * each, loaded + tall * p.depth / s["LX"], tall * p.width / s["LX"],
        shared=(1 + tall / 4) * each + loaded, barriers=2 * steps * ceil_divide(p.depth, s["DC"]),
        registers=tall * (4 * s["TE"] + 4) + 4 + tall + 4 * ceil_divide(s["VC"], s["LX"]),
    )]


def _rows_of(problem: Any) -> Any:
    """The rows of a normalisation, a reduction, or of a problem that is rows itself."""
    if hasattr(problem, "split"):
        return problem.rows() if callable(problem.rows) else problem.rows
    return problem


def _rows(problem: Any, s: Schedule) -> list[Workload]:
    """A row for each invocation, 16 in a workgroup, or one for each workgroup."""
    rows, lanes = _rows_of(problem), s["lanes"]
    chunks = dict(s.numbers).get("chunks", 1)
    count, length = rows.rows * chunks, ceil_divide(rows.length, chunks)
    own = ceil_divide(length, lanes)
    rounds = log2(lanes) if lanes > 1 else 0
    groups, size = (count, lanes) if lanes > 1 else (ceil_divide(count, 16), min(count, 16))
    vectors = rows.contiguous and not length % 4
    reads = own * rows.passes
    works = [Workload(groups, size, reads, reads * vectors, own, reads * (not vectors),
                      shared=2 * rounds, barriers=rounds, registers=8)]
    if chunks > 1:
        works.append(Workload(ceil_divide(rows.rows, 16), min(rows.rows, 16), chunks, 0, 1, chunks))
    return works


def _subgroups(problem: Any, s: Schedule) -> list[Workload]:
    """A workgroup keeps ``rows`` rows at a time in registers; sums by subgroups cost next to
    nothing."""
    rows, lanes, together = _rows_of(problem), s["lanes"], s["rows"]
    own = together * ceil_divide(rows.length, lanes)
    reads = own * rows.passes
    return [Workload(ceil_divide(rows.rows, together), lanes, reads, reads, own, registers=2 * own)]


def _elementwise(p: Any, s: Schedule) -> list[Workload]:
    items, operands = 4 * s["ITEMS"], max(1, len(p.modes))
    together = dict(s.numbers).get("TOGETHER", 1)
    return [Workload(ceil_divide(p.size, s["LX"] * items), s["LX"], items * max(1, p.statements),
                     items * operands, items, registers=4 * operands * (together - 1) + 8)]


_DESCRIBE: Mapping[str, Callable[[Any, Schedule], list[Workload]]] = {
    "matmul": _matmul,
    "matmul_rows": _matmul_rows,
    "matmul_tiled": _matmul_tiled,
    "matmul_coopmat": _coopmat,
    "matvec": _matvec,
    "conv": _conv,
    "conv_wide": _conv_wide,
    "conv_tiled": _conv_tiled,
    "conv_coopmat": _conv_coopmat,
    "conv_depthwise": _conv_depthwise,
    "winograd": _winograd,
    "winograd_tiled": _winograd_tiled,
    "attention": _attention,
    "attention_parted": _attention,
    "attention_tiled": _attention_tiled,
    "group": _rows,
    "invocation": _rows,
    "subgroups": _subgroups,
    "elementwise": _elementwise,
}
#: The kernels that the model knows.
KERNELS = frozenset(_DESCRIBE)
