"""Matrix products: matmul, gemm, and convolutions that can be computed as such.

Four templates: ``matmul`` (register tiles straight from the buffers: CPUs), ``matmul_tiled``
(shared memory: GPUs), ``matmul_coopmat`` (cooperative matrices: GPUs that have them, see
``coopmat``) and ``matvec`` (M or N is 1). All accumulate in float32. GPUs may cut a long inner
dimension into parts (``split_k``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import round_up

from ..ops.lowering import QuantizedProduct
from ..types.access import Access, collapse
from ..types.data_types import DATA_TYPES
from ..types.sizes import Size
from . import coopmat, split_k
from .dispatch import Dispatch, Packed, Scratch, is_workgroup
from .family import FAMILIES, Family
from .heuristics import device_class
from .loads import has_texels, lanes_that_shuffle
from .node import KernelNode
from .packing import Panels
from .product import Product, fits_bindings, matrix, normalize, pieces
from .product_dispatch import (
    Tensors,
    in_parts,
    one_dispatch,
    row_schedules,
    tile_shape,
    tiled_schedules,
    vectors,
)
from .rows import loop_budget
from .schedule import Schedule

_BY_TILES = ("matmul_tiled", coopmat.KERNEL)
# Sums that go through a scratch buffer are rare: one kernel for them on every device.
_DIRECT = Schedule("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)))
_DIRECT_COLUMN = Schedule("matmul", (("LX", 1), ("LY", 8), ("TM", 8), ("TN", 1)))
# Columns of b for each column of padding that panels for one row may have.
_COLUMNS_PER_PADDING = 50
# Of a matrix times a vector on GPUs: workgroups and an invocation's outputs, the most outputs of a
# workgroup first, where a is stored transposed and where it isn't; vectors loaded ahead.
_DOWN = (
    (32, 8, 4), (16, 16, 4), (16, 32, 4), (8, 32, 4), (16, 64, 4), (8, 64, 4), (4, 64, 4),
    (8, 128, 4), (4, 128, 4), (4, 256, 4),
)
_ALONG = (32, 4, 4), (32, 4, 2), (32, 4, 1), (64, 4, 1), (128, 2, 1), (256, 1, 1)
# The same of many vectors: rows of a share what is loaded of these, where there are registers.
_ALONG_MANY = (32, 4, 4), (32, 4, 2), (64, 4, 2), (128, 2, 2), (32, 4, 1), (64, 4, 1)
_AHEAD = 4, 2
#: Columns of the panels that software Vulkan reads for one row, and for most tiles of more.
PANEL_COLUMNS = 64


class Matmul(Family):
    """See the module's docstring."""

    name = "matmul"
    solves = Product
    templates = ("matmul", "matvec", *_BY_TILES, split_k.KERNEL)
    fuses = True
    weights = "b"

    def takes(self, node: KernelNode, operand: str) -> bool:
        access = node.operands[operand]
        if operand == "c":
            return min(access.strides, default=0) >= 0
        return matrix(_oriented(node, operand)) is not None

    def stores(self, node: KernelNode) -> bool:
        out = node.output
        if not out.is_permutation or out.size != out.value.descriptor.size:
            return False
        # A column vector may lie in any stride: its one column has none.
        return out.shape[-1] == 1 or out.strides[-1] == 1

    def problem(self, node: KernelNode) -> Product:
        """The product that a node with a `Product` lowering is."""
        a, b, out = _oriented(node, "a"), _oriented(node, "b"), node.output
        (m, k), n = a.shape[-2:], b.shape[-1]
        c = node.operand("c")
        shape = out.shape[:-2]
        batch, (a_batch, b_batch, out_batch) = collapse(
            shape,
            a.broadcast((*shape, m, k)).strides[:-2],
            b.broadcast((*shape, k, n)).strides[:-2],
            out.strides[:-2],
        )
        if batch == (1,):
            batch = a_batch = b_batch = out_batch = ()
        (lda, a_transposed), (ldb, b_transposed) = matrix(a), matrix(b)
        return normalize(Product(
            m, n, k, lda, ldb, out.strides[-2] if m > 1 else n, a_transposed, b_transposed,
            batch, a_batch, b_batch, out_batch,
            (0, 0) if c is None else c.broadcast((m, n)).strides,
            node.arguments.get("alpha", 1.0), node.arguments.get("beta", 1.0),
            (a.offset, b.offset, 0 if c is None else c.offset, out.offset),
            panel=panel_of(b), data_type=a.data_type,
            quantized="b" if isinstance(node.lowering, QuantizedProduct) else "",
            zero_point=node.arguments.get("zero_point", 0.0), normalized=node.prologue is not None,
            gated=node.gated,
        ))

    def extends(self, node: KernelNode, profile: DeviceProfile) -> bool:
        p = self.problem(node)
        plain = p.m == 1 < p.n and not p.batch and fits_bindings(p, profile)
        return plain and bool(self.candidates(p, profile))

    def candidates(self, problem: Product, profile: DeviceProfile) -> Sequence[Schedule]:
        p, loads = problem, _loads(problem, profile)
        if p.normalized or p.gated:
            return [
                s for s in _ahead(p.by_vector, profile)
                if not p.gated or (p.b_transposed and not s["TM"] % 2)
            ]
        rows = [
            _row(p, load, profile) for load in loads if p.m == 1 < p.n and not p.b_transposed
        ]
        if p.panel:
            tilings = rows + self.tilings(p, profile)
            return [s for s in tilings if tile_shape(p, s)[1] == p.panel]
        vector = p.by_vector
        if vector.n == 1 and (vector.ldb == 1 or vector.b_transposed):
            return [
                Schedule("matvec", (("LX", x), ("LY", y), ("TM", tm)), load)
                for load in loads for x, y, tm in _shares(vector, load)
            ] + rows + _ahead(vector, profile)
        few = vector is not p and fits_bindings(p, profile)
        return self.tilings(p, profile) + (_ahead(vector, profile) if few else [])

    def tilings(self, p: Product, profile: DeviceProfile) -> list[Schedule]:
        """The schedules by tiles of the output."""
        direct = [
            Schedule("matmul", (("LX", 8), ("LY", y), ("TM", tm), ("TN", tn)))
            for y, tm, tn in ((1, 4, 4), (1, 4, 8), (1, 8, 4), (1, 8, 8), (8, 4, 4))
        ]
        tiled = tiled_schedules(
            not p.a_transposed, p.b_transposed, any(vectors(p, p.starts)), profile
        )
        by_tiles = tiled + coopmat.schedules(p, profile)
        cut = device_class(profile).cuts_products
        in_parts = split_k.schedules(p, by_tiles, profile) if cut else []
        return direct + by_tiles + in_parts + [
            Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", tm), ("TN", tn)), load)
            for load in _loads(p, profile)[1:] for tm, tn in ((4, 8), (8, 8), (16, 8), (32, 4))
        ] + row_schedules(p, profile)

    def pack(
        self, node: KernelNode, problem: Product, schedule: Schedule, profile: DeviceProfile
    ) -> KernelNode:
        """Packs b in panels as wide as the schedule's tiles, so that a workgroup reads contiguous
        memory, unless b can't be packed so or packing gains nothing. One row reads each weight
        once, which doesn't pay for much padding."""
        p = problem
        if any(p.b_batch) or p.n == 1 or schedule.kernel == "matvec":
            return node
        name = p.operands[1]
        b = node.operands[name]
        columns = tile_shape(p, schedule)[1]
        size = round_up(p.n, columns) * p.k * DATA_TYPES[b.data_type].size
        budget = loop_budget(profile)
        if size > profile.max_storage_buffer_range or (budget is not None and p.k > budget):
            return node  # b would be cut, which panels are not made for
        if not p.b_transposed and p.ldb == p.n and p.n <= columns:
            return node  # one panel already
        if p.m == 1 and (round_up(p.n, columns) - p.n) * _COLUMNS_PER_PADDING > p.n:
            return node
        rows, across = (1, p.ldb) if p.b_transposed else (p.ldb, 1)
        panels = Packed(b.value, Panels(p.k, p.n, columns, rows, across, p.starts[1]))
        # Where k and n step in the packed form, as the operand has its dimensions.
        step = {rows: columns, across: 1}
        sizes = zip(b.shape, b.strides, strict=True)
        strides = tuple(step.get(s, 0) if n > 1 else 0 for n, s in sizes)
        return replace(node, operands={**node.operands, name: Access(panels, b.shape, strides)})

    def lower(
        self, node: KernelNode, problem: Product, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Operands larger than a binding are cut into several dispatches."""
        if schedule.kernel == "matvec":
            problem = problem.by_vector
        a, b = (node.operands[name] for name in problem.operands[:2])
        c = node.operand(problem.operands[2])
        if schedule.parts > 1:
            return in_parts(problem, node, Tensors(a, b, c, node.output), schedule, profile)
        itemsize = max(DATA_TYPES[a.data_type].size, DATA_TYPES[b.data_type].size)
        halves = problem.data_type == "float16"
        dispatches: list[Dispatch] = []
        scratch: list[Scratch] = []
        for group in pieces(problem, itemsize, profile):
            if not scratch:
                # Partial sums go back and forth between two buffers, whose size the first group,
                # the largest, decides.
                scratch = [Scratch(group[0].m * group[0].n * 4) for _ in group[1:3]]
            for i, piece in enumerate(group):
                last = i == len(group) - 1
                addend: Access | Scratch | None = c
                if i:
                    # The sum of the inner dimension's earlier parts.
                    addend, (a_start, b_start, _, out_start) = scratch[(i - 1) % 2], piece.starts
                    piece = replace(
                        piece, c_strides=(piece.n, 1), beta=1.0,
                        starts=(a_start, b_start, 0, out_start),
                    )
                out: Access | Scratch = node.output
                if not last:
                    out = scratch[i % 2]
                    piece = replace(piece, ldo=piece.n, starts=(*piece.starts[:3], 0))
                way = schedule
                if len(group) > 1 and schedule.kernel in _BY_TILES:
                    way = _DIRECT
                elif len(group) > 1 and schedule.kernel == "matvec" and halves:
                    way = _DIRECT_COLUMN
                elif "STEPS" in dict(schedule.numbers):
                    way = _row(piece, schedule.load, profile)
                elif piece.k < problem.k:  # which the steps loaded ahead may not divide
                    kept = (number for number in schedule.numbers if number[0] != "AHEAD")
                    way = replace(schedule, numbers=tuple(kept))
                tensors = Tensors(a, b, addend, out)
                dispatches.append(one_dispatch(piece, node, tensors, way, profile))
        return dispatches


MATMUL = FAMILIES[Matmul.name]


# -- problems


def _loads(p: Product, profile: DeviceProfile) -> tuple[str, ...]:
    """How the device can read a and b, the plainest way first."""
    texels = p.data_type == "float32" and has_texels(profile)
    return ("storage", "texel") if texels else ("storage",)


def _row(p: Product, load: str, profile: DeviceProfile) -> Schedule:
    """One row of the output: invocations read vectors of neighbouring columns, and each of the
    lanes loads the row for another step of the inner dimension. As wide as the panels of many rows,
    so that both read the same. The steps follow each other in memory if the processor reads
    linearly: an AMD EPYC (family 26) reads 38 GB/s so, and 20 GB/s from eight places in turn. An
    Intel Xeon (model 167) read 60 to 67 % of its rate from eight places, since a core waits for one
    stream of memory and fetches several ahead, and 45 % linearly."""
    numbers = ("LX", 8), ("LY", 1), ("TM", 1), ("TN", PANEL_COLUMNS // 8)
    lanes = lanes_that_shuffle(Schedule("matmul", numbers, load), profile)
    known = not isinstance(p.k, Size)  # one module for any length
    steps = lanes if known and lanes and not p.k % (4 * lanes) else 1
    streams = 1 if profile.reads_linearly else steps
    return Schedule("matmul", (*numbers, ("STEPS", steps), ("STREAMS", streams)), load)


def _shares(p: Product, load: str) -> tuple[tuple[int, int, int], ...]:
    """Workgroups of a matrix times a vector, and an invocation's outputs: of processors, and for
    loads from storage buffers of GPUs too. Eight invocations beside each other read neighbours in
    memory: of eight long rows whose distance is a power of two, each would drive the others out of
    the cache."""
    wide = ((32, 4, 4),) if load == "storage" else ()
    if p.a_transposed:
        return (8, 1, 4), *wide
    if p.k < 32:
        return (1, 8, 4), *wide
    return (8, 1, 4), (8, 1, 16), *wide


def _ahead(p: Product, profile: DeviceProfile) -> list[Schedule]:
    """Schedules of a matrix times a vector for GPUs, whose memory delivers its rate only while
    loads of most of the device's invocations are under way: with several vectors a time, and from
    few to many invocations that share the inner dimension. Of few vectors, an invocation keeps the
    sums of all."""
    if profile.device_type == "cpu" or isinstance(p.k, Size) or not vectors(p, p.starts)[0]:
        return []
    several = 1 << (p.n - 1).bit_length()
    along = _ALONG if several <= 2 else _ALONG_MANY
    steps, shares = (p.k, _DOWN) if p.a_transposed else (p.k // 4, along)
    most = profile.max_shared_memory // (4 * (4 * several + p.normalized))
    made = []
    for x, y, tm in shares:
        parts = y if p.a_transposed else x
        if x * y > most or not is_workgroup(x, y, profile):
            continue
        # Vectors of b take more registers than elements.
        fewest = several > 2 and not p.a_transposed
        ahead = [n for n in _AHEAD[fewest:] if not steps % (n * parts)]
        for n in ahead if several > 1 else ahead[:1]:
            vectors_of_b = (("TR", several),) if several > 1 else ()
            numbers = ("LX", x), ("LY", y), ("TM", tm), *vectors_of_b, ("AHEAD", n)
            made.append(Schedule("matvec", numbers))
    return made


def _oriented(node: KernelNode, operand: str) -> Access:
    """The operand as [.., rows, columns] of the product."""
    access = node.operands[operand]
    argument = dict(getattr(node.lowering, "transposed", ())).get(operand)
    if argument is not None and node.arguments[argument]:
        *batch, rows, columns = range(len(access.shape))
        return access.permuted((*batch, columns, rows))
    return access


# -- packing


def panel_of(b: Access) -> int:
    """Columns of the panels in which b is packed; 0 where it is not packed."""
    packing = b.value.packing if isinstance(b.value, Packed) else None
    return packing.columns if isinstance(packing, Panels) else 0
