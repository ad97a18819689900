"""Patterns of nodes, as data, which rewrites look for.

    Op("batch_normalization", bind="norm",
       input=Op("conv2d", bind="conv", single_use=True, filter=Constant("filter")),
       mean=Constant("mean"), axis=1, scale=None)

A keyword names an operand or an argument of the operator. An operand is matched by a pattern of the
node that computes it, by ``Constant``, by a word (any value, bound to that word), by ``OneOf``
several patterns, by ``Maybe`` of one of these, or by None (absent). A sequence operand takes a list
of patterns. An argument is matched by its value or by a predicate. Operands and arguments that are
not named match anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from webnn_vk.support.dataclass import dataclass

from ..ir import Node, Value
from ..ops import ALL_OPERATORS
from ..ops.arguments import Operands

Bindings = Mapping[str, Any]


class GraphView(Protocol):
    """The questions that patterns ask about a graph."""

    def producer(self, value: Value) -> Node | None:
        """The node that computes a value, None for inputs and constants."""

    def uses(self, value: Value) -> int:
        """The number of operands that read a value plus the number of graph outputs that it is."""


@dataclass(frozen=True)
class Match:
    """A place where a pattern fits: ``match["conv"]`` is the node or value bound to a word.
    ``nodes`` are the nodes matched, the root last."""

    nodes: tuple[Node, ...]
    bindings: Bindings

    @property
    def root(self) -> Node:
        return self.nodes[-1]

    def __getitem__(self, word: str) -> Any:
        return self.bindings[word]

    def get(self, word: str) -> Any:
        """The node or value bound to a word; None if there is none."""
        return self.bindings.get(word)


#: A match of a part of a pattern: the nodes matched, and the bindings so far.
PartialMatch = tuple[tuple[Node, ...], Bindings]


def _bound(bindings: Bindings, word: str, item: Any) -> Bindings | None:
    """The bindings with one more; None if the word is bound to another item already."""
    if not word:
        return bindings
    if word in bindings:
        return bindings if bindings[word] is item else None
    return {**bindings, word: item}


@dataclass(frozen=True)
class Anything:
    """Any value, bound to a word. With ``single_use`` nothing else reads it."""

    bind: str = ""
    where: Callable[[Value], bool] = lambda value: True
    single_use: bool = False

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        bound = _bound(bindings, self.bind, value)
        if bound is not None and self.where(value):
            if not self.single_use or graph.uses(value) == 1:
                yield (), bound


class Constant(Anything):
    """A constant with known elements, so not a constant tensor. With ``single_use`` a constant
    computed from it may replace it in memory."""

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        if value.data is not None:
            yield from super().matches(value, graph, bindings)


class OneOf:
    """Matches any of several patterns."""

    def __init__(self, *patterns: Any) -> None:
        self.patterns = tuple(map(_pattern, patterns))

    @property
    def names(self) -> frozenset[str]:
        """The operators of the root, if all patterns are of nodes."""
        return frozenset().union(*(pattern.names for pattern in self.patterns))

    def matches_at(self, root: Node, graph: GraphView) -> Iterator[Match]:
        """As of `Op`."""
        for pattern in self.patterns:
            yield from pattern.matches_at(root, graph)

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        for pattern in self.patterns:
            yield from pattern.matches(value, graph, bindings)


class Maybe(OneOf):
    """Matches a pattern, or an absent operand; then nothing is bound."""


class Op:
    """A node of one of the operators ``names``. ``single_use``: only the node matched above reads
    its output, once. ``commutative``: the two operands named match in either order. ``where``: a
    predicate of the node. ValueError for keywords that an operator lacks."""

    def __init__(
        self,
        *names: str,
        bind: str = "",
        single_use: bool = False,
        commutative: bool = False,
        where: Callable[[Node], bool] = lambda node: True,
        **parts: Any,
    ) -> None:
        self.names = frozenset(names)
        self.bind = bind
        self.single_use = single_use
        self.where = where
        operands: dict[str, Any] = {}
        self._absent: list[str] = []
        self._counts: dict[str, int] = {}
        self._arguments: dict[str, Callable[[Any], bool]] = {}
        for name in names:
            lacking = parts.keys() - {p.name for p in ALL_OPERATORS[name].parameters}
            if lacking:
                raise ValueError(f"{name} has no {', '.join(sorted(lacking))}")
        parameters = {p.name: p for p in ALL_OPERATORS[names[0]].parameters}
        for name, part in parts.items():
            if not parameters[name].is_operand:
                self._arguments[name] = part if callable(part) else _equals(part)
            elif part is None:
                self._absent.append(name)
            elif parameters[name].argument is Operands:
                self._counts[name] = len(part)
                operands |= {f"{name}[{i}]": _pattern(p) for i, p in enumerate(part)}
            else:
                operands[name] = _pattern(part)
        self._orders = [operands]
        if commutative:
            if len(operands) != 2:
                raise ValueError(f"{names[0]}: two operands are needed to exchange them")
            self._orders.append(dict(zip(operands, reversed(operands.values()), strict=True)))

    def matches_at(self, root: Node, graph: GraphView) -> Iterator[Match]:
        """Every match of the pattern that has ``root`` as its last node."""
        for nodes, bindings in self._node_matches(root, graph, {}):
            # A node may be reached by two paths.
            yield Match(tuple(dict.fromkeys(nodes)), bindings)

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        node = graph.producer(value)
        if node is None or len(node.outputs) != 1:
            return
        if not self.single_use or graph.uses(value) == 1:
            yield from self._node_matches(node, graph, bindings)

    def _node_matches(
        self, node: Node, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        if (
            node.operator.name not in self.names
            or any(name in node.operands for name in self._absent)
            or any(len(node.sequence(name)) != n for name, n in self._counts.items())
            or not all(fits(node.arguments[name]) for name, fits in self._arguments.items())
            or not self.where(node)
        ):
            return
        bound = _bound(bindings, self.bind, node)
        if bound is None:
            return
        for operands in self._orders:
            parts = tuple(operands.items())
            for nodes, bindings_below in _operand_matches(parts, node, graph, bound):
                yield (*nodes, node), bindings_below


def _operand_matches(
    parts: tuple[tuple[str, Any], ...], node: Node, graph: GraphView, bindings: Bindings
) -> Iterator[PartialMatch]:
    if not parts:
        yield (), bindings
        return
    (name, pattern), *others = parts
    value = node.operand(name)
    if value is None:
        if isinstance(pattern, Maybe):
            yield from _operand_matches(tuple(others), node, graph, bindings)
        return
    for nodes, bound in pattern.matches(value, graph, bindings):
        for more, all_bound in _operand_matches(tuple(others), node, graph, bound):
            yield (*nodes, *more), all_bound


def _equals(expected: Any) -> Callable[[Any], bool]:
    return lambda value: value == expected


def _pattern(part: Any) -> Any:
    return Anything(part) if isinstance(part, str) else part
