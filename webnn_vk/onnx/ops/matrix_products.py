"""Matrix products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .elementwise import tanh_gelu


def matmul(c: NodeContext, a: MLOperand, b: MLOperand) -> MLOperand:
    """NumPy's matmul: vectors become matrices of one row or column, integers are exact."""
    row, column = len(a.shape) == 1, len(b.shape) == 1
    if row:
        a = c.reshape(a, [1, *a.shape])
    if column:
        b = c.reshape(b, [*b.shape, 1])
    result = c.b.matmul(a, b) if a.data_type.startswith("float") else _exact(c, a, b)
    shape = list(result.shape)
    if column:
        shape.pop(-1)
    if row:
        shape.pop(-1 if column else -2)
    return c.reshape(result, shape)


def _exact(c: NodeContext, a: MLOperand, b: MLOperand) -> MLOperand:
    """The product of integer matrices as a sum of element-wise products."""
    left = c.reshape(a, [*a.shape, 1])
    right = c.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    product = c.b.mul(left, right)
    return c.b.reduce_sum(product, axes=[len(product.shape) - 2])


@onnx_operator("MatMul")
def mat_mul(c: NodeContext, a: Tensor, b: Tensor) -> MLOperand:
    return matmul(c, a.operand, b.operand)


@onnx_operator("Gemm")
def gemm(
    c: NodeContext,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> MLOperand:
    if a.operand.data_type.startswith("float"):
        return c.b.gemm(
            a, b, c=bias, alpha=alpha, beta=beta, a_transpose=bool(transA),
            b_transpose=bool(transB),
        )
    if alpha != 1 or (beta != 1 and bias is not None):
        raise Unsupported("integer matrices with factors that are not 1")
    left, right = (
        c.transpose(x, [1, 0]) if t else x.operand for x, t in ((a, transA), (b, transB))
    )
    result = _exact(c, left, right)
    return result if bias is None else c.b.add(result, bias)


@onnx_operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(
    c: NodeContext,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> MLOperand:
    def turned(x: Tensor, turn: int, batch: int) -> MLOperand:
        order = list(range(x.rank))
        if batch and x.rank > 2:  # the first dimension is the matrix's: [m, batches …, k]
            order = [*order[1:-1], 0, order[-1]]
        if turn and x.rank > 1:
            order[-2:] = order[-1], order[-2]
        return c.transpose(x, order)

    result = matmul(c, turned(a, transA, transBatchA), turned(b, transB, transBatchB))
    return result if alpha == 1 else c.b.mul(result, alpha)


@onnx_operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    c: NodeContext, a: Tensor, b: Tensor, bias: Tensor | None = None, *, alpha: float = 1.0,
    beta: float = 1.0, transA: int = 0, transB: int = 0, activation: str = "",
    activation_alpha: float | None = None, activation_beta: float | None = None,
    activation_gamma: float | None = None,
) -> MLOperand:
    result = gemm(c, a, b, bias, alpha=alpha, beta=beta, transA=transA, transB=transB)
    second = activation_gamma if activation == "Selu" else activation_beta
    given = {0: activation_alpha, 1: second}
    return activate(c, result, activation, {i: v for i, v in given.items() if v is not None})


@onnx_operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(
    c: NodeContext, a: Tensor, b: Tensor, bias: Tensor | None = None
) -> MLOperand:
    result = matmul(c, a.operand, b.operand)
    return tanh_gelu(c, result if bias is None else c.b.add(result, bias))


#: Parameters of activations that a fused operator leaves out: ONNX's defaults.
_PARAMETERS = {
    "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,),
    "Selu": (1.6732632423543772, 1.0507009873554805), "ThresholdedRelu": (1.0,),
    "Clip": (-math.inf, math.inf),
}


def activate(
    c: NodeContext, x: MLOperand, name: str, parameters: Mapping[int, float] | None = None
) -> MLOperand:
    """The activation of a fused operator. ``parameters``: by position."""
    first, second, *_ = (
        (parameters or {}).get(i, value)
        for i, value in enumerate((*_PARAMETERS.get(name, ()), 0.0, 0.0))
    )
    match name:
        case "":
            return x
        case "Relu" | "Sigmoid" | "Tanh" | "Gelu" | "Softplus" | "Softsign":
            return getattr(c.b, name.lower())(x)
        case "FastGelu":
            return tanh_gelu(c, x)
        case "Elu":
            return c.b.elu(x, alpha=first)
        case "Selu":
            return c.b.mul(c.b.elu(x, alpha=first), second)
        case "LeakyRelu":
            return c.b.leaky_relu(x, alpha=first)
        case "ThresholdedRelu":
            return c.b.where(c.b.greater(x, first), x, 0.0)
        case "Clip":
            return c.b.clamp(x, min_value=first, max_value=second)
        case "HardSigmoid":
            return c.b.hard_sigmoid(x, alpha=first, beta=second)
        case "HardSwish":
            return c.b.hard_swish(x)
    raise Unsupported(f"activation {name!r} is not supported")


# -- Einsum --------------------------------------------------------------------------------------
@onnx_operator("Einsum")
def einsum(c: NodeContext, *inputs: Tensor, equation: str) -> MLOperand:
    terms, result = _parse(equation.replace(" ", ""), [x.rank for x in inputs])
    letters, value = _diagonals(c, terms[0], inputs[0].operand)
    for i in range(1, len(inputs)):
        right_letters, right = _diagonals(c, terms[i], inputs[i].operand)
        later = set(result).union(*terms[i + 1 :])
        letters, value = _contract(c, letters, value, right_letters, right, later)
    summed = [i for i, letter in enumerate(letters) if letter not in result]
    if summed:
        value = c.b.reduce_sum(value, axes=summed)
        letters = [letter for letter in letters if letter in result]
    return c.transpose(value, [letters.index(letter) for letter in result])


def _parse(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Subscripts of the inputs and of the result, "..." spelled out as digits."""
    left, _, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise Unsupported(f"equation {equation!r} has {len(parts)} terms for {len(ranks)} inputs")
    most = 0
    for part, rank in zip(parts, ranks, strict=True):
        if "..." in part:
            most = max(most, rank - len(part.replace("...", "")))
    digits = "0123456789"[:most]
    terms = []
    for part, rank in zip(parts, ranks, strict=True):
        own = rank - len(part.replace("...", ""))
        terms.append(list(part.replace("...", digits[most - own :] if own else "")))
        if len(terms[-1]) != rank:
            raise Unsupported(f"equation {equation!r} does not fit an input of rank {rank}")
    if "->" in equation:
        return terms, list(right.replace("...", digits))
    every = [letter for term in terms for letter in term]
    once = sorted(x for x in set(every) if every.count(x) == 1 and x not in digits)
    return terms, [*digits, *once]


def _diagonals(c: NodeContext, letters: list[str], x: MLOperand) -> tuple[list[str], MLOperand]:
    """Repeated subscripts of one input read its diagonal."""
    letters = list(letters)
    for letter in set(letters):
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            n = x.shape[first]
            order = [first, second]
            order += [i for i in range(len(letters)) if i not in (first, second)]
            moved = c.transpose(x, order)
            flat = c.reshape(moved, [n * n, *moved.shape[2:]])
            x = c.b.gather(flat, np.arange(n, dtype=np.int32) * (n + 1), axis=0)
            letters = [letter] + [letters[i] for i in order[2:]]
    return letters, x


def _contract(
    c: NodeContext, a: list[str], x: MLOperand, b: list[str], y: MLOperand, later: set[str]
) -> tuple[list[str], MLOperand]:
    """Two operands become one: subscripts in both are batch or, when they aren't needed later,
    summed by a matrix product."""
    sizes: dict[str, int] = {}
    for letter, n in zip([*a, *b], [*x.shape, *y.shape], strict=True):
        sizes[letter] = max(sizes.get(letter, 1), n)
    batch = [p for p in a if p in b and p in later]
    inner = [p for p in a if p in b and p not in later]
    rows = [p for p in a if p not in b]
    columns = [p for p in b if p not in a]
    count = lambda letters: math.prod(sizes[p] for p in letters)  # noqa: E731

    def arranged(letters: list[str], v: MLOperand, order: list[str], shape: list[int]) -> MLOperand:
        v = c.transpose(v, [letters.index(p) for p in order])
        full = [sizes[p] for p in order]
        if list(v.shape) != full:
            v = c.b.expand(v, full)
        return c.reshape(v, shape)

    base = [sizes[p] for p in batch]
    left = arranged(a, x, batch + rows + inner, [*base, count(rows), count(inner)])
    right = arranged(b, y, batch + inner + columns, [*base, count(inner), count(columns)])
    product = matmul(c, left, right)
    made = batch + rows + columns
    return made, c.reshape(product, [sizes[p] for p in made])


@onnx_operator("Det")
def det(c: NodeContext, x: Tensor) -> MLOperand:
    n = x.shape[-1]
    refuse_if(n > 6, f"the determinant of a {n}×{n} matrix; up to 6×6 are expanded")
    return c.widened(x, lambda v: _determinant(c, v))


def _determinant(c: NodeContext, x: MLOperand) -> MLOperand:
    *lead, n, _ = x.shape
    rank = len(x.shape)

    def element(row: int, column: int) -> MLOperand:
        one = c.slice(c.slice(x, rank - 2, row, 1), rank - 1, column, 1)
        return c.reshape(one, lead)

    minors: dict[tuple[int, ...], MLOperand] = {}

    def minor(columns: tuple[int, ...]) -> MLOperand:
        """Determinant of the last rows in these columns, by Laplace's expansion."""
        if columns not in minors:
            row = n - len(columns)
            total = None
            for i, column in enumerate(columns):
                term = element(row, column)
                if len(columns) > 1:
                    term = c.b.mul(term, minor(columns[:i] + columns[i + 1 :]))
                if total is None:
                    total = term
                else:
                    total = (c.b.sub if i % 2 else c.b.add)(total, term)
            minors[columns] = total
        return minors[columns]

    return minor(tuple(range(n)))
