"""Named dimensions as users write and read them (webnn#883), and their sizes in a trace."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NoReturn

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from .sizes import Size, Trace

#: The largest size of a dimension (``data_types.MAX_DIMENSION``).
_LARGEST = 2**31 - 1
#: Divisors that examples have, if they are small enough.
_DIVISIBLE = (720, 240, 120, 60, 24, 12)


@dataclass(frozen=True)
class MLDynamicDimension:
    """A dimension whose size is known at dispatch (experimental "dynamic-shapes"): ``min_size`` …
    ``max_size`` elements. Dimensions of one name have one size in a dispatch.

    ``+ - * // %`` with integers and other dimensions of the builder give computed dimensions, for
    shapes that operators take as arguments. A decision that needs the size (``if dimension > 4``,
    ``range(dimension)``) raises TypeError.
    """

    name: str
    max_size: int
    min_size: int = 1
    # A computed dimension: the size in the builder's trace, or (function, operands).
    _source: Any = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self._source is not None:
            return
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"dimension: a name is expected, not {self.name!r}")
        for member in ("max_size", "min_size"):
            value = getattr(self, member)
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError(f"dimension {self.name!r}: {member} has to be an integer")
            object.__setattr__(self, member, operator.index(value))
        if not 0 <= self.min_size <= self.max_size <= _LARGEST or not self.max_size:
            raise TypeError(
                f"dimension {self.name!r}: sizes {self.min_size} … {self.max_size}; "
                f"0 ≤ min_size ≤ max_size and 1 ≤ max_size ≤ {_LARGEST} are expected"
            )

    def _computed(self, function: Any, sign: str, a: Any, b: Any) -> Any:
        other = b if a is self else a
        if not isinstance(other, MLDynamicDimension):
            if isinstance(other, bool) or not hasattr(other, "__index__"):
                return NotImplemented
            other = operator.index(other)
        a, b = (self, other) if a is self else (other, self)
        names = [o.name if isinstance(o, MLDynamicDimension) else str(o) for o in (a, b)]
        return MLDynamicDimension(
            f"({names[0]} {sign} {names[1]})", _LARGEST, 0, _source=(function, a, b)
        )

    def __add__(self, other: Any) -> Any:
        return self._computed(operator.add, "+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._computed(operator.add, "+", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._computed(operator.sub, "-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._computed(operator.sub, "-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._computed(operator.mul, "*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._computed(operator.mul, "*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._computed(operator.floordiv, "//", self, other)

    def __mod__(self, other: Any) -> Any:
        return self._computed(operator.mod, "%", self, other)

    def _unknown(self, *_: Any) -> NoReturn:
        raise TypeError(f"dimension {self.name!r}: its size is known only at dispatch")

    __index__ = __int__ = __float__ = __bool__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = _unknown

    def __str__(self) -> str:
        return self.name


def _introduce(dimension: MLDynamicDimension, trace: Trace) -> None:
    """Make the dimension known to a builder's trace, with an example: a number near
    ``max_size`` that has many divisors and isn't the example of another dimension."""
    if dimension._source is not None:
        return
    trace.expressions.dimension(dimension.name, dimension.min_size, dimension.max_size)
    if dimension.name not in trace.examples:
        low, high, taken = dimension.min_size, dimension.max_size, set(trace.examples.values())
        multiples = (high // n * n for n in _DIVISIBLE)
        least = max(low, 1)
        good = (n for n in (*multiples, *range(high, low, -1)) if n >= least and n not in taken)
        trace.examples[dimension.name] = next(good, high)


def _size_of(dimension: MLDynamicDimension, trace: Trace) -> Any:
    """The dimension's size in a builder's trace. TypeError for a dimension of another
    builder, and for a name with other bounds."""
    if dimension._source is None:
        if dimension.name not in trace.examples:
            raise TypeError(f"dimension {dimension.name!r}: no input has it")
        trace.expressions.dimension(dimension.name, dimension.min_size, dimension.max_size)
        return trace.named(dimension.name)
    if isinstance(dimension._source, Size):
        if dimension._source.trace is not trace:
            raise TypeError(f"dimension {dimension.name!r} belongs to another builder")
        return dimension._source
    function, *operands = dimension._source
    try:
        return function(*(
            _size_of(o, trace) if isinstance(o, MLDynamicDimension) else o for o in operands
        ))
    except ZeroDivisionError:
        raise TypeError(f"dimension {dimension.name!r}: a division by zero") from None


def has_named_dimensions(descriptor: Any) -> bool:
    """Whether a dimension of a descriptor is a mapping or an MLDynamicDimension."""
    kinds = (Mapping, MLDynamicDimension)
    try:
        shape = descriptor["shape"]
        return isinstance(shape, (list, tuple)) and any(isinstance(d, kinds) for d in shape)
    except Exception:  # of anything that is no descriptor, and of the caller's own sequences
        return False


def to_dimension(value: Any, what: str) -> Any:
    """A dimension of a shape: mappings with ``name`` and ``max_size`` become named dimensions;
    anything else stays as it is. TypeError for other mappings."""
    if not isinstance(value, Mapping):
        return value
    known = {"name", "max_size", "min_size"}
    if not {"name", "max_size"} <= set(value) <= known:
        raise TypeError(
            f"{what}: a dimension has name, max_size and, if it isn't 1, min_size; not "
            f"{', '.join(sorted(map(str, value))) or 'nothing'}"
        )
    try:
        return MLDynamicDimension(**value)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None


def described_in(trace: Trace, descriptor: Any) -> dict[str, Any]:
    """An input's descriptor with sizes in the builder's trace, which gets to know its named
    dimensions. Raises TypeError as ``to_dimension``."""
    shape = [to_dimension(d, f"input: shape[{i}]") for i, d in enumerate(descriptor["shape"])]
    for dimension in shape:
        if isinstance(dimension, MLDynamicDimension):
            _introduce(dimension, trace)
    return {**descriptor, "shape": sized_in(trace, shape)}


def sized_in(trace: Trace, value: Any) -> Any:
    """An argument with sizes in the builder's trace in place of dimensions."""
    if isinstance(value, (MLDynamicDimension, Mapping)):
        return _size_of(to_dimension(value, "a dimension"), trace)
    if isinstance(value, (list, tuple)):
        return [sized_in(trace, item) for item in value]
    return value


def known_number(size: Any, what: str) -> Any:
    """A number on which the form of a graph depends, such as an axis. TypeError for a size that is
    known only at dispatch, unless its trace makes a condition of the number."""
    if isinstance(size, MLDynamicDimension) or isinstance(size, Size) and not size.trace.folds:
        raise TypeError(
            f"{what}: {sanitize(str(size))} is known only at dispatch; a value that is known at "
            "build is expected"
        )
    return int(size) if isinstance(size, Size) else size


def shown_dimension(size: Any) -> Any:
    """A dimension for users: a size of a trace as a named or computed dimension."""
    if not isinstance(size, Size):
        return size
    # By the bounds of the names alone, whatever the builder decided.
    low, high = Trace(size.trace.expressions, {}).interval(size.terms)
    largest = int(min(high, _LARGEST))
    return MLDynamicDimension(str(size), largest, int(max(low, 0)), _source=size)
