"""Matrix products: matmul and gemm."""

from __future__ import annotations

import numpy as np

from ..types.broadcasting import broadcast_shapes
from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor, cast_number
from .arguments import Bool, Double, Operand
from .lowering import Product
from .record import Check, Inferred, Like, Limits, operator


@operator("§8.9.35", a=Limits(FLOAT_TYPES, (2, 8)), b=Like("a"), output=Like("a"))
def matmul(check: Check, a: Operand, b: Operand):
    """Matrix product of the last two dimensions: [.., M, K] by [.., K, N] gives [.., M, N].

    The leading dimensions broadcast against each other.
    """
    check.same_type(a=a, b=b)
    check.that(
        a.shape[-1] == b.shape[-2],
        f"a is {a} and b is {b}; a's last dimension ({a.shape[-1]}) has to equal b's second to last"
        f" ({b.shape[-2]})",
    )
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    check.that(
        batch is not None,
        f"a is {a} and b is {b}; the dimensions before the last two do not broadcast",
    )
    return MLOperandDescriptor(a.data_type, (*batch, a.shape[-2], b.shape[-1]))


matmul.lowers_to(Product())


@matmul.reference
def _(out, a, b):
    return np.matmul(a, b)


@operator(
    "§8.9.24",
    a=Limits(FLOAT_TYPES, (2, 2)),
    b=Like("a"),
    c=Like("a", rank=(0, 2)),
    output=Like("a"),
)
def gemm(
    check: Check,
    a: Operand,
    b: Operand,
    *,
    c: Operand = None,
    alpha: Double = 1.0,
    beta: Double = 1.0,
    a_transpose: Bool = False,
    b_transpose: Bool = False,
):
    """alpha · A · B + beta · C, with A [M, K] and B [K, N], each optionally given transposed.

    C broadcasts to the output's shape [M, N]; without it the second term is left out.
    """
    check.same_type(a=a, b=b, c=c)
    # spec: gemm, steps 5 and 6: the numbers are cast to the operands' data type
    alpha, beta = cast_number(alpha, a.data_type), cast_number(beta, a.data_type)
    rows, inner = a.shape[::-1] if a_transpose else a.shape
    inner_b, columns = b.shape[::-1] if b_transpose else b.shape
    check.that(
        inner == inner_b,
        f"a is {a}{' transposed' * a_transpose} and b is {b}{' transposed' * b_transpose}; the "
        f"columns of the first ({inner}) have to equal the rows of the second ({inner_b})",
    )
    shape = (rows, columns)
    check.broadcasts_to("c", c, shape)
    return Inferred.like(a, shape, alpha=alpha, beta=beta)


gemm.lowers_to(Product((("a", "a_transpose"), ("b", "b_transpose"))))


@gemm.reference
def _(out, a, b, c, alpha, beta, a_transpose, b_transpose):
    result = np.matmul(a.T if a_transpose else a, b.T if b_transpose else b)
    if alpha != 1:
        result *= np.float32(alpha)
    if c is not None:
        result += c if beta == 1 else c * np.float32(beta)
    return result
