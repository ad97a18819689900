"""Matrix products: matmul, gemm, and convolutions that are one.

Three templates: ``matmul`` (register tiles straight from the buffers: CPUs), ``matmul_tiled``
(shared memory: GPUs) and ``matvec`` (M or N is 1). All accumulate in float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param

from ..data_types import DATA_TYPES, FLOAT_TYPES
from ..device_profile import DeviceProfile
from ..graph import Node, Value
from . import epilogue as fused
from .axes import ITERATIONS
from .dispatch import Binding, Dispatch, Scratch, broadcast_strides, collapse, grid
from .elements import alignment
from .expression import used_features

EPILOGUE = True

_PARAMS = (
    *(Param(name) for name in (
        "M", "N", "K", "batches", "lda", "ldb", "ldo", "out_batch", "a_base", "b_base", "c_base",
        "out_base", "c_row", "c_column",
    )),
    Param("alpha", "float"),
    Param("beta", "float"),
    Param("batch_sizes", count=2),
    Param("a_batch", count=3),
    Param("b_batch", count=3),
)
_CONSTANTS = {
    "matmul": (Constant("TM"), Constant("TN")),
    "matmul_tiled": (Constant("TM"), Constant("TN"), Constant("BK")),
    "matvec": (),
}
# Batch dimensions that a kernel addresses.
_BATCH_RANK = 3


@dataclass(frozen=True)
class Product:
    """out[b, m, n] = alpha · Σ a[b, m, k] · b[b, k, n] + beta · c[m, n].

    Numbers are elements. a is stored [M, K] with ``lda`` elements a row, or [K, M] when transposed;
    b [K, N] or [N, K] alike; out is dense. ``batch`` sizes come with the strides of a and b.
    """

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    a_transposed: bool = False
    b_transposed: bool = False
    batch: tuple[int, ...] = ()
    a_batch: tuple[int, ...] = ()
    b_batch: tuple[int, ...] = ()
    c_strides: tuple[int, int] = (0, 0)
    alpha: float = 1.0
    beta: float = 1.0


@dataclass(frozen=True)
class _Piece:
    """A part of a product that one dispatch computes: ``product`` with the part's sizes, where the
    part begins in each buffer (in elements), and the strides of the output."""

    product: Product
    a: int = 0
    b: int = 0
    c: int = 0
    out: int = 0
    ldo: int = 0
    out_batch: int = 0


@dataclass(frozen=True)
class Tiling:
    """Template and specialisation constants of a product's kernel."""

    kernel: str
    constants: tuple[tuple[str, int], ...]
    rows: int
    columns: int


def tiling(profile: DeviceProfile, p: Product) -> Tiling:
    """How the product is cut into workgroups on a device."""
    if p.n == 1 and (p.ldb == 1 or p.b_transposed):
        return _matvec_tiling(profile, p.a_transposed)
    if profile.is_software:
        # One SIMD group a workgroup; few distinct sizes, each is a compile of 100 ms and more.
        tm, tn = 8 if p.m > 4 else 4, 8 if p.n > 32 else 4
        return Tiling("matmul", (("LX", 8), ("LY", 1), ("TM", tm), ("TN", tn)), tm, 8 * tn)
    # Large tiles reuse more, if enough of them are left to fill the device.
    side, lanes, tile = 32, 8, 4
    for large, many, each in ((64, 16, 4), (128, 16, 8)):
        tiles = math.prod(p.batch) * -(-p.m // large) * -(-p.n // large)
        if (
            tiles >= 64
            and many * many <= profile.max_workgroup_invocations
            and 2 * 16 * (large + 1) * 4 <= profile.max_shared_memory
        ):
            side, lanes, tile = large, many, each
    constants = (("LX", lanes), ("LY", lanes), ("TM", tile), ("TN", tile), ("BK", 16))
    return Tiling("matmul_tiled", constants, side, side)


def _matvec_tiling(profile: DeviceProfile, transposed: bool) -> Tiling:
    if profile.is_software:
        lanes, outputs = (8, 1) if transposed else (1, 8), 8
    else:
        lanes = (32, 4)
        outputs = lanes[0] if transposed else lanes[1]
    return Tiling("matvec", (("LX", lanes[0]), ("LY", lanes[1])), 4 * outputs, 1)


def plan(node: Node, profile: DeviceProfile) -> list[Dispatch]:
    """Dispatches of a matmul or gemm."""
    a, b = node.operands["a"], node.operands["b"]
    if node.operator.name == "gemm":
        product = _gemm(node)
    else:
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        shape = node.results[0].shape[:-2]
        batch, (a_batch, b_batch) = collapse(
            shape,
            tuple(s * m * k for s in broadcast_strides(a.shape[:-2], shape)),
            tuple(s * k * n for s in broadcast_strides(b.shape[:-2], shape)),
        )
        product = Product(m, n, k, k, n, batch=batch, a_batch=a_batch, b_batch=b_batch)
    return plan_product(product, node, a, b, node.operand("c"), profile)


def _gemm(node: Node) -> Product:
    arguments = node.arguments
    a, b, c = node.operands["a"], node.operands["b"], node.operand("c")
    m, n = node.results[0].shape
    row, column = (0, 0) if c is None else broadcast_strides(c.shape, (m, n))
    return Product(
        m, n, a.shape[0 if arguments["a_transpose"] else 1], a.shape[1], b.shape[1],
        arguments["a_transpose"], arguments["b_transpose"], (), (), (), (row, column),
        arguments["alpha"], arguments["beta"],
    )


def plan_product(
    product: Product, node: Node, a: Value, b: Value, c: Value | None, profile: DeviceProfile
) -> list[Dispatch]:
    """Dispatches of a product of ``a`` and ``b`` that computes the node's output, its epilogue
    included. Operands larger than a binding are cut into several dispatches."""
    product = _fold_batch(product)
    if product.m == 1 and product.n > 1 and (product.lda == 1 or not product.a_transposed):
        product, a, b = _swap(product), b, a
    itemsize = DATA_TYPES[a.data_type].size
    dispatches: list[Dispatch] = []
    scratch: list[Scratch] = []
    for pieces in _pieces(product, itemsize, profile):
        if not scratch:
            # Partial sums go back and forth between two buffers, whose size the first group, the
            # largest, decides.
            largest = pieces[0].product
            scratch = [Scratch(largest.m * largest.n * 4) for _ in pieces[1:3]]
        for i, piece in enumerate(pieces):
            last = i == len(pieces) - 1
            addend: Value | Scratch | None = c
            if i:
                # What the inner dimension's earlier parts added up to.
                addend = scratch[(i - 1) % 2]
                part = replace(piece.product, c_strides=(piece.product.n, 1), beta=1.0)
                piece = replace(piece, product=part, c=0)
            out: Value | Scratch = node.output
            if not last:
                out, piece = scratch[i % 2], replace(piece, out=0, ldo=piece.product.n)
            dispatches.append(
                _dispatch(piece, node, a, b, addend, out, profile, whole=len(pieces) == 1)
            )
    return dispatches


def _fold_batch(p: Product) -> Product:
    """Batches of a that lie one below the other and share b are just more rows."""
    if (
        p.batch and p.b_batch[-1] == 0 and not p.a_transposed
        and p.a_batch[-1] == p.m * p.lda and p.c_strides[0] == 0
    ):
        return replace(
            p, m=p.m * p.batch[-1], batch=p.batch[:-1], a_batch=p.a_batch[:-1],
            b_batch=p.b_batch[:-1],
        )
    return p


def _swap(p: Product) -> Product:
    """The transposed product, bᵀ · aᵀ, of a row vector a: a matrix times a vector."""
    return replace(
        p, m=p.n, n=1, lda=p.ldb, ldb=1, a_transposed=not p.b_transposed, b_transposed=False,
        a_batch=p.b_batch, b_batch=p.a_batch, c_strides=p.c_strides[::-1],
    )


# -- slicing


def _pieces(p: Product, itemsize: int, profile: DeviceProfile) -> Iterator[list[_Piece]]:
    """The parts of a product, grouped by output: the parts of one group are to be added up.

    Halves the dimension that spans most of whichever operand exceeds a binding, until all fit.
    """
    row = (p.lda, 1)[:: -1 if p.a_transposed else 1]
    inner = (p.ldb, 1)[:: -1 if p.b_transposed else 1]
    sizes = [*p.batch, p.m, p.n, p.k]
    rank = len(p.batch)
    dense = [p.m * p.n * math.prod(p.batch[i + 1 :]) for i in range(rank)]
    a = [*p.a_batch, row[0], 0, row[1]]
    b = [*p.b_batch, 0, inner[1], inner[0]]
    c = [0] * rank + [*p.c_strides, 0]
    out = [*dense, p.n, 1, 0]
    # A binding may begin up to one alignment earlier; outputs may be float32 sums.
    limit = profile.max_storage_buffer_range - alignment(profile)
    block = list(sizes)
    if rank > _BATCH_RANK:
        block[: rank - _BATCH_RANK] = [1] * (rank - _BATCH_RANK)
    for strides, size in ((a, itemsize), (b, itemsize), (out, 4), (c, 4)):
        while True:
            spans = [(n - 1) * s for n, s in zip(block, strides, strict=True)]
            if (sum(spans) + 1) * size <= limit:
                break
            axis = max(range(len(spans)), key=spans.__getitem__)
            half = -(-block[axis] // 2)
            # Multiples of 4 keep vector loads aligned.
            block[axis] = -(-half // 4) * 4 if half > 4 else half
    for axis in range(rank):
        if block[axis] < sizes[axis]:
            # The output's batches of a part have to follow each other.
            block[:axis] = [1] * axis
    if profile.is_software:
        block[-1] = min(block[-1], ITERATIONS // 4 * 4)
    if block[-1] < p.k:
        # Sums of parts are added through c, which has no batch dimension.
        block[:rank] = [1] * rank
    starts = [range(0, n, step) for n, step in zip(sizes, block, strict=True)]
    for corner in itertools.product(*starts[:-1]):
        group = []
        for k in starts[-1]:
            at = (*corner, k)
            lengths = [min(s, n - i) for s, n, i in zip(block, sizes, at, strict=True)]
            part = replace(
                p, m=lengths[-3], n=lengths[-2], k=lengths[-1], batch=tuple(lengths[:rank])
            )
            a_at, b_at, c_at, out_at = (
                sum(i * s for i, s in zip(at, strides, strict=True)) for strides in (a, b, c, out)
            )
            group.append(_Piece(part, a_at, b_at, c_at, out_at, p.n, p.m * p.n))
        yield group


def _bind(
    value: Value | Scratch, start: int, itemsize: int, elements: int, profile: DeviceProfile
) -> tuple[Binding, int]:
    """A binding that covers ``elements`` from ``start`` on, and the element it begins before."""
    size = value.size if isinstance(value, Scratch) else value.descriptor.byte_length
    if size <= profile.max_storage_buffer_range:
        return Binding(value), start
    offset = start * itemsize
    offset -= offset % alignment(profile)
    length = (start + elements) * itemsize - offset
    return Binding(value, offset, -(-length // 16) * 16), start - offset // itemsize


# -- one dispatch


def _dispatch(
    piece: _Piece, node: Node, a: Value, b: Value, c: Value | Scratch | None,
    out: Value | Scratch, profile: DeviceProfile, whole: bool,
) -> Dispatch:
    p = piece.product
    tiles = tiling(profile, p)
    if not whole and tiles.kernel == "matmul_tiled":
        tiles = _DIRECT
    data_type = a.data_type
    c_type = None if c is None else "float32" if isinstance(c, Scratch) else c.data_type
    out_type = "float32" if isinstance(out, Scratch) else out.data_type
    itemsize = DATA_TYPES[data_type].size
    span = _span(p)
    bindings, bases = [], []
    for value, start, size, elements in (
        (a, piece.a, itemsize, span[0]),
        (b, piece.b, itemsize, span[1]),
        (c, piece.c, DATA_TYPES[c_type].size if c_type else 0, span[2]),
        (out, piece.out, DATA_TYPES[out_type].size, span[3](piece)),
    ):
        if value is None:
            bases.append(0)
            continue
        binding, base = _bind(value, start, size, elements, profile)
        bindings.append(binding)
        bases.append(base)
    extra = fused.build(node) if isinstance(out, Value) else fused.nothing(out_type)
    plain = data_type == out_type and c_type in (None, data_type)
    a_vector, b_vector = _vectors(piece, bases) if plain or node.epilogue else (False, False)
    if tiles.kernel == "matvec":
        b_vector = a_vector and (p.a_transposed or _divides(bases[1], *p.b_batch))
        a_vector = b_vector
    spec = _spec(
        tiles.kernel, data_type, c_type, out_type, p.a_transposed, p.b_transposed, a_vector,
        b_vector, profile.features, extra,
    )
    batches = math.prod(p.batch)
    groups = batches * -(-p.m // tiles.rows) * -(-p.n // tiles.columns)
    missing = _BATCH_RANK - len(p.batch[-_BATCH_RANK:])
    pad = (0,) * missing
    params = {
        "M": p.m, "N": p.n, "K": p.k, "batches": batches, "lda": p.lda, "ldb": p.ldb,
        "ldo": piece.ldo, "out_batch": piece.out_batch, "a_base": bases[0], "b_base": bases[1],
        "c_base": bases[2], "out_base": bases[3], "c_row": p.c_strides[0],
        "c_column": p.c_strides[1], "alpha": p.alpha, "beta": p.beta,
        "batch_sizes": ((1,) * missing + p.batch[-_BATCH_RANK:])[1:],
        "a_batch": pad + p.a_batch[-_BATCH_RANK:],
        "b_batch": pad + p.b_batch[-_BATCH_RANK:],
        **extra.values,
    }
    vectors = f"{'v' if a_vector else 's'}{'v' if b_vector else 's'}"
    transposed = f"{'t' if p.a_transposed else 'n'}{'t' if p.b_transposed else 'n'}"
    return Dispatch(
        spec,
        (*bindings, *extra.bindings),
        grid(groups, profile),
        params,
        dict(tiles.constants),
        tiles.kernel,
        f"{transposed} {vectors} {tiles.rows}x{tiles.columns}",
        2 * batches * p.m * p.n * p.k + extra.flops,
        itemsize * (batches * (p.m * p.k + p.k * p.n + p.m * p.n)) + extra.bytes,
    )


# Sums that go through a scratch buffer are rare: one kernel for them on every device.
_DIRECT = Tiling("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)), 32, 32)


def _span(p: Product):
    """Elements from the first to the last one touched, in a, b, c and (given the piece) out."""

    def reach(*terms: tuple[int, int]) -> int:
        return sum((n - 1) * s for n, s in terms) + 1

    a = (p.k, p.lda), (p.m, 1)
    b = (p.n, p.ldb), (p.k, 1)
    if not p.a_transposed:
        a = (p.m, p.lda), (p.k, 1)
    if not p.b_transposed:
        b = (p.k, p.ldb), (p.n, 1)
    batches = math.prod(p.batch)
    return (
        reach(*a, *zip(p.batch, p.a_batch, strict=True)),
        reach(*b, *zip(p.batch, p.b_batch, strict=True)),
        reach((p.m, p.c_strides[0]), (p.n, p.c_strides[1])),
        lambda piece: reach((p.m, piece.ldo), (p.n, 1), (batches, piece.out_batch)),
    )


def _divides(*numbers: int) -> bool:
    return not any(n % 4 for n in numbers)


def _vectors(piece: _Piece, bases: list[int]) -> tuple[bool, bool]:
    """Whether a and b can be loaded in vectors of 4 elements."""
    p = piece.product
    a = _divides(bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch)
    b = _divides(
        bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch,
        bases[3], p.n, piece.ldo, piece.out_batch,
    )
    return a, b


def _spec(
    kernel: str, data_type: str, c_type: str | None, out_type: str, a_transposed: bool,
    b_transposed: bool, a_vector: bool, b_vector: bool, features: frozenset[str],
    extra: fused.Epilogue | None = None,
) -> KernelSpec:
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
        options |= {"b_transposed": b_transposed}
        a_vector = b_vector = False
    else:
        options |= {"vector": a_vector}
        b_vector = a_vector and not a_transposed
    buffers = [
        Buffer("a", data_type, "r", 4 if a_vector else 1),
        Buffer("b", data_type, "r", 4 if b_vector else 1),
        *([Buffer("c", c_type)] if c_type else []),
        Buffer("out", out_type, "w", 4 if out_vector else 1),
        *extra.buffers,
    ]
    return KernelSpec(
        f"{kernel}.comp.j2",
        tuple(buffers),
        (*_PARAMS, *extra.params),
        _CONSTANTS[kernel],
        (*options.items(), *extra.options),
        used_features(features, buffers, extra.int64),
    )


def catalogue(features: frozenset[str]) -> Iterable[KernelSpec]:
    """Every unfused kernel of the family."""
    flags = (False, True)
    for data_type, addend, ta in itertools.product(FLOAT_TYPES, flags, flags):
        c_type = data_type if addend else None

        def spec(kernel, tb, va, vb, c_type=c_type, data_type=data_type, ta=ta, out=None):
            return _spec(kernel, data_type, c_type, out or data_type, ta, tb, va, vb, features)

        for vector in flags:
            yield spec("matvec", False, vector, vector)
        for tb in flags:
            yield spec("matmul_tiled", tb, False, False)
            for va, vb in itertools.product(flags, flags):
                yield spec("matmul", tb, va, vb)
            if data_type == "float16":
                # Sums over parts of the inner dimension.
                for kernel in ("matmul", *(["matvec"] if not tb else [])):
                    yield spec(kernel, tb, False, False, out="float32")
                    if addend:
                        for out in FLOAT_TYPES:
                            yield spec(kernel, tb, False, False, c_type="float32", out=out)
