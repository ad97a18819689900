"""Products with a softmax between them become one operator of the compiler's own, `attention`,
which never stores the scores: as exporters write it, and as our importer takes its operators
apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..device_profile import DeviceProfile
from ..graph import Emitter, Graph, Node, Value
from ..ops.attention import MAX_ATTENTION_RANK
from .patterns import Bindings, Constant, Match, Op, Surroundings, Way
from .pipeline import Compilation, Pass
from .rewrite import apply_rewrites, rewrite

#: Longer rows of values than kernels keep sums of.
_MAX_WIDTH = 512
#: The buffers that the kernel binds: three operands, mask, `seen`, result, parameters.
_BUFFERS = 7


@dataclass(frozen=True)
class _Scores:
    """where(seen, scale · query · keyᵀ + masks, unseen): what a softmax is taken of."""

    query: Value
    #: [.., D, T], or with ``permutation`` the value whose transposition that is.
    key: Value
    permutation: tuple[int, ...] | None
    #: That of the query, if it was scaled before.
    turn: tuple[int, ...] | None
    scale: float
    masks: tuple[Value, ...] = ()
    seen: Value | None = None
    unseen: float = -math.inf
    #: Whether ``seen`` says where scores do not count.
    hidden: bool = False


class _ScoresPattern:
    """Binds "scores" to the `_Scores` that a value is, nothing else reading what lies between."""

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        shape, nodes = value.shape, []
        masks: list[Value] = []
        scale = 1.0
        chosen: dict = {}
        while True:
            node = graph.producer(value)
            if node is None or len(node.outputs) != 1 or graph.uses(value) != 1:
                return
            nodes.append(node)
            match node.operator.name:
                case "matmul":
                    break
                case "where" if not (chosen or masks or scale != 1):
                    choice = _choice(node)
                    if choice is None:
                        return
                    value, chosen = choice
                case "add" if scale == 1:
                    a, b = node.operands["a"], node.operands["b"]
                    straight = a.shape == shape and _leads(a, graph)
                    value, mask = (a, b) if straight else (b, a)
                    masks.append(mask)
                case "mul" | "div":
                    factor = _factor(node)
                    if factor is None:
                        return
                    value, number = factor
                    scale *= number
                case _:
                    return
            if value.shape != shape:
                return
        query, key = node.operands["a"], node.operands["b"]
        plain, of_query, turn, scaling = _unscaled(query, graph)
        if scaling:
            query = plain
        else:
            turn = None
        key, of_key, permutation, before = _unscaled(key, graph)
        nodes += scaling + before
        scale *= of_query * of_key
        if not math.isfinite(scale):
            return
        scores = _Scores(query, key, permutation, turn, scale, tuple(reversed(masks)), **chosen)
        yield tuple(reversed(nodes)), {**bindings, "scores": scores}


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
            case "add":
                a, b = node.operands["a"], node.operands["b"]
                if a.shape == value.shape and _leads(a, graph):
                    return True
                if b.shape != value.shape:
                    return False
                value = b
            case _:
                return False


def _number(value: Value) -> float | None:
    """The number that a constant of one element is."""
    if value.data is None or value.data.size != 1:
        return None
    return float(value.data.reshape(-1)[0])


def _factor(node: Node) -> tuple[Value, float] | None:
    """What a mul or div by a number multiplies, and by what."""
    a, b = node.operands["a"], node.operands["b"]
    number = _number(b)
    if node.operator.name == "div":
        return None if not number else (a, 1 / number)
    if number is None:
        number, a = _number(a), b
    return None if number is None else (a, number)


def _choice(node: Node) -> tuple[Value, dict] | None:
    """The scores that a where chooses among, and what it does with the others."""
    condition = node.operands["condition"]
    for name, other, hidden in (
        ("true_value", "false_value", False), ("false_value", "true_value", True)
    ):
        number = _number(node.operands[other])
        if number is not None and not math.isnan(number):
            given = {"seen": condition, "unseen": number, "hidden": hidden}
            return node.operands[name], given
    return None


def _unscaled(
    value: Value, graph: Surroundings
) -> tuple[Value, float, tuple[int, ...] | None, list[Node]]:
    """An operand of the first product before it was scaled: value, factor, the transposition that
    comes after it, and the nodes that then nobody needs."""
    nodes: list[Node] = []
    permutation: tuple[int, ...] | None = None
    scale = 1.0
    while True:
        node = graph.producer(value)
        name = "" if node is None else node.operator.name
        if node is None or name not in ("mul", "div", "transpose"):
            break
        if name == "transpose":
            if permutation is not None:
                break
            permutation, value = node.arguments["permutation"], node.operands["input"]
            continue
        factor = _factor(node)
        if factor is None or factor[0].shape != value.shape or graph.uses(value) != 1:
            break
        value, number = factor
        scale *= number
        nodes.append(node)
    return value, scale, permutation, nodes


class _Repeated:
    """Binds a word to a value, and with ``s`` behind it to the heads [.., heads, 1, T, D] that it
    repeats, where it does."""

    def __init__(self, word: str) -> None:
        self.word = word

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        yield (), {**bindings, self.word: value, f"{self.word} heads": _heads(value, graph)}


def _heads(value: Value, graph: Surroundings) -> Value | None:
    joined = graph.producer(value)
    if joined is None or joined.operator.name != "reshape" or len(value.shape) != 4:
        return None
    repeated = graph.producer(joined.operands["input"])
    if repeated is None or repeated.operator.name != "expand":
        return None
    heads = repeated.operands["input"]
    batch, total, *matrix = value.shape
    if len(heads.shape) != 5 or repeated.output.shape[0] != batch:
        return None
    _, own, many, *before = repeated.output.shape
    fits = own * many == total and before == matrix and heads.shape == (batch, own, 1, *matrix)
    return heads if fits else None


class _Attended(_ScoresPattern):
    """Binds "key heads" too, as `_Repeated` does for values."""

    def ways(self, value: Value, graph: Surroundings, bindings: Bindings) -> Iterator[Way]:
        for nodes, bound in super().ways(value, graph, bindings):
            scores: _Scores = bound["scores"]
            *batch, rows, columns = range(len(scores.key.shape))
            straight = scores.permutation == (*batch, columns, rows)
            yield nodes, {**bound, "key heads": _heads(scores.key, graph) if straight else None}


_WEIGHTS = Op("softmax", bind="softmax", single_use=True, input=_Attended())


@rewrite(Op(
    "matmul", b=_Repeated("value"),
    a=Op(
        "where", single_use=True, condition="empty", false_value=_WEIGHTS,
        true_value=Constant(where=lambda v: v.data is not None and not v.data.any()),
    ),
))
def attention_with_empty_rows(match: Match, emit: Emitter) -> Value | None:
    """The same where the weights of queries that see nothing become 0, as ONNX defines it."""
    empty = match["empty"]
    result = _attention(match, emit)
    if result is None or (empty.data is not None and not empty.data.any()):
        return result
    if not empty.shape or empty.shape[-1] != 1 or len(empty.shape) > len(result.shape):
        return None
    return emit.where(empty, emit.constant(0, result.data_type), result)


@rewrite(Op("matmul", a=_WEIGHTS, b=_Repeated("value")))
def attention(match: Match, emit: Emitter) -> Value | None:
    return _attention(match, emit)


def _attention(match: Match, emit: Emitter) -> Value | None:
    """softmax(where(seen, scale · q · kᵀ + masks, unseen)) · v, all in one operator."""
    scores: _Scores = match["scores"]
    value, weights = match["value"], match["softmax"].output
    rank = len(weights.shape)
    if match["softmax"].arguments["axis"] != rank - 1 or rank > MAX_ATTENTION_RANK:
        return None
    if len(value.shape) > rank or value.shape[-1] > _MAX_WIDTH or len(scores.key.shape) > rank:
        return None
    mask = None
    for term in scores.masks:
        if term.data is not None and not term.data.any():
            continue
        mask = term if mask is None else emit.add(mask, term)
    seen = scores.seen
    if seen is not None and scores.hidden:
        seen = (
            emit.logical_not(seen) if seen.data is None
            else emit.constant((seen.data == 0).astype(np.uint8))
        )
    causal = False
    sees = weights.shape[-2:]
    # Where a mask hides the rest of a row, a finite number is what counts in it.
    counts = scores.unseen > -math.inf and mask is not None
    if seen is not None and not counts and _is_lowest(scores.unseen, value) and (
        _is_triangle(seen, sees)
    ):
        seen, causal = None, True
    elif mask is not None and mask.data is not None and _masks_future(mask, sees):
        mask, causal = None, True
    query = scores.query
    if scores.turn is not None:
        query = emit.transpose(query, permutation=scores.turn)
    unseen = -math.inf if seen is None else scores.unseen
    arguments = {"scale": scores.scale, "causal": causal, "unseen": unseen}
    heads, value_heads = match["key heads"], match["value heads"]
    if heads is None or value_heads is None or heads.shape[:3] != value_heads.shape[:3]:
        key = _key(emit, scores)
        return emit.attention(query, key, value, mask=mask, seen=seen, **arguments)
    # Queries of the heads that share keys are told apart by a dimension of their own.
    query, mask, seen = (_grouped(emit, v, heads.shape[1]) for v in (query, mask, seen))
    result = emit.attention(query, heads, value_heads, mask=mask, seen=seen, **arguments)
    return emit.reshape(result, match.root.output.shape)


def _key(emit: Emitter, scores: _Scores) -> Value:
    """The keys as [.., T, D]."""
    *batch, rows, columns = range(len(scores.key.shape))
    swap = (*batch, columns, rows)
    permutation = scores.permutation
    if permutation is None:
        return emit.transpose(scores.key, permutation=swap)
    permutation = tuple(permutation[axis] for axis in swap)
    if permutation == (*batch, rows, columns):
        return scores.key
    return emit.transpose(scores.key, permutation=permutation)


def _grouped(emit: Emitter, operand: Value | None, heads: int) -> Value | None:
    """[.., all heads, S, X] as [.., heads, all heads / heads, S, X]."""
    if operand is None or len(operand.shape) < 3:
        return operand
    *batch, total, rows, columns = operand.shape
    groups = (1, 1) if total == 1 else (heads, total // heads)
    return emit.reshape(operand, (*batch, *groups, rows, columns))


def _is_lowest(number: float, like: Value) -> bool:
    """Whether a score so low has no part in any sum."""
    return number <= float(np.finfo(like.descriptor.numpy_dtype).min) / 2


def _is_triangle(seen: Value, shape: tuple[int, ...]) -> bool:
    """Whether each query sees the keys up to its own place, counted from the last ones."""
    rows, keys = shape
    if seen.data is None or seen.shape[-2:] != shape or rows > keys:
        return False
    return bool(((seen.data != 0) == np.tri(rows, keys, keys - rows, dtype=bool)).all())


def _masks_future(mask: Value, shape: tuple[int, ...]) -> bool:
    """Whether a mask adds nothing up to each query's own place, and hides the keys after it."""
    rows, keys = shape
    if mask.data is None or mask.shape[-2:] != shape or rows > keys:
        return False
    hidden = mask.data <= np.finfo(mask.data.dtype).min / 2
    triangle = np.tri(rows, keys, keys - rows, dtype=bool)
    return bool(((mask.data == 0) == triangle).all() and (hidden != triangle).all())


def takes_attention(profile: DeviceProfile | None) -> bool:
    """Whether the kernel pays on the device, and the device has what it needs.

    Software Vulkan loads through gathers, of which one pass has more than products of register
    tiles: on lavapipe (Mesa 22.3, EPYC) it took 1.3 to 1.5 times as long as the products and the
    softmax, at 16 to 512 queries.
    """
    if profile is None or profile.device_type == "cpu":
        return False
    return _BUFFERS <= min(
        profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set
    )


def _run(graph: Graph, compilation: Compilation) -> Graph:
    if not takes_attention(compilation.profile):
        return graph
    return apply_rewrites(
        graph, (attention, attention_with_empty_rows), kept=compilation.force_cpu,
        applied=lambda text: compilation.notes.add("fuse_attention", text),
    )


FUSE_ATTENTION = Pass("fuse_attention", _run)
