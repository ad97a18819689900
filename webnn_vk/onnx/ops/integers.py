"""Integers reduced without floats, which hold 24 bits of them: as ONNX's definitions have it,
results rounded to zero."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext

#: Types whose sums fit into the type beside them.
_WIDE = {"int8": "int64", "uint8": "int64", "int32": "int64", "uint32": "int64"}


def mean(c: NodeContext, x: MLOperand, options: dict[str, Any]) -> MLOperand:
    """The mean, whatever the sum would be."""
    count = math.prod(x.shape[a] for a in options["axes"])
    if x.data_type in _WIDE:
        total = c.b.reduce_sum(c.cast(x, _WIDE[x.data_type]), **options)
        return c.cast(c.b.div(total, count), x.data_type)
    # Sums of quotients and of rests fit where the sum need not.
    quotient = c.b.div(x, count)
    rests = c.b.reduce_sum(c.b.sub(x, c.b.mul(quotient, count)), **options)
    carried = c.b.div(rests, count)
    whole = c.b.add(c.b.reduce_sum(quotient, **options), carried)
    rest = c.b.sub(rests, c.b.mul(carried, count))
    if x.data_type == "uint64":
        return whole
    # whole + rest / count, the two of different signs: one step towards zero.
    down = c.b.logical_and(c.b.greater(whole, 0), c.b.lesser(rest, 0))
    up = c.b.logical_and(c.b.lesser(whole, 0), c.b.greater(rest, 0))
    return c.b.where(down, c.b.sub(whole, 1), c.b.where(up, c.b.add(whole, 1), whole))


def norm(c: NodeContext, x: MLOperand, options: dict[str, Any]) -> MLOperand:
    """The square root of the sum of squares. Norms of 2³² and more (of 64 bits only) are computed
    in floats."""
    near = c.b.reduce_l2(c.b.cast(x, "float32"), **options)
    wide = c.cast(x, "uint64" if x.data_type.startswith("uint") else "int64")
    squares = c.b.cast(c.b.mul(wide, wide), "uint64")
    total = c.b.reduce_sum(squares, **options)
    # Newton's step of a root that is right to 22 bits leaves it wrong by one at most.
    root = c.b.max(c.b.cast(near, "uint64"), 1)
    root = c.b.div(c.b.add(root, c.b.div(total, root)), 2)
    above = c.b.greater(root, c.b.div(total, c.b.max(root, 1)))
    root = c.b.where(above, c.b.sub(root, 1), root)
    if x.data_type in ("int64", "uint64"):
        fits = c.b.lesser(near, 2.0**32 * (1 - 2.0**-20))
        root = c.b.where(fits, root, c.b.cast(near, "uint64"))
    return c.cast(root, x.data_type)


@functools.cache
def _powers_of_e() -> list[int]:
    """The powers of e that 64 bits hold, rounded up."""
    with localcontext() as context:
        context.prec = 40
        return [math.ceil(Decimal(k).exp()) for k in range(1, 45)]


def log_sum(c: NodeContext, x: MLOperand, options: dict[str, Any]) -> MLOperand:
    """The logarithm of the sum: how many powers of e it reaches; 0 for sums of 0 and less, of which
    ONNX says nothing."""
    wide = "uint64" if x.data_type.startswith("uint") else "int64"
    total = c.b.reduce_sum(c.cast(x, wide), **options)
    most = np.iinfo(wide).max
    powers = [n for n in _powers_of_e() if n <= most]
    reached = c.b.greater_or_equal(
        c.reshape(total, [*total.shape, 1]), c.constant(np.array(powers, np.uint64), wide)
    )
    count = c.b.reduce_sum(c.b.cast(reached, "int32"), axes=[len(total.shape)])
    if x.data_type in ("int64", "uint64"):
        # A sum that wraps around is computed in floats.
        near = c.b.reduce_sum(c.b.cast(x, "float32"), **options)
        fits = c.b.lesser(near, float(most) * (1 - 2.0**-20))
        count = c.b.where(fits, count, c.b.cast(c.b.log(near), "int32"))
    return c.cast(count, x.data_type)


def log_sum_exp(c: NodeContext, x: MLOperand, options: dict[str, Any]) -> MLOperand:
    """The largest element, and the logarithm of the sum that the distances to it make."""
    wide = "uint64" if x.data_type.startswith("uint") else "int64"
    given = c.cast(x, wide)
    largest = c.b.reduce_max(given, **{**options, "keep_dimensions": True})
    distance = c.b.sub(largest, given)
    parts = c.b.exp(c.b.neg(c.b.cast(distance, "float32")))
    # Distances that wrap around are too large to count.
    parts = c.b.where(c.b.lesser(distance, 0), 0.0, parts) if wide == "int64" else parts
    above = c.b.log(c.b.reduce_sum(parts, **options))
    whole = c.b.floor(above)
    total = c.b.add(c.reshape(largest, above.shape), c.b.cast(whole, wide))
    if wide == "int64":
        broken = c.b.logical_and(c.b.lesser(total, 0), c.b.greater(above, whole))
        total = c.b.where(broken, c.b.add(total, 1), total)
    return c.cast(total, x.data_type)


#: By ONNX's name, those that would go through floats otherwise.
REDUCTIONS: dict[str, Callable[[NodeContext, MLOperand, dict[str, Any]], MLOperand]] = {
    "ReduceMean": mean, "ReduceL2": norm, "ReduceLogSum": log_sum, "ReduceLogSumExp": log_sum_exp,
}


def power(c: NodeContext, base: MLOperand, exponent: MLOperand) -> MLOperand:
    """An integer to a float's power: by products where that is whole and not negative."""
    whole = c.b.logical_and(
        c.b.equal(c.b.floor(exponent), exponent), c.b.greater_or_equal(exponent, 0.0)
    )
    places = c.b.where(whole, exponent, c.constant(0, exponent.data_type))
    # All powers above 2⁶⁴ are too large; powers of -1 alternate.
    pairs = c.b.floor(c.b.div(c.b.max(c.b.sub(places, 64.0), 0.0), 2.0))
    exact = c.b.pow(base, c.b.cast(c.b.sub(places, c.b.mul(pairs, 2.0)), base.data_type))
    near = c.b.cast(c.b.pow(c.b.cast(base, "float32"), c.cast(exponent, "float32")), base.data_type)
    return c.b.where(whole, exact, near)


def shrink(c: NodeContext, x: MLOperand, bias: float, bound: float) -> MLOperand:
    """x brought nearer to 0 by ``bias`` where it lies outside of the bound, else 0."""
    limits, whole = np.iinfo(x.data_type), math.floor(bias)

    def constant(number: int) -> MLOperand:
        return c.constant(min(max(number, int(limits.min)), int(limits.max)), x.data_type)

    def rounded(value: MLOperand, broken: MLOperand, by: int) -> MLOperand:
        """One step towards zero where the part of ``bias`` behind the point says so."""
        return value if whole == bias else c.b.where(broken, c.b.add(value, by), value)

    def moved(by: int) -> MLOperand:
        return (c.b.add if by >= 0 else c.b.sub)(x, constant(abs(by)))

    zero = constant(0)
    down = moved(-whole)
    down = rounded(down, c.b.greater(down, zero), -1)
    result = c.b.where(c.b.greater(x, constant(math.floor(bound))), down, zero)
    if not limits.min:
        return result
    up = moved(whole)
    up = rounded(up, c.b.lesser(up, zero), 1)
    return c.b.where(c.b.lesser(x, constant(math.ceil(-bound))), up, result)
