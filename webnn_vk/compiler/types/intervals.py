"""Bounds of the expressions of sizes (``sizes``), by interval arithmetic and guards."""

from __future__ import annotations

import math
from typing import Any

from .expressions import (
    EVERYTHING,
    Expressions,
    Guards,
    Interval,
    Terms,
    floor_divide,
    normal,
    scaled,
    split_constant,
    times,
    without,
)


class Intervals:
    """Bounds of a trace's expressions, as far as its guards tell."""

    def __init__(self, expressions: Expressions, guards: Guards) -> None:
        self._expressions, self._guards = expressions, guards
        # Valid until a guard is added.
        self._cache: dict[Terms, Interval] = {}

    def forget(self) -> None:
        """A guard was added."""
        self._cache.clear()

    def of(self, terms: Terms) -> Interval:
        """Bounds of a sum of integers, by interval arithmetic and the guards so far."""
        found = self._cache.get(terms)
        if found is None:
            low = high = 0
            for product, factor in terms:
                part = self._product_interval(product)
                low += min(times(part[0], factor), times(part[1], factor))
                high += max(times(part[0], factor), times(part[1], factor))
            low, high = self._by_factors(terms, low, high)
            found = (low, high)
            rest, constant = split_constant(terms)
            if rest:
                key, factor = normal(rest)
                known = self._guards.intervals.get(key)
                if known is not None:
                    ends = sorted(times(end, factor) + constant for end in known)
                    found = max(low, ends[0]), min(high, ends[1])
            self._cache[terms] = found
        return found

    def _by_factors(self, terms: Terms, low: float, high: float) -> Interval:
        """Tighter bounds of ``a*b - a`` as ``a * (b - 1)``."""
        if len(terms) < 2:
            return low, high
        common = list(terms[0][0])
        for product, _ in terms[1:]:
            rest = list(product)
            common = [n for n in common if n in rest and not rest.remove(n)]  # type: ignore[func-returns-value]
        if not common:
            return low, high
        divided = [(without(product, common) or (), c) for product, c in terms]
        ends = self.of(tuple(sorted(divided)))
        corners = [times(a, b) for a in self._product_interval(tuple(common)) for b in ends]
        return max(low, min(corners)), min(high, max(corners))

    def _product_interval(self, product: tuple[int, ...]) -> Interval:
        low = high = 1
        for number in product:
            ends = self._atom_interval(number)
            corners = [times(a, b) for a in (low, high) for b in ends]
            low, high = min(corners), max(corners)
        if low < 0 or len(product) < 2:
            return low, high
        # Bounds of a part of the product bound all of it.
        for key, (_, most) in self._guards.intervals.items():
            part = key[0][0]
            if len(key) == 1 and 1 < len(part) < len(product) and most != math.inf:
                rest = without(product, part)
                if rest is not None:
                    high = min(high, times(most, self._product_interval(rest)[1]))
        return low, high

    def _atom_interval(self, number: int) -> Interval:
        low, high = self._operation_interval(*self._expressions.atoms[number])
        known = self._guards.intervals.get((((number,), 1),), EVERYTHING)
        return max(low, known[0]), min(high, known[1])

    def _operation_interval(self, operation: str, a: Any, b: Any) -> Interval:
        if operation == "dimension":
            return self._expressions.bounds[a]
        if operation == "scaled":
            low, high = self.of(a)
            return scaled(low, b), math.inf if high == math.inf else scaled(high, b)
        if operation not in ("//", "%"):
            return EVERYTHING
        divisor = self.of(b) if isinstance(b, tuple) else (b, b)
        if divisor[0] < 1:
            return EVERYTHING
        if operation == "%":
            return 0, divisor[1] - 1
        divided = self.of(a) if isinstance(a, tuple) else (a, a)
        corners = [floor_divide(x, y) for x in divided for y in divisor]
        return min(corners), max(corners)
