"""Matrix products as numbers: what is multiplied, how it lies in memory, and its parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import mul
from typing import Any

from webnn_vk.codegen.spec import Constant
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..types.access import Access, span
from ..types.data_types import DATA_TYPES
from ..types.sizes import Size
from .parts import Reach, block_shape, blocks
from .rows import loop_budget

#: The loads of the addend for 4 columns of a row (`Product.addend_loads`).
ADDENDS = Constant("ADDENDS", default=4)
#: Rows up to which each invocation multiplies what it reads of a matrix with all of them.
FEW_ROWS = 8
#: Batch dimensions that a kernel addresses.
BATCH_RANK = 3


@dataclass(frozen=True)
class Product:
    """out[b, m, n] = alpha · Σ a[b, m, k] · b[b, k, n] + beta · c[m, n].

    Numbers are elements. a is stored [M, K] with ``lda`` elements a row, or [K, M] when transposed;
    b [K, N] or [N, K] alike; out has ``ldo`` elements a row and ``ldn`` a column. ``batch`` sizes
    come with the strides of a, b and out; ``starts`` are the first elements of a, b, c and out.
    ``operands`` name what the node calls a, b and c. ``panel``: the columns of a panel where b is
    packed in panels, else 0. ``data_type``: the type of a and b. ``quantized``: which of both, "a"
    or "b", has integers of 8 bits instead, from which ``zero_point`` is subtracted.
    ``normalized``: the prologue normalises the row of a; ``gated``: the epilogue combines the
    halves of the result's row.
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
    normalized: bool = False
    gated: bool = False
    ldn: int = 1

    def addend_loads(self, start: int) -> int:
        """The loads of c, whose first element is ``start``, for 4 columns that begin at a multiple
        of 4: 4, 1 that they share, or 0: a vector (``ADDENDS`` of the templates)."""
        row, column = self.c_strides
        if column == 1 and not (row % 4 or start % 4):
            return 0
        return 4 if column else 1

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def by_vector(self) -> Product:
        """A row vector, or a few, times a matrix as the transposed product, bᵀ · aᵀ: a matrix times
        vectors. Other products as they are."""
        one = self.m == 1 and self.n > 1 and (self.lda == 1 or not self.a_transposed)
        known = not (isinstance(self.m, Size) or isinstance(self.n, Size) or self.a_transposed)
        few = known and 1 < self.m <= FEW_ROWS < self.n
        if self.panel or not (one or few):
            return self
        (a, b, c), (a_start, b_start, c_start, out_start) = self.operands, self.starts
        return replace(
            self, m=self.n, n=self.m, lda=self.ldb, ldb=1 if one else self.lda, ldo=1,
            ldn=1 if one else self.ldo, a_transposed=not self.b_transposed, b_transposed=not one,
            a_batch=self.b_batch, b_batch=self.a_batch,
            c_strides=self.c_strides[::-1], starts=(b_start, a_start, c_start, out_start),
            operands=(b, a, c), quantized={"a": "b", "b": "a", "": ""}[self.quantized],
        )


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
    """An equal product of a simpler form: batches that share b become rows of a."""
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
    return p


#: The types of a product's parameters that are not unsigned integers.
TYPES = dict.fromkeys(("alpha", "beta", "zero_point"), "float")


def parameters(p: Product, bases: Sequence[int], panel_step: int = 0) -> dict[str, Any]:
    """The parameters of a product's kernels. ``bases``: the first elements of a, b, c and out in
    their bindings; ``panel_step``: elements from one tile's columns of b to the next one's."""
    missing = BATCH_RANK - len(p.batch[-BATCH_RANK:])
    pad = (0,) * missing
    return {
        "M": p.m, "N": p.n, "K": p.k, "batches": p.batches, "lda": p.lda, "ldb": p.ldb,
        "ldo": p.ldo, "b_panel": panel_step, "a_base": bases[0], "b_base": bases[1],
        "c_base": bases[2], "out_base": bases[3], "c_row": p.c_strides[0],
        "c_column": p.c_strides[1],
        "alpha": p.alpha, "beta": p.beta,
        "batch_sizes": ((1,) * missing + p.batch[-BATCH_RANK:])[1:],
        "a_batch": pad + p.a_batch[-BATCH_RANK:],
        "b_batch": pad + p.b_batch[-BATCH_RANK:],
        "out_batch": pad + p.out_batch[-BATCH_RANK:],
    }


# -- parts ----------------------------------------------------------------------------------------
def pieces(p: Product, itemsize: int, profile: DeviceProfile) -> Iterator[list[Product]]:
    """The parts of a product, with ``starts`` of their own, grouped by output: the parts of one
    group are to be added up."""
    dims, steps = _dims(p)
    rank, reaches, budget = len(p.batch), _reaches(p, itemsize), loop_budget(profile)
    largest = [*dims]
    largest[: -3 - BATCH_RANK] = [1] * (rank - BATCH_RANK)
    if budget is not None:
        largest[-1] = min(p.k, budget // 4 * 4)
    block = block_shape(dims, reaches, profile, largest)
    if block[-1] < p.k:
        # Sums of parts are added through c, which has no batch dimension.
        block = block_shape(dims, reaches, profile, [*[1] * rank, *largest[rank:]])
    for _, group in itertools.groupby(blocks(dims, block), lambda part: part[0][:-1]):
        yield [
            replace(
                p, m=shape[-3], n=shape[-2], k=shape[-1], batch=shape[:rank],
                starts=tuple(
                    first + sum(map(mul, start, strides))
                    for first, strides in zip(p.starts, steps, strict=True)
                ),
            )
            for start, shape in group
        ]


def fits_bindings(p: Product, profile: DeviceProfile) -> bool:
    """Whether every operand fits a binding, so that nothing of the product is cut."""
    dims, _ = _dims(p)
    return block_shape(dims, _reaches(p, DATA_TYPES[p.data_type].size), profile) == dims


def spans(p: Product) -> tuple[int, ...]:
    """Elements from the first to the last one touched, in a, b, c and out."""
    dims, steps = _dims(p)
    return tuple(span(dims, strides)[1] for strides in steps)


def _dims(p: Product) -> tuple[list[int], tuple[tuple[int, ...], ...]]:
    """The dimensions of a product (batch, m, n, k), and the strides of a, b, c and out by them."""
    row, a_inner = (1, p.lda) if p.a_transposed else (p.lda, 1)
    b_inner, column = (1, p.ldb) if p.b_transposed else (p.ldb, 1)
    return [*p.batch, p.m, p.n, p.k], (
        (*p.a_batch, row, 0, a_inner),
        (*p.b_batch, 0, column, b_inner),
        (*(0 for _ in p.batch), *p.c_strides, 0),
        (*p.out_batch, p.ldo, p.ldn, 0),
    )


def _reaches(p: Product, itemsize: int) -> list[Reach]:
    """``itemsize``: bytes of an element of a and b; outputs may be float32 sums."""
    sizes = itemsize, itemsize, 4, 4
    return [Reach(*reach) for reach in zip(_dims(p)[1], sizes, p.starts, strict=True)]
