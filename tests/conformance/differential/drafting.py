"""Draws examples from an operator's record: data types, ranks and arguments by its limits and
annotations. Relations between several shapes are in ``relations``, the numbers in ``values``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.conformance.differential import values
from tests.conformance.differential.example import Example
from webnn_vk.compiler.ops import ALL_OPERATORS, Operator
from webnn_vk.compiler.ops.arguments import (
    U32,
    Bool,
    DataTypeName,
    Double,
    Enum,
    Number,
    Operands,
    Shape,
)
from webnn_vk.compiler.ops.lowering import Elementwise
from webnn_vk.compiler.ops.record import Like
from webnn_vk.compiler.types.data_types import LOW_PRECISION, bits_of

# Sizes of dimensions by rank; a failure shrinks to the first one.
_SIZES = (
    (1,),
    (1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 129, 1000),
    (1, 2, 3, 4, 5, 7, 8, 16, 33, 64),
    (1, 2, 3, 4, 5, 8, 13),
    (1, 2, 3, 4, 6, 7),
    (1, 2, 3, 4),
    (1, 2, 3),
    (1, 2, 3),
    (1, 2, 3),
)
Shapes = dict[str, Any]


class Draft:
    """One example while it is drawn: ``draw`` of hypothesis, the record, and a type for each
    operand, drawn if ``types`` has none. ``whole``: no optional operand or output is absent."""

    def __init__(
        self, draw: Callable[[Any], Any], record: Operator, flavours: Sequence[str],
        types: Mapping[str, str] | None = None, whole: bool = False,
    ) -> None:
        self.draw = draw
        self.record = record
        self.flavours = flavours
        self.whole = whole
        self.types: dict[str, str] = {}
        for name, row in record.limits.items():
            if types and name in types:
                self.types[name] = types[name]
            elif isinstance(row, Like):
                self.types[name] = self.types[row.operand]
            else:
                self.types[name] = self.choose(row.types)

    # -- simple draws
    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def present(self) -> bool:
        """Whether an optional operand or output is there."""
        return self.whole or self.flag()

    def number(self) -> float:
        """A finite argument, exact in float32."""
        return self.draw(
            st.sampled_from([0.0, 1.0, -1.0, 0.5]) | st.floats(-4, 4, width=32)
        )

    # -- shapes
    def dimension(self, rank: int) -> int:
        return self.choose(_SIZES[rank])

    def shape(self, low: int = 0, high: int = 8) -> tuple[int, ...]:
        rank = self.integer(low, high)
        return tuple(self.dimension(rank) for _ in range(rank))

    def shape_of(self, operand: str) -> tuple[int, ...]:
        """Any shape with a rank that the operand's limits allow."""
        return self.shape(*self.record.limit(operand).rank)

    def broadcast(self, shape: Sequence[int], low: int = 0) -> tuple[int, ...]:
        """A shape that broadcasts to ``shape``: some dimensions are 1, leading ones may be missing.
        """
        kept = self.integer(low, len(shape)) if self.flag() else len(shape)
        ones = self.integer(0, 2**kept - 1) if self.flag() else 0
        tail = shape[len(shape) - kept :]
        return tuple(1 if ones >> i & 1 else d for i, d in enumerate(tail))

    def axes(self, rank: int) -> list[int]:
        """Some axes without duplicates, in any order."""
        chosen = [i for i in range(rank) if self.flag()]
        return self.draw(st.permutations(chosen)) if len(chosen) > 1 else chosen

    # -- arguments
    def arguments(self, rank: int, given: dict[str, Any] | None = None) -> dict[str, Any]:
        """All arguments that ``given`` does not set; optional ones are sometimes omitted."""
        found = dict(given or {})
        for p in self.record.arguments:
            decides = self.whole and p.argument is DataTypeName
            absent = p.optional and not decides and not self.draw(st.integers(0, 2))
            if p.name in found or absent:
                continue
            found[p.name] = self._argument(p.name, p.argument, rank)
        return found

    def _argument(self, name: str, kind: Any, rank: int) -> Any:
        if name == "data_type" and isinstance(kind, Enum):
            carrier = self.types["output"]
            return self.choose([v for v in kind.values if LOW_PRECISION[v].carrier == carrier])
        if isinstance(kind, Enum):
            return self.choose(kind.values)
        if kind is Bool:
            return self.flag()
        if kind is DataTypeName:
            return self.types["output"]
        if kind is Double or kind is Number:
            return self.number()
        if kind is U32 and name == "axis":
            return self.integer(0, rank - 1)
        if kind is Shape and name == "axes":
            return self.axes(rank)
        raise NotImplementedError(f"{self.record.name}: no strategy for {name}")

    # -- example
    def example(self, shapes: Shapes, arguments: dict[str, Any]) -> Example:
        """Operands of these shapes (a list for a sequence, None if absent) with random values."""
        rng = np.random.default_rng(self.integer(0, 2**32 - 1))
        flavour = self.choose(self.flavours)
        operands = {}
        for name, shape in shapes.items():
            if shape is None:
                continue
            many = shape if isinstance(shape, list) else [shape]
            arrays = [
                values.array(rng, self.record.name, name, self.types[name], s, flavour, shapes)
                for s in many
            ]
            operands[name] = arrays if isinstance(shape, list) else arrays[0]
        # The first operand stays an input, so that nothing is folded.
        names = list(operands)[1:]
        constants = frozenset(n for n in names if self.flag()) if self.flag() else frozenset()
        return Example(self.record.name, operands, arguments, constants)


def _generic(d: Draft) -> Example:
    """Operators whose operands are related only by broadcasting."""
    names = [p.name for p in d.record.operands]
    if len(names) == 1:
        shapes: Shapes = {names[0]: d.shape_of(names[0])}
    else:
        assert isinstance(d.record.lowering, Elementwise), f"{d.record.name} needs a relation"
        target = d.shape()
        shapes = {name: d.broadcast(target) for name in names}
    return d.example(shapes, d.arguments(len(shapes[names[0]])))


@st.composite
def examples(
    draw: Callable[[Any], Any], name: str, flavours: Sequence[str] = values.FLAVOURS,
    types: Mapping[str, str] | None = None, whole: bool = False,
) -> Example:
    """Valid random uses of the operator called ``name``, with numbers of the given kinds, and with
    operands and outputs of the data types given by name (rows of its limits that are not `Like`
    another); with all optional operands and outputs if they are to be ``whole``."""
    from tests.conformance.differential.relations import RELATIONS

    record = ALL_OPERATORS[name]
    draft = Draft(draw, record, flavours, types, whole)
    assert not any(p.argument is Operands for p in record.operands) or name in RELATIONS
    made = RELATIONS.get(name, _generic)(draft)
    size = sum(math.prod(o.shape) for o in made.outputs())
    assert size < 2_000_000, f"{made} is too large for a random test"
    return made


def of_each_size(types: Iterable[str]) -> list[str]:
    """The first one of each size."""
    return list({bits_of(each): each for each in reversed(list(types))}.values())


@st.composite
def batches(
    draw: Callable[[Any], Any], name: str, size: int, flavours: Sequence[str] = values.FLAVOURS,
    chosen: Callable[[Iterable[str]], list[str]] = list, free: int = 2,
) -> list[Example]:
    """``size`` examples or more. Every batch has each data type of each operand and output that is
    ``chosen``, in whatever combinations are drawn, and ``free`` examples or more of which nothing
    is fixed."""
    limits = ALL_OPERATORS[name].limits
    types = {row: chosen(x.types) for row, x in limits.items() if not isinstance(x, Like)}
    first = {row: draw(st.integers(0, len(all_) - 1)) for row, all_ in types.items()}
    made = [
        draw(examples(
            name, flavours,
            {row: all_[(first[row] + i) % len(all_)] for row, all_ in types.items()}, whole=True,
        ))
        for i in range(max(map(len, types.values())))
    ]
    rest = max(free, size - len(made))
    return [*made, *(draw(examples(name, flavours)) for _ in range(rest))]
