"""The rest of dividing floats, exact whatever the quotient: by whole numbers of 64 bits, which hold
a float's digits."""

from __future__ import annotations

import math

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext

#: Digits of a float as a whole number, and by how many places its rest is moved at a time.
_DIGITS, _PLACES = 27, 34
#: From float32's largest number to its least.
_STEPS = -(-(128 + 149) // _PLACES)


def float_mod(c: NodeContext, x: MLOperand, y: MLOperand, fmod: bool) -> MLOperand:
    """x modulo y, with the sign of x (``fmod``) or of y."""
    size, by = c.b.abs(x), c.b.abs(y)
    rest = _rest(c, size, by)
    # A finite x modulo ∞ is x. 0 as a divisor, infinities and NaN as x have no rest.
    rest = c.b.where(c.b.lesser(size, by), size, rest)
    none = c.b.logical_not(c.b.logical_and(
        c.b.lesser(size, math.inf), c.b.greater(by, 0.0)
    ))
    rest = c.b.where(none, math.nan, rest)
    if fmod:
        return c.b.where(c.b.lesser(x, 0.0), c.b.neg(rest), rest)
    # The signs differ: add the rest of y.
    differ = c.b.not_equal(c.b.lesser(x, 0.0), c.b.lesser(y, 0.0))
    other = c.b.where(c.b.logical_and(differ, c.b.greater(rest, 0.0)), c.b.sub(by, rest), rest)
    return c.b.where(c.b.lesser(y, 0.0), c.b.neg(other), other)


def _rest(c: NodeContext, size: MLOperand, by: MLOperand) -> MLOperand:
    """The rest of finite numbers above 0, where ``size`` is not less than ``by``; else anything."""
    one = c.constant(1, "float32")
    usual = c.b.logical_and(c.b.lesser(size, math.inf), c.b.greater_or_equal(size, by))
    usual = c.b.logical_and(usual, c.b.greater(by, 0.0))
    size, by = (c.b.where(usual, v, one) for v in (size, by))
    places_x, places_y = _exponent(c, size), _exponent(c, by)
    base = c.b.min(places_x, places_y)
    rest = _digits(c, size, places_x)
    # Logarithms are rounded: the logarithm of y may exceed the logarithm of a larger x by one.
    divisor = _moved(c, _digits(c, by, places_y), c.b.sub(places_y, base))
    left = c.b.sub(places_x, base)
    rest = _modulo(c, rest, divisor)
    for _ in range(_STEPS):
        places = c.b.min(left, _PLACES)
        rest = _modulo(c, _moved(c, rest, places), divisor)
        left = c.b.sub(left, places)
    return _scaled(c, c.b.cast(rest, "float32"), base)


def _exponent(c: NodeContext, x: MLOperand) -> MLOperand:
    """How many places x is from a whole number of 25 or 26 digits, as int32."""
    logarithm = c.b.floor(c.b.mul(c.b.log(x), 1 / math.log(2)))
    return c.b.sub(c.b.max(c.b.cast(logarithm, "int32"), -149), _DIGITS - 2)


def _digits(c: NodeContext, x: MLOperand, places: MLOperand) -> MLOperand:
    return c.b.cast(_scaled(c, x, c.b.neg(places)), "int64")


def _moved(c: NodeContext, x: MLOperand, places: MLOperand) -> MLOperand:
    """x · 2^places of whole numbers."""
    return c.b.mul(x, c.b.pow(c.constant(2, "int64"), c.b.cast(places, "int64")))


def _modulo(c: NodeContext, x: MLOperand, by: MLOperand) -> MLOperand:
    return c.b.sub(x, c.b.mul(c.b.div(x, by), by))


def _scaled(c: NodeContext, x: MLOperand, places: MLOperand) -> MLOperand:
    """x · 2^places of floats, by powers that there are."""
    two = c.constant(2, "int32")
    for method, count in ((c.b.mul, places), (c.b.div, c.b.neg(places))):
        left = c.b.max(count, 0)
        for _ in range(6):
            part = c.b.min(left, 30)
            x = method(x, c.b.cast(c.b.pow(two, part), "float32"))
            left = c.b.sub(left, part)
    return x
