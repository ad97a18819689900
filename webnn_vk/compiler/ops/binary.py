"""Element-wise arithmetic on two operands (§8.9.13)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..types.data_types import ALL_TYPES
from .lowering import Elementwise
from .record import Operator
from .unary import elementwise


def _arithmetic(
    name: str, doc: str, reference: Callable[..., np.ndarray], flops: int = 1
) -> Operator:
    commutes = name in ("add", "mul", "max", "min")
    lowering = Elementwise(f"w_{name}({{a}}, {{b}})", flops=flops, commutes=commutes)
    return elementwise("§8.9.13", name, doc, ALL_TYPES, lowering, reference, ("a", "b"))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    if a.dtype.kind == "i":
        # Towards zero.
        inexact = np.not_equal(quotient * safe, a)
        quotient = quotient + (inexact & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros_like(quotient), quotient)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        # NumPy takes the square root for one exponent 0.5: NaN, not infinity, for -infinity.
        root = np.isneginf(a) & (b == 0.5)
        return np.where(root, np.asarray(np.inf, a.dtype), np.power(a, b))
    base, exponent = (np.array(x) for x in np.broadcast_arrays(a, b))
    negative = exponent < 0
    remaining = np.where(negative, np.zeros_like(exponent), exponent)
    result, square = np.ones_like(base), base.copy()
    while np.any(remaining):
        result = np.where(remaining & 1, result * square, result)
        square = square * square
        remaining = remaining >> 1
    # 1 / base^n, rounded towards zero.
    units = np.where(np.abs(base.astype(np.int64)) == 1, base ** (exponent & 1), 0)
    return np.where(negative, units.astype(base.dtype), result)


add = _arithmetic("add", "Sum of two operands, element by element.", np.add)
sub = _arithmetic("sub", "Difference of two operands, element by element.", np.subtract)
mul = _arithmetic("mul", "Product of two operands, element by element.", np.multiply)
div = _arithmetic(
    "div",
    "Quotient of two operands, element by element; integers are divided towards zero, by 0 to 0.",
    _divide,
)
max_ = _arithmetic(
    "max", "The larger of two operands, element by element; NaN where either is.", np.maximum
)
min_ = _arithmetic(
    "min", "The smaller of two operands, element by element; NaN where either is.", np.minimum
)
pow_ = _arithmetic(
    "pow", "``a`` to the power of ``b``, element by element; integers wrap around.", _power,
    flops=20,
)
