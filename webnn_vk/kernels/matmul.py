"""Matrix products: matmul, gemm, and convolutions that can be computed as such.

Five templates: ``matmul`` (register tiles straight from the buffers: CPUs), ``matmul_tiled``
(shared memory: GPUs), ``matmul_coopmat`` and ``matmul_coopmat2`` (cooperative matrices: GPUs that
have them, see ``coopmat`` and ``coopmat2``) and ``matvec`` (M or N is 1). All accumulate in
float32. GPUs may cut a long inner dimension into parts (``split_k``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..access import Access, collapse
from ..data_types import DATA_TYPES, FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..integers import VECTOR_BYTES, ceil_divide, round_up
from ..ops.lowering import QuantizedProduct
from . import chains, coopmat, coopmat2, heuristics, split_k
from . import epilogue as fused
from .choose import choose
from .dispatch import Binding, Dispatch, Packed, Scratch, Unsupported, grid
from .elements import alignment
from .expression import used_features
from .family import Family
from .loads import as_texels, has_texels
from .node import KernelNode
from .packing import Panels, is_weight
from .product import Piece, Product, matrix, normalize, parameters, pieces, spans
from .rows import loop_budget
from .schedule import Schedule, Tuned

_PARAMS = (
    *(Param(name) for name in (
        "M", "N", "K", "batches", "lda", "ldb", "ldo", "b_panel", "a_base", "b_base", "c_base",
        "out_base", "c_row", "c_column",
    )),
    Param("alpha", "float"),
    Param("beta", "float"),
    Param("batch_sizes", count=2),
    Param("a_batch", count=3),
    Param("b_batch", count=3),
    Param("out_batch", count=3),
)
_ZERO_POINT = (Param("zero_point", "float"),)
_BLOCKS = (Param("block_bits"),)
_CONSTANTS = {
    "matmul": (Constant("TM"), Constant("TN")),
    "matmul_tiled": (Constant("TM"), Constant("TN"), Constant("BK")),
    "matvec": (),
}


class Matmul(Family):
    """See the module's docstring."""

    name = "matmul"
    fuses = True

    def takes(self, node: KernelNode, operand: str) -> bool:
        access = node.operands[operand]
        if operand == "scale":
            return access.is_dense
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
        scale = node.operand("scale")
        return normalize(Product(
            m, n, k, lda, ldb, out.strides[-2] if m > 1 else n, a_transposed, b_transposed,
            batch, a_batch, b_batch, out_batch,
            (0, 0) if c is None else c.broadcast((m, n)).strides,
            node.arguments.get("alpha", 1.0), node.arguments.get("beta", 1.0),
            (a.offset, b.offset, 0 if c is None else c.offset, out.offset),
            panel=panel_of(b), data_type=a.data_type,
            quantized="b" if isinstance(node.lowering, QuantizedProduct) else "",
            zero_point=node.arguments.get("zero_point", 0.0),
            block=0 if scale is None else k // scale.shape[1],
        ))

    def candidates(self, problem: Product, profile: DeviceProfile) -> Sequence[Schedule]:
        p = problem
        if p.panel:
            return [s for s in self._tilings(p, profile) if tile_shape(p, s)[1] == p.panel]
        if p.n == 1 and (p.ldb == 1 or p.b_transposed):
            small = (8, 1) if p.a_transposed else (1, 8)
            return [
                Schedule("matvec", (("LX", x), ("LY", y)), load)
                for load in _loads(p, profile) for x, y in (small, (32, 4))
            ]
        return self._tilings(p, profile)

    def _tilings(self, p: Product, profile: DeviceProfile) -> list[Schedule]:
        direct = [
            Schedule("matmul", (("LX", 8), ("LY", y), ("TM", tm), ("TN", tn)))
            for y, tm, tn in ((1, 4, 4), (1, 4, 8), (1, 8, 4), (1, 8, 8), (8, 4, 4))
        ]
        tiled = [
            Schedule(
                "matmul_tiled",
                (("LX", lanes), ("LY", lanes), ("TM", tile), ("TN", tile), ("BK", steps)),
            )
            for side, lanes, tile, steps in ((32, 8, 4, 16), (64, 16, 4, 16), (128, 16, 8, 8))
            if lanes * lanes <= profile.max_workgroup_invocations
            and tile_bytes(side, side, steps, not p.a_transposed, p.b_transposed)
            <= profile.max_shared_memory
            # Element by element, both operands' loads take more registers than GFX1100 has.
            and (tile < 8 or any(_vectors(p, p.starts)))
        ]
        by_tiles = tiled + coopmat.schedules(p, profile) + coopmat2.schedules(p, profile)
        cut = heuristics.rules(profile).cuts_products
        in_parts = split_k.schedules(p, by_tiles, profile) if cut else []
        return direct + by_tiles + in_parts + [
            Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", tm), ("TN", tn)), load)
            for load in _loads(p, profile)[1:] for tm, tn in ((4, 8), (8, 8), (16, 8))
        ]

    def pack(self, node: KernelNode, profile: DeviceProfile, tuned: Tuned) -> KernelNode:
        return pack_panels(self, node, profile, tuned)

    def lower(
        self, node: KernelNode, problem: Product, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Operands larger than a binding are cut into several dispatches."""
        a, b = (node.operands[name] for name in problem.operands[:2])
        c = node.operand(problem.operands[2])
        if schedule.parts > 1:
            return _in_parts(problem, node, a, b, c, schedule, profile)
        itemsize = max(DATA_TYPES[a.data_type].size, DATA_TYPES[b.data_type].size)
        dispatches: list[Dispatch] = []
        scratch: list[Scratch] = []
        for group in pieces(problem, itemsize, profile):
            if not scratch:
                # Partial sums go back and forth between two buffers, whose size the first group,
                # the largest, decides.
                largest = group[0].product
                scratch = [Scratch(largest.m * largest.n * 4) for _ in group[1:3]]
            for i, piece in enumerate(group):
                last = i == len(group) - 1
                addend: Access | Scratch | None = c
                if i:
                    # What the inner dimension's earlier parts added up to.
                    addend = scratch[(i - 1) % 2]
                    part = replace(piece.product, c_strides=(piece.product.n, 1), beta=1.0)
                    piece = replace(piece, product=part, c=0)
                out: Access | Scratch = node.output
                if not last:
                    part = replace(piece.product, ldo=piece.product.n)
                    out, piece = scratch[i % 2], replace(piece, product=part, out=0)
                by_parts = len(group) > 1 and schedule.kernel in _BY_TILES
                way = _DIRECT if by_parts else schedule
                dispatches.append(_dispatch(piece, node, a, b, addend, out, way, profile))
        return dispatches

    def catalogue(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        yield from coopmat.catalogue(_PARAMS, features)
        yield from coopmat2.catalogue(_PARAMS, features)
        yield from split_k.catalogue(_PARAMS, features)
        flags = (False, True)
        for data_type, addend, ta in itertools.product(FLOAT_TYPES, flags, flags):
            c_type = data_type if addend else None

            def spec(
                kernel, tb, va, vb, c_type=c_type, data_type=data_type, ta=ta, out=None,
                texels=False, extra=None, wide=False,
            ):
                return _spec(
                    kernel, data_type, c_type, out or data_type, ta, tb, va, vb, features, extra,
                    texels=texels, wide=wide,
                )

            for vector, texels in itertools.product(flags, flags):
                if data_type == "float32" or not texels:
                    yield spec("matvec", False, vector, vector, texels=texels)
            for tb in flags:
                for va, vb in itertools.product(flags, flags):
                    yield spec("matmul", tb, va, vb)
                    if data_type == "float32":
                        yield spec("matmul", tb, va, vb, texels=True)
                        for texels in flags if addend else ():
                            yield spec("matmul", tb, va, vb, texels=texels, extra=chains.merged())
                    yield spec("matmul_tiled", tb, va, vb)
                    if data_type == "float16" and not addend:
                        # One of several parts of the inner dimension.
                        yield spec("matmul_tiled", tb, va, vb, out="float32")
                        if va and vb:
                            yield spec("matmul_tiled", tb, va, vb, out="float32", wide=True)
                if data_type == "float16":
                    yield spec("matmul_tiled", tb, True, True, wide=True)
                    # Sums over parts of the inner dimension.
                    for kernel in ("matmul", *(["matvec"] if not tb else [])):
                        yield spec(kernel, tb, False, False, out="float32")
                        if addend:
                            for out in FLOAT_TYPES:
                                yield spec(kernel, tb, False, False, c_type="float32", out=out)

    def common(self, features: frozenset[str]) -> Iterator[KernelSpec]:
        def spec(
            kernel: str, addend: bool, tb: bool, vb: bool, extra: fused.Epilogue
        ) -> KernelSpec:
            return _spec(
                kernel, "float32", "float32" if addend else None, "float32", False, tb, True, vb,
                features, extra, texels=kernel == "matmul",
            )

        yield from split_k.common(_PARAMS, features)
        for kernel in ("matmul", "matmul_tiled"):
            if kernel == "matmul_tiled":
                # The other has one kernel for all of these: `fused.merged`.
                for extra in chains.epilogues(chains.OF_CONVOLUTIONS):
                    for vector in (False, True):
                        yield spec(kernel, True, False, vector, extra)
            for extra in chains.epilogues(chains.OF_BIASED):
                yield spec(kernel, True, False, True, extra)
            for extra in chains.epilogues(chains.OF_PRODUCTS):
                yield spec(kernel, False, False, True, extra)
            for extra in chains.epilogues(chains.OF_SCORES):
                for transposed in (False, True):
                    yield spec(kernel, False, transposed, True, extra)


MATMUL = Matmul()


# -- problems


def _loads(p: Product, profile: DeviceProfile) -> tuple[str, ...]:
    """How the device can read a and b, the plainest way first."""
    texels = p.data_type == "float32" and has_texels(profile)
    return ("storage", "texel") if texels else ("storage",)


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


def pack_panels(
    family: Family, node: KernelNode, profile: DeviceProfile, tuned: Tuned
) -> KernelNode:
    """The node with a constant b packed in panels as wide as the tiles that the device computes, so
    that a workgroup reads contiguous memory. The node as it is where b can't be packed so, or where
    packing gains nothing."""
    p = family.problem(node)
    assert isinstance(p, Product)
    name = p.operands[1]
    b = node.operands[name]
    if not is_weight(b) or any(p.b_batch) or p.n == 1 or p.block:
        return node
    schedule = choose("matmul", MATMUL.candidates(p, profile), p, profile, tuned)
    if schedule.kernel == "matvec":
        return node
    columns = tile_shape(p, schedule)[1]
    size = round_up(p.n, columns) * p.k * DATA_TYPES[b.data_type].size
    budget = loop_budget(profile)
    if size > profile.max_storage_buffer_range or (budget is not None and p.k > budget):
        return node  # b would be cut, which panels are not made for
    if not p.b_transposed and p.ldb == p.n and p.n <= columns:
        return node  # one panel already
    rows, across = (1, p.ldb) if p.b_transposed else (p.ldb, 1)
    packed = Packed(b.value, Panels(p.k, p.n, columns, rows, across, p.starts[1]))
    # Where k and n step in the packed form, as the operand has its dimensions.
    step = {rows: columns, across: 1}
    strides = tuple(step.get(s, 0) if n > 1 else 0 for n, s in zip(b.shape, b.strides, strict=True))
    return replace(node, operands={**node.operands, name: Access(packed, b.shape, strides)})


def _bind(
    target: Access | Scratch, start: int, itemsize: int, elements: int, profile: DeviceProfile,
    whole: bool = False,
) -> tuple[Binding, int]:
    """A binding that covers ``elements`` from ``start`` on, and the element it begins before; all
    of the target where it may be ``whole``."""
    value = target if isinstance(target, Scratch) else target.value
    if whole or _bytes(target) <= profile.max_storage_buffer_range:
        return Binding(value), start
    offset = start * itemsize
    offset -= offset % alignment(profile)
    length = (start + elements) * itemsize - offset
    return Binding(value, offset, round_up(length, VECTOR_BYTES)), start - offset // itemsize


def _is_float32(target: Access | Scratch) -> bool:
    return isinstance(target, Scratch) or target.data_type == "float32"


def _type_of(target: Access | Scratch) -> str:
    return "float32" if isinstance(target, Scratch) else target.data_type


def _bytes(target: Access | Scratch) -> int:
    return target.size if isinstance(target, Scratch) else target.value.descriptor.byte_length


# -- one dispatch


# Sums that go through a scratch buffer are rare: one kernel for them on every device.
_BY_TILES = ("matmul_tiled", coopmat.KERNEL, coopmat2.KERNEL)
_DIRECT = Schedule("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)))


def tile_bytes(
    rows: int, columns: int, steps: int, a_along_k: bool, b_along_k: bool
) -> int:
    """Shared memory of the kernels with tiles (``lib/tiles``): two of each operand, and one vector
    more a row where vectors lie along the inner dimension."""
    a = rows * (steps * 4 + a_along_k * VECTOR_BYTES)
    b = columns * (steps * 4 + b_along_k * VECTOR_BYTES)
    return 2 * (a + b)


def tile_shape(p: Product, schedule: Schedule) -> tuple[int, int]:
    """Rows and columns of the output that a workgroup computes."""
    if schedule.kernel == "matvec":
        return 4 * schedule["LX" if p.a_transposed else "LY"], 1
    if schedule.kernel in (coopmat.KERNEL, coopmat2.KERNEL):
        return schedule["BM"], schedule["BN"]
    return schedule["LY"] * schedule["TM"], schedule["LX"] * schedule["TN"]


def between(
    p: Product, node: KernelNode, a: Access | Scratch, b: Access | Scratch, out: Scratch,
    schedule: Schedule, profile: DeviceProfile,
) -> Dispatch:
    """A product of float32 on the way of a node that is computed in several steps."""
    return _dispatch(Piece(p, *p.starts), node, a, b, None, out, schedule, profile)


def _in_parts(
    p: Product, node: KernelNode, a: Access, b: Access, c: Access | None, schedule: Schedule,
    profile: DeviceProfile,
) -> list[Dispatch]:
    """A product whose inner dimension is cut into parts, and their sum."""
    sums = Scratch(split_k.scratch_bytes(p, schedule.parts))
    part = split_k.partial(p, schedule.parts)
    one = _dispatch(
        Piece(part, *part.starts), node, a, b, None, sums, schedule.of_part, profile, aligned=True
    )
    panels = {"b_panel": _panel_step(p, tile_shape(p, schedule)[1])}
    bindings, bases = [Binding(sums)], [0, 0, 0, 0]
    for i, access in ((2, c), (3, node.output)):
        if access is not None:
            size = DATA_TYPES[access.data_type].size
            binding, bases[i] = _bind(access, p.starts[i], size, spans(p)[i], profile)
            bindings.append(binding)
    lanes = heuristics.rules(profile).workgroup(p.batches * p.m * p.n)
    c_type = None if c is None else c.data_type
    return [
        replace(one, params={**one.params, **panels}),
        split_k.summed(_PARAMS, p, node, c_type, bindings, bases, lanes, profile),
    ]


def _dispatch(
    piece: Piece, node: KernelNode, a: Access | Scratch, b: Access | Scratch,
    c: Access | Scratch | None, out: Access | Scratch, schedule: Schedule, profile: DeviceProfile,
    aligned: bool = False,
) -> Dispatch:
    """``aligned``: the kernels of mixed types by vectors are to be had too."""
    p, kernel = piece.product, schedule.kernel
    data_type = p.data_type
    c_type = None if c is None else "float32" if isinstance(c, Scratch) else c.data_type
    out_type = "float32" if isinstance(out, Scratch) else node.out_type
    a_size, b_size = (DATA_TYPES[_type_of(operand)].size for operand in (a, b))
    reach = spans(p)
    # A part of what exceeds a storage buffer begins where it likes, which texels can't: they are of
    # all of it.
    room = 4 * profile.max_texel_buffer_elements
    read = [target for target in (a, b, c) if target is not None]
    texels = schedule.load == "texel" and all(
        _bytes(target) <= (room if _is_float32(target) else profile.max_storage_buffer_range)
        for target in read
    )
    bindings, bases = [], []
    for target, start, size, elements in (
        (a, piece.a, a_size, reach[0]),
        (b, piece.b, b_size, reach[1]),
        (c, piece.c, DATA_TYPES[c_type].size if c_type else 0, reach[2]),
        (out, piece.out, DATA_TYPES[out_type].size, reach[3]),
    ):
        if target is None:
            bases.append(0)
            continue
        whole = texels and target is not out
        binding, base = _bind(target, start, size, elements, profile, whole)
        bindings.append(binding)
        bases.append(base)
    scale = node.operand("scale")
    if scale is not None:
        weights = 0 if p.quantized == "a" else 1
        if bindings[weights].size is not None or bases[weights]:
            raise Unsupported("weights with scales of blocks that are larger than a binding")
        bindings.append(Binding(scale.value))
    extra = fused.nothing(out_type) if isinstance(out, Scratch) else fused.build(node)
    if kernel == "matmul" and c is not None and not (p.quantized or isinstance(out, Scratch)):
        if heuristics.rules(profile).merges_epilogues:
            extra = fused.merged(node, extra, bindings[0])
    # Others of mixed types are in the pack without vectors alone.
    plain = p.quantized or data_type == out_type and c_type in (None, data_type)
    aligned = aligned or plain or bool(node.epilogue)
    if kernel == coopmat.KERNEL:
        by_vectors = coopmat.vectors(p, bases) if aligned else (False,) * 3
        a_vector, b_vector, _ = by_vectors
        spec = coopmat.spec(
            _PARAMS, data_type, c_type, out_type, (p.a_transposed, p.b_transposed), by_vectors,
            profile.features, extra,
        )
    elif kernel == coopmat2.KERNEL:
        a_vector = b_vector = coopmat2.whole_vectors(p)
        spec = coopmat2.spec(
            _PARAMS, c_type, out_type, (p.a_transposed, p.b_transposed), a_vector,
            coopmat2.stores_tensor(p, bases[3], out_type, schedule, profile), profile.features,
            extra,
        )
    else:
        a_vector, b_vector = _vectors(p, bases) if aligned else (False, False)
        if kernel == "matvec":
            b_vector = a_vector and (p.a_transposed or _divides(bases[1], *p.b_batch))
            a_vector = b_vector
        wide = kernel == "matmul_tiled" and a_vector and b_vector and _wide(p, bases, schedule)
        spec = _spec(
            kernel, data_type, c_type, out_type, p.a_transposed, p.b_transposed, a_vector,
            b_vector, profile.features, extra, texels=texels, wide=wide,
            weights=(p.quantized, _type_of(a if p.quantized == "a" else b)), blocks=p.block > 0,
        )
    rows, columns = tile_shape(p, schedule)
    groups = p.batches * ceil_divide(p.m, rows) * ceil_divide(p.n, columns)
    params = {**parameters(p, bases), "b_panel": _panel_step(p, columns), **extra.values}
    if p.quantized:
        params["zero_point"] = p.zero_point
    if scale is not None:
        params["block_bits"] = p.block.bit_length() - 1
    vectors = f"{'sv'[a_vector]}{'sv'[b_vector]}" + "x" * texels
    transposed = f"{'t' if p.a_transposed else 'n'}{'t' if p.b_transposed else 'n'}"
    return Dispatch(
        spec,
        (*bindings, *extra.bindings),
        grid(groups, profile),
        params,
        dict(schedule.numbers),
        kernel,
        f"{transposed} {vectors} {rows}x{columns}",
        2 * p.batches * p.m * p.n * p.k + extra.flops,
        p.batches * (
            a_size * p.m * p.k + b_size * p.k * p.n + DATA_TYPES[out_type].size * p.m * p.n
        ) + extra.bytes,
    )


def _panel_step(p: Product, columns: int) -> int:
    """Elements from one tile's columns of b to the next one's."""
    if p.panel:
        return p.panel * p.k
    return columns * (p.ldb if p.b_transposed else 1)


def _divides(*numbers: int, by: int = 4) -> bool:
    return not any(n % by for n in numbers)


def _vectors(p: Product, bases: Sequence[int]) -> tuple[bool, bool]:
    """Whether a and b can be loaded in vectors of 4 elements."""
    a = _divides(bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch)
    b = _divides(
        bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch,
        bases[3], p.n, p.ldo, *p.out_batch,
    )
    return a, b


def _wide(p: Product, bases: Sequence[int], schedule: Schedule) -> bool:
    """Whether both tiles of a float16 product can be loaded in vectors of 8 elements, which
    invocations share evenly."""
    rows, columns = tile_shape(p, schedule)
    lanes = schedule["LX"] * schedule["LY"]
    return p.data_type == "float16" and not p.quantized and _divides(
        bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch,
        bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch, schedule["BK"], by=8,
    ) and not (rows + columns) * schedule["BK"] % (8 * lanes)


def _spec(
    kernel: str, data_type: str, c_type: str | None, out_type: str, a_transposed: bool,
    b_transposed: bool, a_vector: bool, b_vector: bool, features: frozenset[str],
    extra: fused.Epilogue | None = None, texels: bool = False,
    weights: tuple[str, str] = ("", ""), wide: bool = False, blocks: bool = False,
) -> KernelSpec:
    """``weights``: which of a and b has another data type, and which; for ("", "") none has.
    ``wide``: a and b are loaded in vectors of 8. ``blocks``: weights have scales of blocks."""
    extra = extra or fused.nothing(out_type)
    options = {"a_transposed": a_transposed, "addend": c_type is not None}
    out_vector = False
    if kernel == "matmul":
        out_vector = b_vector and DATA_TYPES[out_type].size <= 4
        options |= {
            "b_transposed": b_transposed, "a_vector": a_vector, "b_vector": b_vector,
            "out_vector": out_vector,
        }
    elif kernel == "matmul_tiled":
        out_vector = b_vector and not b_transposed and DATA_TYPES[out_type].size <= 4
        options |= {
            "b_transposed": b_transposed, "a_vector": a_vector, "b_vector": b_vector,
            "out_vector": out_vector,
        }
    else:
        options |= {"vector": a_vector}
        b_vector = a_vector and not a_transposed
    quantized, weight_type = weights
    vector = 8 if wide else 4
    buffers = [
        Buffer("a", weight_type if quantized == "a" else data_type, "r", vector * a_vector or 1),
        Buffer("b", weight_type if quantized == "b" else data_type, "r", vector * b_vector or 1),
        *([Buffer("c", c_type)] if c_type else []),
        Buffer("out", out_type, "w", 4 if out_vector else 1),
        *([Buffer("scale", "float32")] if blocks else []),
        *extra.buffers,
    ]
    if texels:
        buffers = [*as_texels(buffers)]
    return KernelSpec(
        f"{kernel}.comp.j2",
        tuple(buffers),
        (*_PARAMS, *_ZERO_POINT[: bool(quantized)], *_BLOCKS[:blocks], *extra.params),
        _CONSTANTS[kernel],
        (*options.items(), *extra.options),
        used_features(features, buffers, extra.int64, converts=True),
    )
