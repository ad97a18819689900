"""Expressions of sizes (``sizes``): sums of products of atoms.

An expression of integers is a sum of products of atoms with integer coefficients (``Terms``), in
one order, so that equal sums are equal tuples. An atom is a named dimension, or an operation whose
result is no such sum: a division with a remainder, or arithmetic with floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Number = int | float
#: A sum: (atoms of the product by their numbers, coefficient), in order; () is the product's 1.
Terms = tuple[tuple[tuple[int, ...], int], ...]
Interval = tuple[float, float]

#: Gives the values of expressions, which are terms or numbers.
Values = Callable[[Any], Number]

EVERYTHING: Interval = (-math.inf, math.inf)


class Guards:
    """The decisions of a trace: intervals that hold for sums without a constant, normalised
    (``normal``), and comparisons by their operation and operands."""

    def __init__(self) -> None:
        self.intervals: dict[Terms, Interval] = {}
        self.truths: dict[tuple[str, Any, Any], bool] = {}

    def terms(self) -> list[Any]:
        """The expressions that were decided on."""
        return [*self.intervals, *(side for _, a, b in self.truths for side in (a, b))]

    def hold(self, value: Values) -> bool:
        """Whether they hold where ``value`` gives the values of expressions."""
        return all(
            low <= value(key) <= high for key, (low, high) in self.intervals.items()
        ) and all(
            OPERATIONS[operation](value(a), value(b)) == truth
            for (operation, a, b), truth in self.truths.items()
        )


class Expressions:
    """The atoms of one graph, by number, shared by all its traces."""

    def __init__(self) -> None:
        #: (operation, operands), or ("dimension", name, None).
        self.atoms: list[tuple[str, Any, Any]] = []
        self._numbers: dict[tuple[str, Any, Any], int] = {}
        #: The bounds of the named dimensions, inclusive.
        self.bounds: dict[str, tuple[int, int]] = {}

    def atom(self, operation: str, a: Any, b: Any = None) -> int:
        """The number of an atom."""
        key = operation, a, b
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(key)
        return number

    def dimension(self, name: str, low: int, high: int) -> None:
        """Add a named dimension. TypeError if the name has other bounds already."""
        known = self.bounds.setdefault(name, (low, high))
        if known != (low, high):
            raise TypeError(
                f"dimension {name!r} has {low} … {high} elements here, and {known[0]} … {known[1]} "
                "where it was described first"
            )
        self.atom("dimension", name)

    def value(self, terms: Any, sizes: Mapping[str, Any], known: dict[int, Any]) -> Any:
        """The value of an expression for sizes of the named dimensions: numbers, or sizes of
        another trace. ``known``: the values of atoms, which it adds to."""
        if not isinstance(terms, tuple):
            return terms

        def atom(number: int) -> Any:
            value = known.get(number)
            if value is None:
                operation, a, b = self.atoms[number]
                if operation == "dimension":
                    value = sizes[a]
                else:
                    value = OPERATIONS[operation](*(self.value(x, sizes, known) for x in (a, b)))
                known[number] = value
            return value

        if len(terms) == 1 and len(terms[0][0]) == 1 and terms[0][1] == 1:
            return atom(terms[0][0][0])
        return sum(c * math.prod(map(atom, product)) for product, c in terms)

    def values(self, sizes: Sequence[int]) -> Values:
        """The values of expressions for ``sizes`` of the named dimensions, in the order of
        ``bounds``."""
        named, known = dict(zip(self.bounds, sizes, strict=True)), dict[int, Number]()
        return lambda terms: self.value(terms, named, known)

    def names_in(self, terms: Any) -> set[str]:
        """The named dimensions that an expression depends on."""
        found: set[str] = set()
        for product, _ in terms if isinstance(terms, tuple) else ():
            for number in product:
                operation, a, b = self.atoms[number]
                found |= {a} if operation == "dimension" else self.names_in(a) | self.names_in(b)
        return found

    def text(self, terms: Any) -> str:
        """An expression for messages: ``2*tokens + 1``."""
        if not isinstance(terms, tuple):
            return repr(terms)
        parts = []
        for product, factor in terms:
            factors = [] if factor == 1 and product else [str(factor)]
            parts.append("*".join([*factors, *map(self._atom_text, product)]))
        return " + ".join(parts).replace("+ -", "- ") or "0"

    def _atom_text(self, number: int) -> str:
        operation, a, b = self.atoms[number]
        if operation == "dimension":
            return str(a)
        return f"({self.text(a)} {operation} {self.text(b)})"


def scaled(size: Any, scale: float) -> Any:
    """``size * scale`` as single floats, rounded down."""
    if not isinstance(size, (int, float)):  # a size of a trace
        return size.scaled(scale)
    # The product of two single floats is exact in double.
    product = float(np.float32(size)) * float(np.float32(scale))
    return int(np.float32(min(product, 2.0**32)))


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "round": lambda a, b: round(a, b) if b else round(a), "scaled": scaled,
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": lambda a, b: a % b,
    "**": lambda a, b: a**b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "==": lambda a, b: a == b,
}


def split_constant(terms: Terms) -> tuple[Terms, int]:
    """A sum without its constant, and the constant."""
    if terms and not terms[0][0]:
        return terms[1:], terms[0][1]
    return terms, 0


def normal(terms: Terms) -> tuple[Terms, int]:
    """A sum divided by the common factor of its coefficients, whose sign is that of the first; and
    the factor."""
    factor = math.gcd(*(c for _, c in terms))
    if terms[0][1] < 0:
        factor = -factor
    if factor == 1:
        return terms, 1
    return tuple((product, c // factor) for product, c in terms), factor


def without(product: tuple[int, ...], part: Iterable[int]) -> tuple[int, ...] | None:
    """A product divided by a part of its atoms; None if it doesn't have them."""
    rest = list(product)
    for number in part:
        if number not in rest:
            return None
        rest.remove(number)
    return tuple(rest)


def even_part(terms: Terms, divisor: Any) -> tuple[Terms, Terms]:
    """The quotient of the part of a sum that the divisor divides term by term, and what is left."""
    if isinstance(divisor, tuple):
        if len(divisor) != 1:
            if terms == divisor:
                return (((), 1),), ()
            return (), terms
        below, factor = divisor[0]
    else:
        below, factor = (), divisor
    whole, left = [], []
    for product, c in terms:
        rest = without(product, below)
        if rest is not None:
            if not c % factor:
                whole.append((rest, c // factor))
                continue
            if not below and not product and 0 <= factor:
                # The remainder of a constant.
                if c // factor:
                    whole.append(((), c // factor))
                left.append(((), c % factor))
                continue
        left.append((product, c))
    return tuple(sorted(whole)), tuple(left)


def times(a: float, b: float) -> float:
    return 0 if not a or not b else a * b


def floor_divide(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a // b
