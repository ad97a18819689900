"""The scores of an attention, the operand of its softmax: the chains of operators that exporters
write between the first product and the softmax."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Node, Value
from .heads import Repeated, repeated
from .patterns import Bindings, GraphView, PartialMatch

#: Masks with more elements than this that are computed from constants are not evaluated.
_MAX_KNOWN = 1 << 24
#: Nor are masks computed by more operators than this, each counted once for each read.
_MAX_STEPS = 32


@dataclass(frozen=True)
class Moved:
    """A value to which the reshapes and transpositions ``moves`` are applied, in this order."""

    value: Value
    moves: tuple[Node, ...] = ()

    def emit(self, emit: Emitter) -> Value:
        value = self.value
        for node in self.moves:
            value = emit.like(node, input=value)
        return value


@dataclass(frozen=True)
class Term:
    """A mask that is added to the scores: ``value``, or its negation. With ``number`` that number
    is added where ``value`` is 0 (with ``hidden`` where it is not 0), and nothing elsewhere.
    ``data`` has the elements of ``value`` if they are known."""

    value: Value
    negative: bool = False
    number: float | None = None
    hidden: bool = False
    data: np.ndarray | None = None

    def elements(self) -> np.ndarray | None:
        """The numbers added, if they are known."""
        if self.data is None:
            return None
        if self.number is not None:
            return np.where((self.data != 0) == self.hidden, self.number, 0.0)
        return -self.data if self.negative else self.data


@dataclass(frozen=True)
class Scores:
    """where(seen, scale · query · keyᵀ + terms, unseen): the operand of a softmax."""

    query: Moved
    #: [.., D, T]; with ``permutation`` the value that is transposed to this.
    key: Moved
    permutation: tuple[int, ...] | None
    #: The shape of the product. The softmax may read its elements in another shape.
    shape: tuple[int, ...]
    scale: float
    terms: tuple[Term, ...] = ()
    seen: Term | None = None
    unseen: float = -math.inf
    key_heads: Repeated | None = None


class ScoresPattern:
    """Matches a value that is the scores of an attention, and binds "scores" to the `Scores`.
    Nothing else may read the values between the product and the softmax."""

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        walk = _Walk(graph)
        product = walk.to_product(value)
        if product is None:
            return
        query, query_scale, query_nodes = _unscaled(product.operands["a"], graph)
        key, key_scale, key_nodes = _unscaled(product.operands["b"], graph)
        scale = walk.scale * query_scale * key_scale
        if not math.isfinite(scale):
            return
        key, permutation = _before_transpose(key, graph)
        heads = None
        if permutation is not None and not key.moves:
            *batch, rows, columns = permutation
            heads = repeated(key.value, (*batch, columns, rows), graph)
        scores = Scores(
            query, key, permutation, product.output.shape, scale, tuple(reversed(walk.terms)),
            walk.seen, walk.unseen, heads,
        )
        nodes = (*walk.nodes, *query_nodes, *key_nodes)
        yield tuple(reversed(nodes)), {**bindings, "scores": scores}


class _Walk:
    """A walk from the operand of a softmax back to the first product, which collects what the
    operators in between do to the scores."""

    def __init__(self, graph: GraphView) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self.terms: list[Term] = []
        self.seen: Term | None = None
        self.unseen = -math.inf
        self.scale = 1.0
        self._reshaped = False
        # Whether masks further back can't be represented any more.
        self._no_more_masks = False

    def to_product(self, value: Value) -> Node | None:
        """The product; None where an operator on the way can't become part of the attention."""
        while True:
            node = self.graph.producer(value)
            if node is None or len(node.outputs) != 1 or self.graph.uses(value) != 1:
                return None
            self.nodes.append(node)
            if node.operator.name == "matmul":
                return node
            steps = _steps(node)
            # The scores are the first operand of an addition that comes from a product.
            if len(steps) > 1 and not _comes_from_product(steps[0].scores, self.graph):
                del steps[0]
            if not steps or not self._add(node, steps[0]):
                return None
            value = steps[0].scores

    def _add(self, node: Node, step: _Step) -> bool:
        """Collect what one operator does. False where that can't be represented."""
        before, after = step.scores, node.output
        if node.operator.name == "reshape":
            if self._reshaped or len(before.shape) < 2 or before.shape[-2:] != after.shape[-2:]:
                return False
            # Masks further back no longer match the dimensions of the scores.
            self._reshaped = self._no_more_masks = True
            return True
        if before.shape != after.shape:
            return False
        if node.operator.name == "cast":
            if self.terms or (before.data_type, after.data_type) != ("float16", "float32"):
                return False
            if math.isfinite(self.unseen):
                self.unseen = max(self.unseen, float(np.finfo(np.float16).min))
        if step.mask is not None and not self._add_mask(step.mask, before):
            return False
        if step.factor != 1:
            # Masks further back would have to be scaled, too.
            self.scale *= step.factor
            self._no_more_masks = True
        return True

    def _add_mask(self, mask: Term, scores: Value) -> bool:
        if self._no_more_masks:
            return False
        mask = replace(mask, data=_known(mask.value, self.graph))
        if mask.number is None:
            self.terms.append(mask)
        elif self.seen is None and not self.terms:
            self.seen, self.unseen = mask, mask.number
        elif is_lowest(mask.number, scores):
            # Scores don't show in a sum with such a number. If it is finite, a second such number
            # would make a sum below all numbers of the data type.
            self.terms.append(mask)
            self._no_more_masks = math.isfinite(mask.number)
        else:
            return False
        return True


class WeightsPattern:
    """Matches the result of a softmax, also reshaped or cast to half precision. Binds "softmax" to
    its node and the words of `ScoresPattern`; binds "no NaN" if NaN is replaced by 0."""

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
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
                    test = _nan_test(node, graph)
                    if test is None:
                        return
                    nodes.append(test)
                    bindings = {**bindings, "no NaN": test}
                    value, reads = node.operands["false_value"], 2
                    continue
                case _:
                    return
            value = node.operands["input"]
        bound = {**bindings, "softmax": node}
        for below, more in ScoresPattern().matches(node.operands["input"], graph, bound):
            yield (*below, *reversed(nodes)), more


# -- scores ----------------------------------------------------------------------------------------
def is_lowest(number: float, like: Value) -> bool:
    """Whether a score is too low to contribute to any sum."""
    return number <= float(np.finfo(like.descriptor.numpy_dtype).min) / 2


@dataclass(frozen=True)
class _Step:
    """The effect of an element-wise operator on ``scores``: it adds a ``mask`` or multiplies by a
    ``factor``."""

    scores: Value
    mask: Term | None = None
    factor: float = 1.0


def _steps(node: Node) -> list[_Step]:
    """The effect of a node on the scores, for each operand that they may be; empty for operators
    that attention has no part for."""
    match node.operator.name:
        case "mul" | "div":
            step = _scaling(node)
        case "where":
            step = _selection(node)
        case "reshape" | "cast":
            step = _Step(node.operands["input"])
        case "add" | "sub" as name:
            a, b = node.operands["a"], node.operands["b"]
            steps = [_Step(a, Term(b, negative=name == "sub"))]
            if name == "add":
                steps.append(_Step(b, Term(a)))
            return [step for step in steps if step.scores.shape == node.output.shape]
        case _:
            return []
    return [] if step is None else [step]


def _comes_from_product(value: Value, graph: GraphView) -> bool:
    """Whether element-wise operators compute a value from the result of a product."""
    pending = [value]
    while pending:
        value = pending.pop()
        node = graph.producer(value)
        if node is not None and graph.uses(value) == 1:
            if node.operator.name == "matmul":
                return True
            pending += [step.scores for step in _steps(node)]
    return False


def _number(value: Value) -> float | None:
    """The number that all elements of a constant equal; None if they differ."""
    if value.data is None or not value.data.size:
        return None
    flat = value.data.reshape(-1)
    return float(flat[0]) if value.data.size == 1 or (flat == flat[0]).all() else None


def _scaling(node: Node) -> _Step | None:
    """A mul or div by a number."""
    a, b = node.operands["a"], node.operands["b"]
    number = _number(b)
    if node.operator.name == "div":
        return _Step(a, factor=1 / number) if number else None
    if number is None:
        number, a = _number(a), b
    return None if number is None else _Step(a, factor=number)


def _selection(node: Node) -> _Step | None:
    """A where between the scores and a number."""
    condition = node.operands["condition"]
    for name, other, hidden in (
        ("true_value", "false_value", False), ("false_value", "true_value", True)
    ):
        number = _number(node.operands[other])
        if number is not None and not math.isnan(number):
            return _Step(node.operands[name], Term(condition, number=number, hidden=hidden))
    return None


def _nan_test(node: Node, graph: GraphView) -> Node | None:
    """The is_nan node of a ``where`` that replaces NaN in the weights by 0."""
    weights, zero = node.operands["false_value"], node.operands["true_value"]
    test = graph.producer(node.operands["condition"])
    if test is None or test.operator.name != "is_nan" or test.inputs != (weights,):
        return None
    if graph.uses(test.output) != 1 or weights.shape != node.output.shape:
        return None
    return test if _number(zero) == 0 else None


def _known(value: Value, graph: GraphView) -> np.ndarray | None:
    """The elements of a value that few operators compute from constants only; None for others. A
    constant too large to be folded may be a mask that needs no memory."""
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
        # Move the node to the end: reversed, it then comes before every node that reads it.
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
def _unscaled(value: Value, graph: GraphView) -> tuple[Moved, float, list[Node]]:
    """An operand of the first product before it was scaled, with the movements after that; the
    factor; and the nodes that scale, which are not needed any more."""
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
        step = _scaling(node)
        if step is None or step.scores.shape != value.shape or graph.uses(value) != 1:
            break
        value = step.scores
        scale *= step.factor
        nodes.append(node)
        base, kept = value, len(moves)
    return Moved(base, tuple(reversed(moves[:kept]))), scale, nodes


def _before_transpose(key: Moved, graph: GraphView) -> tuple[Moved, tuple[int, ...] | None]:
    """The keys before the last transposition, and its permutation; None if there is none."""
    if key.moves:
        last = key.moves[-1]
        if last.operator.name == "transpose":
            return Moved(key.value, key.moves[:-1]), last.arguments["permutation"]
        return key, None
    node = graph.producer(key.value)
    if node is not None and node.operator.name == "transpose":
        return Moved(node.operands["input"]), node.arguments["permutation"]
    return key, None
