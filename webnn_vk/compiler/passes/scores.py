"""What a softmax is taken of in an attention: the chains of operators that exporters write between
the first product and the softmax, and between the heads and the products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..ir import Emitter, Node, Value
from .patterns import Bindings, Surroundings, Way

#: Masks of more elements that are computed of constants are not looked into.
_MAX_KNOWN = 1 << 24
#: Nor those that more operators compute, counted as often as they are read.
_MAX_STEPS = 32


@dataclass(frozen=True)
class Moved:
    """A value behind reshapes and transpositions, which come in the order of ``moves``."""

    value: Value
    moves: tuple[Node, ...] = ()

    def emit(self, emit: Emitter) -> Value:
        value = self.value
        for node in self.moves:
            value = emit.like(node, input=value)
        return value


@dataclass(frozen=True)
class Repeated:
    """Heads that several queries share: the elements of ``value``, of this ``shape``, whose
    dimensions in the order ``axes`` are [.., heads, 1, T, D]; each head is repeated ``count``
    times."""

    value: Value
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    count: int

    @property
    def heads(self) -> int:
        return self.shape[self.axes[-4]]

    def emit(self, emit: Emitter) -> Value:
        """[.., heads, 1, T, D]"""
        single = self.value
        if single.shape != self.shape:
            single = emit.reshape(single, self.shape)
        if self.axes == tuple(sorted(self.axes)):
            return single
        return emit.transpose(single, permutation=self.axes)


@dataclass(frozen=True)
class Term:
    """What is added to the scores: a mask, or its negation; or with ``number`` that number where
    ``value`` is 0 (with ``hidden`` where it is not), and nothing elsewhere. ``data``: the elements
    of ``value`` where they are known."""

    value: Value
    negative: bool = False
    number: float | None = None
    hidden: bool = False
    data: np.ndarray | None = None

    def elements(self) -> np.ndarray | None:
        """What is added, where that is known."""
        if self.data is None:
            return None
        if self.number is not None:
            return np.where((self.data != 0) == self.hidden, self.number, 0.0)
        return -self.data if self.negative else self.data


@dataclass(frozen=True)
class Scores:
    """where(seen, scale · query · keyᵀ + terms, unseen): what a softmax is taken of."""

    query: Moved
    #: [.., D, T], or with ``permutation`` the value whose transposition that is.
    key: Moved
    permutation: tuple[int, ...] | None
    #: Of the product; softmax may be taken of the same in another shape.
    shape: tuple[int, ...]
    scale: float
    terms: tuple[Term, ...] = ()
    seen: Term | None = None
    unseen: float = -math.inf
    key_heads: Repeated | None = None


class ScoresPattern:
    """Binds "scores" to the `Scores` that a value is, nothing else reading what lies between."""

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        nodes: list[Node] = []
        terms: list[Term] = []
        seen: Term | None = None
        unseen, scale, reshaped = -math.inf, 1.0, False
        replaced = False  # by a finite number that stands for none
        scaled = False  # which terms before that would have to be, too
        while True:
            node = graph.producer(value)
            if node is None or len(node.outputs) != 1 or graph.uses(value) != 1:
                return
            nodes.append(node)
            shape = value.shape
            if replaced and node.operator.name in ("add", "sub", "where"):
                # The lowest number twice, or with another mask, is below all numbers.
                return
            match node.operator.name:
                case "matmul":
                    break
                case "where" if not scaled:
                    choice = _choice(node)
                    if choice is None:
                        return
                    value, condition, number, hidden = choice
                    term = Term(
                        condition, number=number, hidden=hidden, data=_known(condition, graph)
                    )
                    if seen is None and not terms:
                        seen, unseen = term, number
                    elif is_lowest(number, value):
                        # Scores don't show in a sum with such a number.
                        terms.append(term)
                        replaced = math.isfinite(number)
                    else:
                        return
                case "add" | "sub" if not scaled:
                    a, b = node.operands["a"], node.operands["b"]
                    straight = a.shape == shape and _leads(a, graph)
                    if node.operator.name == "sub" and not straight:
                        return
                    value, mask = (a, b) if straight else (b, a)
                    terms.append(Term(
                        mask, negative=node.operator.name == "sub", data=_known(mask, graph)
                    ))
                case "mul" | "div":
                    factor = _factor(node)
                    if factor is None:
                        return
                    value, number = factor
                    scale *= number
                    scaled = scaled or number != 1
                case "cast" if not terms:
                    value = node.operands["input"]
                    if (value.data_type, node.output.data_type) != ("float16", "float32"):
                        return
                    if math.isfinite(unseen):
                        unseen = max(unseen, float(np.finfo(np.float16).min))
                case "reshape" if not reshaped:
                    value, reshaped = node.operands["input"], True
                    if value.shape[-2:] != shape[-2:] or len(value.shape) < 2:
                        return
                    continue
                case _:
                    return
            if value.shape != shape:
                return
            # Whose dimensions would be others than those of the scores above.
            if reshaped and node.operator.name in ("add", "sub", "where"):
                return
        query, of_query, scaling = _unscaled(node.operands["a"], graph)
        key, of_key, before = _unscaled(node.operands["b"], graph)
        nodes += scaling + before
        scale *= of_query * of_key
        if not math.isfinite(scale):
            return
        key, permutation = _turned(key, graph)
        heads = None
        if permutation is not None and not key.moves:
            *batch, rows, columns = permutation
            heads = repeated(key.value, (*batch, columns, rows), graph)
        scores = Scores(
            query, key, permutation, node.output.shape, scale, tuple(reversed(terms)), seen,
            unseen, heads,
        )
        yield tuple(reversed(nodes)), {**bindings, "scores": scores}


class WeightsPattern:
    """Binds "softmax" to the node whose result a value is, maybe in another shape or in half
    precision, and what `ScoresPattern` does; "no NaN" too where 0 stands for NaN in it."""

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        nodes: list[Node] = []
        reads = 1
        while True:
            node = graph.producer(value)
            if node is None or len(node.outputs) != 1 or graph.uses(value) != reads:
                return
            reads = 1
            nodes.append(node)
            given = node.operands.get("input")
            match node.operator.name:
                case "softmax":
                    break
                case "reshape" if given is not None and given.shape[-2:] == value.shape[-2:]:
                    if len(given.shape) < 2:
                        return
                case "cast" if given is not None and given.data_type == "float32":
                    if value.data_type != "float16":
                        return
                case "where":
                    asks = _asks_for_nan(node, graph)
                    if asks is None:
                        return
                    nodes.append(asks)
                    bindings = {**bindings, "no NaN": asks}
                    value, reads = node.operands["false_value"], 2
                    continue
                case _:
                    return
            value = node.operands["input"]
        bound = {**bindings, "softmax": node}
        for below, more in ScoresPattern().ways(node.operands["input"], graph, bound):
            yield (*below, *reversed(nodes)), more


class ValuesPattern:
    """Binds a word to a value, and with " heads" behind it to the `Repeated` that it is, if so."""

    def __init__(self, word: str) -> None:
        self.word = word

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        heads = repeated(value, tuple(range(len(value.shape))), graph)
        yield (), {**bindings, self.word: value, f"{self.word} heads": heads}


# -- scores ----------------------------------------------------------------------------------------
def is_lowest(number: float, like: Value) -> bool:
    """Whether a score so low has no part in any sum."""
    return number <= float(np.finfo(like.descriptor.numpy_dtype).min) / 2


def _leads(value: Value, graph: Surroundings) -> bool:
    """Whether a product's result comes out as ``value``, through element-wise steps."""
    while True:
        node = graph.producer(value)
        if node is None or graph.uses(value) != 1:
            return False
        match node.operator.name:
            case "matmul":
                return True
            case "mul" | "div":
                factor = _factor(node)
                if factor is None:
                    return False
                value = factor[0]
            case "where":
                choice = _choice(node)
                if choice is None:
                    return False
                value = choice[0]
            case "reshape" | "cast":
                value = node.operands["input"]
            case "add" | "sub":
                a, b = node.operands["a"], node.operands["b"]
                if a.shape == value.shape and _leads(a, graph):
                    return True
                if b.shape != value.shape or node.operator.name == "sub":
                    return False
                value = b
            case _:
                return False


def _number(value: Value) -> float | None:
    """The number that all elements of a constant are."""
    if value.data is None or not value.data.size:
        return None
    flat = value.data.reshape(-1)
    return float(flat[0]) if value.data.size == 1 or (flat == flat[0]).all() else None


def _factor(node: Node) -> tuple[Value, float] | None:
    """What a mul or div by a number multiplies, and by what."""
    a, b = node.operands["a"], node.operands["b"]
    number = _number(b)
    if node.operator.name == "div":
        return None if not number else (a, 1 / number)
    if number is None:
        number, a = _number(a), b
    return None if number is None else (a, number)


def _choice(node: Node) -> tuple[Value, Value, float, bool] | None:
    """The scores that a where chooses among, by what condition, the number that stands for the
    others, and whether the condition says which these are."""
    condition = node.operands["condition"]
    for name, other, hidden in (
        ("true_value", "false_value", False), ("false_value", "true_value", True)
    ):
        number = _number(node.operands[other])
        if number is not None and not math.isnan(number):
            return node.operands[name], condition, number, hidden
    return None


def _asks_for_nan(node: Node, graph: Surroundings) -> Node | None:
    """The node that finds what is no number in the weights, for which the ``where`` has 0."""
    weights, zero = node.operands["false_value"], node.operands["true_value"]
    asks = graph.producer(node.operands["condition"])
    if asks is None or asks.operator.name != "is_nan" or asks.inputs != (weights,):
        return None
    if graph.uses(asks.output) != 1 or weights.shape != node.output.shape:
        return None
    return asks if _number(zero) == 0 else None


def _known(value: Value, graph: Surroundings) -> np.ndarray | None:
    """The elements of a value that is computed of constants alone, by few operators: what is too
    large to be folded may be a mask that needs no memory."""
    nodes: dict[Node, None] = {}
    pending = [value]
    steps = 0
    while pending:
        part = pending.pop()
        if part.data is not None:
            continue
        node, steps = graph.producer(part), steps + 1
        if (
            node is None or not node.inputs or part.descriptor.size > _MAX_KNOWN
            or steps > _MAX_STEPS
        ):
            return None
        # Once more at the end, so that it comes before all that read it.
        nodes.pop(node, None)
        nodes[node] = None
        pending += node.inputs
    known: dict[Value, np.ndarray] = {}

    def elements(part: Value) -> np.ndarray:
        return part.data if part.data is not None else known[part]

    for node in reversed(nodes):
        known.update(zip(node.outputs, node.evaluate(elements), strict=True))
    return elements(value)


# -- operands of the products ----------------------------------------------------------------------
def _unscaled(value: Value, graph: Surroundings) -> tuple[Moved, float, list[Node]]:
    """An operand of the first product before it was scaled: with the movements that come after,
    the factor, and the nodes that then nobody needs."""
    base, kept = value, 0
    moves: list[Node] = []
    nodes: list[Node] = []
    scale = 1.0
    while True:
        node = graph.producer(value)
        name = "" if node is None else node.operator.name
        if node is None or name not in ("mul", "div", "transpose", "reshape"):
            break
        if name in ("transpose", "reshape"):
            moves.append(node)
            value = node.operands["input"]
            continue
        factor = _factor(node)
        if factor is None or factor[0].shape != value.shape or graph.uses(value) != 1:
            break
        value, number = factor
        scale *= number
        nodes.append(node)
        base, kept = value, len(moves)
    return Moved(base, tuple(reversed(moves[:kept]))), scale, nodes


def _turned(key: Moved, graph: Surroundings) -> tuple[Moved, tuple[int, ...] | None]:
    """Keys before the last transposition, and that."""
    if key.moves:
        last = key.moves[-1]
        if last.operator.name == "transpose":
            return Moved(key.value, key.moves[:-1]), last.arguments["permutation"]
        return key, None
    node = graph.producer(key.value)
    if node is not None and node.operator.name == "transpose":
        return Moved(node.operands["input"]), node.arguments["permutation"]
    return key, None


def repeated(value: Value, axes: tuple[int, ...], graph: Surroundings) -> Repeated | None:
    """The heads [.., heads, T, D] that ``value``, transposed by ``axes``, has several times each;
    None where it is no such thing."""
    if len(value.shape) != 4:
        return None
    node = graph.producer(value)
    while node is not None and node.operator.name == "transpose":
        axes = tuple(node.arguments["permutation"][axis] for axis in axes)
        value = node.operands["input"]
        node = graph.producer(value)
    if node is None:
        return None
    found = _gathered(node) if node.operator.name == "gather" else _expanded(node, graph)
    if found is None or found[1] != axes[1]:
        return None
    single, axis, count = found
    order: list[int] = []
    for a in axes:
        order += (axis, axis + 1) if a == axis else (a + (a > axis),)
    own = node.output.shape[:axis] + (node.output.shape[axis] // count,)
    return Repeated(single, (*own, 1, *node.output.shape[axis + 1 :]), tuple(order), count)


def _gathered(node: Node) -> tuple[Value, int, int] | None:
    """What a gather with indices 0, 0, 1, 1 … repeats, along which dimension and how often."""
    given, indices, axis = node.operands["input"], node.operands["indices"], node.arguments["axis"]
    if indices.data is None or len(indices.shape) != 1 or len(given.shape) != 4:
        return None
    own, total = given.shape[axis], indices.shape[0]
    if total % own or (indices.data != np.arange(total) // (total // own)).any():
        return None
    return given, axis, total // own


def _expanded(node: Node, graph: Surroundings) -> tuple[Value, int, int] | None:
    """The same for [.., heads, 1, ..] expanded or tiled to [.., heads, count, ..] and reshaped."""
    if node.operator.name != "reshape":
        return None
    many = graph.producer(node.operands["input"])
    if many is None or many.operator.name not in ("expand", "tile"):
        return None
    single, target = many.operands["input"], many.output.shape
    if len(single.shape) != 5 or len(target) != 5:
        return None
    grown = [axis for axis in range(5) if single.shape[axis] != target[axis]]
    if len(grown) != 1 or single.shape[grown[0]] != 1 or grown[0] == 0:
        return None
    axis, count = grown[0] - 1, target[grown[0]]
    own = single.shape[: axis + 1] + single.shape[axis + 2 :]
    if node.output.shape != (*own[:axis], own[axis] * count, *own[axis + 1 :]):
        return None
    return single, axis, count
