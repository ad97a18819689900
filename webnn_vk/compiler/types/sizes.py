"""Sizes that are known only at dispatch: expressions over named dimensions, with an example value.

A ``Size`` behaves as the number that it is for the sizes of its ``Trace``, and keeps the expression
that gave it. Arithmetic builds expressions. A decision that depends on a size (a comparison, a
truth value, a conversion to a plain number) is made for the example and becomes a *guard* of the
trace. So code that computes with shapes runs unchanged, and its result is valid for all sizes for
which the guards hold. A conversion guards that the size is exactly the example, so code that has
no symbolic form is never wrong, only less general.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .expressions import (
    EVERYTHING,
    OPERATIONS,
    Expressions,
    Guards,
    Number,
    Terms,
    Values,
    even_part,
    normal,
    split_constant,
)
from .intervals import Intervals

_preferring: ContextVar[bool] = ContextVar("preferring", default=False)


@contextmanager
def preferring() -> Iterator[None]:
    """Decisions within are right for all sizes, and best for some: they set no guards, but say
    which of several traces suits sizes best (``Trace.suits``)."""
    token = _preferring.set(True)
    try:
        yield
    finally:
        _preferring.reset(token)


class Trace:
    """One run of code over sizes: example values by name, and the guards found on the way.
    ``folds``: results are used only where the guards hold, so sizes that they fix are numbers."""

    def __init__(
        self, expressions: Expressions, examples: Mapping[str, int], folds: bool = True
    ) -> None:
        self.expressions, self.folds = expressions, folds
        self.examples = dict(examples)
        self.decided, self._preferences = Guards(), Guards()
        self._values: dict[int, Number] = {}
        self._intervals = Intervals(expressions, self.decided)
        #: Bounds of a sum of integers.
        self.interval = self._intervals.of
        # With and without elements are different programs.
        for name, (low, _) in expressions.bounds.items():
            if low == 0 and name in self.examples:
                key: Terms = (((expressions.atom("dimension", name),), 1),)
                empty = not self.examples[name]
                self._narrow(key, 0 if empty else 1, 0 if empty else math.inf)

    def size(self, terms: Terms) -> Any:
        """The Size of an expression: a plain number if it is constant."""
        if not terms:
            return 0
        if len(terms) == 1 and not terms[0][0]:
            return terms[0][1]
        if self.folds:
            low, high = self.interval(terms)
            if low == high:
                return int(low)
        return Size(self, terms, self.value(terms))

    def named(self, name: str) -> Any:
        """The size of a named dimension."""
        low, high = self.expressions.bounds[name]
        if low == high:
            return low
        if not self.examples[name]:
            return 0
        return Size(self, (((self.expressions.atom("dimension", name),), 1),), self.examples[name])

    # -- values ----------------------------------------------------------------------------------
    def value(self, terms: Any) -> Number:
        """The value of an expression for the examples."""
        return self.expressions.value(terms, self.examples, self._values)

    # -- guards ----------------------------------------------------------------------------------
    def at_most(self, terms: Terms, limit: int) -> bool:
        """Whether a sum of integers is at most ``limit``, guarded."""
        low, high = self.interval(terms)
        if high <= limit:
            return True
        if low > limit:
            return False
        holds = self.value(terms) <= limit
        rest, constant = split_constant(terms)
        key, factor = normal(rest)
        limit -= constant
        # factor * key <= limit, or its contrary
        if factor > 0:
            bound = limit // factor
            self._narrow(key, -math.inf, bound) if holds else self._narrow(key, bound + 1, math.inf)
        else:
            bound = -(limit // -factor)
            self._narrow(key, bound, math.inf) if holds else self._narrow(key, -math.inf, bound - 1)
        return holds

    def equal(self, terms: Terms, number: int) -> bool:
        """Whether a sum of integers is ``number``, guarded."""
        low, high = self.interval(terms)
        if not low <= number <= high:
            return False
        if low == high:
            return True
        rest, constant = split_constant(terms)
        key, factor = normal(rest)
        wanted, remainder = divmod(number - constant, factor)
        if remainder or self.decided.truths.get(("==", key, wanted)) is False:
            return False
        if self.value(terms) == number:
            self._narrow(key, wanted, wanted)
            return True
        low, high = self.interval(key)
        if wanted == low:
            self._narrow(key, wanted + 1, math.inf)
        elif wanted == high:
            self._narrow(key, -math.inf, wanted - 1)
        else:
            self._store().truths["==", key, wanted] = False
        return False

    def truth(self, operation: str, a: Any, b: Any) -> bool:
        """The truth of a comparison of which a side is a float, guarded."""
        key = operation, a, b
        found = self.decided.truths.get(key)
        if found is None:
            found = bool(OPERATIONS[operation](self.value(a), self.value(b)))
            self._store().truths[key] = found
        return found

    def _store(self) -> Guards:
        return self._preferences if _preferring.get() else self.decided

    def _narrow(self, key: Terms, low: float, high: float) -> None:
        store = self._store()
        known = store.intervals.get(key, EVERYTHING)
        store.intervals[key] = max(known[0], low), min(known[1], high)
        if store is self.decided:
            self._intervals.forget()

    def at(self, value: Values, results: Iterable[Any] = ()) -> list[Number] | None:
        """The values of the ``results`` (terms, or numbers) for some sizes, which ``value`` stands
        for (``Expressions.values``); None where a guard doesn't hold."""
        try:
            return [*map(value, results)] if self.decided.hold(value) else None
        except ZeroDivisionError:  # of an expression that only guarded sizes reach
            return None

    def suits(self, value: Values) -> bool:
        """Whether no other decisions would be better for these sizes."""
        return self._preferences.hold(value)

    @property
    def guards(self) -> list[str]:
        """The guards as text."""
        text, made = self.expressions.text, self.decided
        ranges = [f"{a} <= {text(key)} <= {b}" for key, (a, b) in made.intervals.items()]
        return ranges + [
            f"{'' if so else 'not '}{text(a)} {operation} {text(b)}"
            for (operation, a, b), so in made.truths.items()
        ]


class Size:
    """A size of a trace; see the module. It has the operators of a number."""

    __slots__ = ("terms", "trace", "value")

    def __init__(self, trace: Trace, terms: Terms, value: Number) -> None:
        self.trace, self.terms, self.value = trace, terms, value

    # -- arithmetic ------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __neg__(self) -> Any:
        return self * -1

    def __pos__(self) -> Size:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def _sum(self, other: Any, sign: int) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        if self._floats(other):
            return self._float("+" if sign > 0 else "-", self.terms, terms)
        total = dict(self.terms)
        for product, factor in terms if isinstance(terms, tuple) else (((), terms),):
            total[product] = total.get(product, 0) + sign * factor
        return _summed(self.trace, total)

    def __mul__(self, other: Any) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        if self._floats(other):
            return self._float("*", self.terms, terms)
        if not isinstance(terms, tuple):
            if not terms:
                return 0
            return self.trace.size(tuple((product, c * terms) for product, c in self.terms))
        total: dict[tuple[int, ...], int] = {}
        for a, x in self.terms:
            for b, y in terms:
                product = tuple(sorted(a + b))
                total[product] = total.get(product, 0) + x * y
        return _summed(self.trace, total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._divided(self.terms, other)[0]

    def __rfloordiv__(self, other: Any) -> Any:
        return self._divided(other, self)[0]

    def __mod__(self, other: Any) -> Any:
        return self._divided(self.terms, other)[1]

    def __rmod__(self, other: Any) -> Any:
        return self._divided(other, self)[1]

    def __divmod__(self, other: Any) -> Any:
        return self._divided(self.terms, other)

    def __rdivmod__(self, other: Any) -> Any:
        return self._divided(other, self)

    def _divided(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Quotient and remainder of terms or a number by a Size or a number."""
        trace, divisor = self.trace, _terms(b)
        if isinstance(divisor, float) or isinstance(a, float):
            return self._float("//", a, divisor), self._float("%", a, divisor)
        if isinstance(b, Size) and b == 0:
            raise ZeroDivisionError(f"{trace.expressions.text(a)} // {b}")
        whole, left = even_part(a if isinstance(a, tuple) else ((((), a),) if a else ()), divisor)
        quotient = trace.size(whole)
        if not left:
            return quotient, 0
        if divisor == 1:
            return quotient + trace.size(left), 0
        rest = trace.size(left)
        if isinstance(rest, Size):
            beyond = b - rest
            least = trace.interval(beyond.terms)[0] if isinstance(beyond, Size) else beyond
            if trace.interval(left)[0] >= 0 and least > 0:
                return quotient, rest
        if not isinstance(rest, Size) and not isinstance(divisor, tuple):
            return quotient + rest // divisor, rest % divisor
        at = trace.expressions.atom
        operand = left if isinstance(rest, Size) else rest
        ratio, modulus = at("//", operand, divisor), at("%", operand, divisor)
        return (
            quotient + trace.size((((ratio,), 1),)), trace.size((((modulus,), 1),))
        )

    def __truediv__(self, other: Any) -> Any:
        terms = _terms(other)
        return NotImplemented if terms is None else self._float("/", self.terms, terms)

    def __rtruediv__(self, other: Any) -> Any:
        terms = _terms(other)
        return NotImplemented if terms is None else self._float("/", terms, self.terms)

    def __pow__(self, power: Any) -> Any:
        if isinstance(power, int) and power >= 0 and type(self.value) is int:
            return math.prod([self] * power)
        terms = _terms(power)
        return NotImplemented if terms is None else self._float("**", self.terms, terms)

    def _floats(self, other: Any) -> bool:
        value = other.value if isinstance(other, Size) else other
        return type(self.value) is float or isinstance(value, float)

    def _float(self, operation: str, a: Any, b: Any) -> Size:
        terms = (((self.trace.expressions.atom(operation, a, b),), 1),)
        return Size(self.trace, terms, self.trace.value(terms))

    # -- decisions -------------------------------------------------------------------------------
    def _compare(self, operation: str, other: Any) -> Any:
        terms = _terms(other)
        if terms is None:
            return NotImplemented
        if self._floats(other):
            return self.trace.truth(operation, self.terms, terms)
        difference = self - other
        if not isinstance(difference, Size):
            return OPERATIONS[operation](difference, 0)
        trace, terms = self.trace, difference.terms
        match operation:
            case "<":
                return trace.at_most(terms, -1)
            case "<=":
                return trace.at_most(terms, 0)
            case ">":
                return not trace.at_most(terms, 0)
            case ">=":
                return not trace.at_most(terms, -1)
        return trace.equal(terms, 0)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    def __eq__(self, other: Any) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: Any) -> Any:
        equal = self._compare("==", other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(self.terms)

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        if type(self.value) is float:
            raise TypeError("a float is no index")
        return int(self)

    def __int__(self) -> int:
        return int(self._exact())

    def __float__(self) -> float:
        return float(self._exact())

    __trunc__ = __int__

    def __round__(self, digits: int | None = None) -> Any:
        if type(self.value) is int:
            return self
        atom = self.trace.expressions.atom("round", self.terms, digits or 0)
        return self.trace.size((((atom,), 1),))

    def __floor__(self) -> int:
        return math.floor(self._exact())

    def __ceil__(self) -> int:
        return math.ceil(self._exact())

    def _exact(self) -> Number:
        """The example, which sizes then have to be."""
        if type(self.value) is float:
            self.trace.truth("==", self.terms, self.value)
        else:
            self.trace.equal(self.terms, self.value)
        return self.value

    def scaled(self, scale: float) -> Any:
        """The size times ``scale`` as single floats, rounded down."""
        atom = self.trace.expressions.atom("scaled", self.terms, float(scale))
        return self.trace.size((((atom,), 1),))

    def bit_length(self) -> int:
        """As of the integer."""
        return int(self).bit_length()

    def __str__(self) -> str:
        return self.trace.expressions.text(self.terms)

    __repr__ = __str__


def same(a: Any, b: Any) -> bool:
    """Whether two sizes or numbers are equal for all sizes; nothing is decided."""
    difference = a - b
    return not isinstance(difference, Size) and difference == 0


def alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal for all sizes, without a decision about them."""
    return len(a) == len(b) and all(map(same, a, b))


def sizes_in(value: Any) -> Iterator[Size]:
    """The sizes in nested tuples, lists and mappings."""
    if isinstance(value, Size):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from sizes_in(item)
    elif isinstance(value, dict):
        yield from sizes_in(list(value.values()))


def symbolic(value: Any, change: Callable[[Size], Any]) -> Any:
    """``value`` with ``change`` applied to each size in its tuples, lists and mappings."""
    if isinstance(value, Size):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(symbolic(item, change) for item in value)
    if isinstance(value, dict):
        return {key: symbolic(item, change) for key, item in value.items()}
    return value


def _terms(value: Any) -> Any:
    """The terms of a Size; a plain number as it is; None for anything else."""
    if isinstance(value, Size):
        return value.terms
    if isinstance(value, (int, float)):
        return value
    if hasattr(value, "dtype") and not getattr(value, "shape", ()):
        return value.item()
    return None


def _summed(trace: Trace, total: Mapping[tuple[int, ...], int]) -> Any:
    return trace.size(tuple(sorted((p, c) for p, c in total.items() if c)))
