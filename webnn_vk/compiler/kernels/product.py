"""Matrix products as numbers: what is multiplied, how it lies in memory, and its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webnn_vk.codegen.spec import Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide, round_up

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from .raw_copy import alignment
from .rows import loop_budget

#: Batch dimensions that a kernel addresses.
BATCH_RANK = 3


@dataclass(frozen=True)
class Product:
    """out[b, m, n] = alpha · Σ a[b, m, k] · b[b, k, n] + beta · c[m, n].

    Numbers are elements. a is stored [M, K] with ``lda`` elements a row, or [K, M] when transposed;
    b [K, N] or [N, K] alike; out has ``ldo`` elements a row. ``batch`` sizes come with the strides
    of a, b and out; ``starts`` are the first elements of a, b, c and out. ``operands`` name what
    the node calls a, b and c. ``panel``: b is packed in panels of so many columns (0: it is not).
    ``data_type``: the type of a and b. ``quantized``: which of both, "a" or "b", has integers of 8
    bits instead, from which ``zero_point`` is subtracted; ``block``: so many neighbours along the
    inner dimension, in which they lie side by side, have one scale (0: none has).
    """

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldo: int
    a_transposed: bool = False
    b_transposed: bool = False
    batch: tuple[int, ...] = ()
    a_batch: tuple[int, ...] = ()
    b_batch: tuple[int, ...] = ()
    out_batch: tuple[int, ...] = ()
    c_strides: tuple[int, int] = (0, 0)
    alpha: float = 1.0
    beta: float = 1.0
    starts: tuple[int, int, int, int] = (0, 0, 0, 0)
    operands: tuple[str, str, str] = ("a", "b", "c")
    panel: int = 0
    data_type: str = "float32"
    quantized: str = ""
    zero_point: float = 0.0
    block: int = 0

    @property
    def batches(self) -> int:
        return math.prod(self.batch)


@dataclass(frozen=True)
class Piece:
    """A part of a product that one dispatch computes: ``product`` with the part's sizes, where the
    part begins in each buffer (in elements)."""

    product: Product
    a: int = 0
    b: int = 0
    c: int = 0
    out: int = 0


def matrix(access: Access) -> tuple[int, bool] | None:
    """(elements from one row to the next, False), or (from one column to the next, True) where it
    is the columns whose elements lie side by side; None where neither do."""
    (rows, columns), (row, column) = access.shape[-2:], access.strides[-2:]
    if min(access.strides) < 0:
        return None
    if columns == 1 or column == 1:
        return (row if rows > 1 else columns), False
    if rows == 1 or row == 1:
        return column, True
    return None


def normalize(p: Product) -> Product:
    """An equal product of a simpler form: batches that share b become rows of a; a row vector times
    a matrix becomes the transposed product, a matrix times a vector."""
    if (
        p.batch and p.b_batch[-1] == 0 and not p.a_transposed
        and p.a_batch[-1] == p.m * p.lda and p.out_batch[-1] == p.m * p.ldo
        and p.c_strides[0] == 0
    ):
        # Batches of a that lie one below the other and share b are just more rows.
        p = replace(
            p, m=p.m * p.batch[-1], batch=p.batch[:-1], a_batch=p.a_batch[:-1],
            b_batch=p.b_batch[:-1], out_batch=p.out_batch[:-1],
        )
    if p.m == 1 and p.n > 1 and (p.lda == 1 or not p.a_transposed):
        # The transposed product, bᵀ · aᵀ, of a row vector a: a matrix times a vector.
        (a, b, c), (a_start, b_start, c_start, out_start) = p.operands, p.starts
        p = replace(
            p, m=p.n, n=1, lda=p.ldb, ldb=1, ldo=1, a_transposed=not p.b_transposed,
            b_transposed=False, a_batch=p.b_batch, b_batch=p.a_batch, c_strides=p.c_strides[::-1],
            starts=(b_start, a_start, c_start, out_start), operands=(b, a, c),
            quantized={"a": "b", "b": "a", "": ""}[p.quantized],
        )
    return p


#: What the kernels get of a product.
PARAMS = (
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


def parameters(p: Product, bases: Sequence[int]) -> dict[str, Any]:
    """The values of `PARAMS`, panels aside. ``bases``: the first elements of a, b, c and
    out in their bindings."""
    missing = BATCH_RANK - len(p.batch[-BATCH_RANK:])
    pad = (0,) * missing
    return {
        "M": p.m, "N": p.n, "K": p.k, "batches": p.batches, "lda": p.lda, "ldb": p.ldb,
        "ldo": p.ldo, "a_base": bases[0], "b_base": bases[1], "c_base": bases[2],
        "out_base": bases[3], "c_row": p.c_strides[0], "c_column": p.c_strides[1],
        "alpha": p.alpha, "beta": p.beta,
        "batch_sizes": ((1,) * missing + p.batch[-BATCH_RANK:])[1:],
        "a_batch": pad + p.a_batch[-BATCH_RANK:],
        "b_batch": pad + p.b_batch[-BATCH_RANK:],
        "out_batch": pad + p.out_batch[-BATCH_RANK:],
    }


# -- slicing


def pieces(p: Product, itemsize: int, profile: DeviceProfile) -> Iterator[list[Piece]]:
    """The parts of a product, grouped by output: the parts of one group are to be added up.

    Halves the dimension that spans most of whichever operand exceeds a binding, until all fit.
    """
    row = (p.lda, 1)[:: -1 if p.a_transposed else 1]
    inner = (p.ldb, 1)[:: -1 if p.b_transposed else 1]
    sizes = [*p.batch, p.m, p.n, p.k]
    rank = len(p.batch)
    a = [*p.a_batch, row[0], 0, row[1]]
    b = [*p.b_batch, 0, inner[1], inner[0]]
    c = [0] * rank + [*p.c_strides, 0]
    out = [*p.out_batch, p.ldo, 1, 0]
    # A binding may begin up to one alignment earlier; outputs may be float32 sums.
    limit = profile.max_storage_buffer_range - alignment(profile)
    block = list(sizes)
    if rank > BATCH_RANK:
        block[: rank - BATCH_RANK] = [1] * (rank - BATCH_RANK)
    for steps, size in ((a, itemsize), (b, itemsize), (out, 4), (c, 4)):
        while True:
            spans = [(n - 1) * s for n, s in zip(block, steps, strict=True)]
            if (sum(spans) + 1) * size <= limit:
                break
            axis = max(range(len(spans)), key=spans.__getitem__)
            half = ceil_divide(block[axis], 2)
            # Multiples of 4 keep vector loads aligned.
            block[axis] = round_up(half, 4) if half > 4 else half
    budget = loop_budget(profile)
    if budget is not None:
        block[-1] = min(block[-1], budget // 4 * 4)
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
            group.append(Piece(part, *(
                start + sum(i * s for i, s in zip(at, steps, strict=True))
                for start, steps in zip(p.starts, (a, b, c, out), strict=True)
            )))
        yield group


def fits_bindings(p: Product, profile: DeviceProfile) -> bool:
    """Whether every operand fits a binding, so that nothing of the product is cut."""
    limit = profile.max_storage_buffer_range - alignment(profile)
    size = DATA_TYPES[p.data_type].size
    return all(
        n * bytes_each <= limit for n, bytes_each in zip(spans(p), (size, size, 4, 4), strict=True)
    )


def spans(p: Product) -> tuple[int, int, int, int]:
    """Elements from the first to the last one touched, in a, b, c and out."""

    def reach(*terms: tuple[int, int]) -> int:
        return sum((n - 1) * s for n, s in terms) + 1

    a = (p.k, p.lda), (p.m, 1)
    b = (p.n, p.ldb), (p.k, 1)
    if not p.a_transposed:
        a = (p.m, p.lda), (p.k, 1)
    if not p.b_transposed:
        b = (p.k, p.ldb), (p.n, 1)
    return (
        reach(*a, *zip(p.batch, p.a_batch, strict=True)),
        reach(*b, *zip(p.batch, p.b_batch, strict=True)),
        reach((p.m, p.c_strides[0]), (p.n, p.c_strides[1])),
        reach((p.m, p.ldo), (p.n, 1), *zip(p.batch, p.out_batch, strict=True)),
    )
