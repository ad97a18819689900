"""Products with a softmax between them become one operator of the compiler's own, `attention`,
which never stores the scores. The patterns are those that exporters write and those that our
importer decomposes ONNX's attention operators into."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir import Emitter, Value
from ..ops.attention import MAX_ATTENTION_RANK
from .heads import Repeated, ValuesPattern
from .patterns import Constant, Match, Op
from .pipeline import Compilation
from .rewrite import rewrite, rewrite_pass
from .scores import Scores, Term, WeightsPattern, is_lowest

#: The longest rows of values whose sums kernels can keep.
_MAX_WIDTH = 512
#: The buffers that the kernel binds: three operands, mask, `seen`, result, parameters.
_BUFFERS = 7


@rewrite(Op(
    "matmul", b=ValuesPattern("value"),
    a=Op(
        "where", single_use=True, condition="empty", false_value=WeightsPattern(),
        true_value=Constant(where=lambda v: v.data is not None and not v.data.any()),
    ),
))
def attention_with_empty_rows(match: Match, emit: Emitter) -> Value | None:
    """Attention in which queries that see no key get weights of 0, as ONNX defines it."""
    empty, product = match["empty"], match.root
    chosen = product.operands["a"]
    if match["softmax"].output.shape != chosen.shape:
        return None
    result = _attention(match, emit)
    if result is None or (empty.data is not None and not empty.data.any()):
        return result
    if not empty.shape or empty.shape[-1] != 1 or len(empty.shape) > len(result.shape):
        return None
    return emit.where(empty, emit.constant(0, result.data_type), result)


@rewrite(Op("matmul", a=WeightsPattern(), b=ValuesPattern("value")))
def attention(match: Match, emit: Emitter) -> Value | None:
    return _attention(match, emit)


def _attention(match: Match, emit: Emitter) -> Value | None:
    """softmax(where(seen, scale · q · kᵀ + masks, unseen)) · v, all in one operator."""
    scores: Scores = match["scores"]
    value, sees = match["value"], match["softmax"].output.shape
    rank = len(sees)
    if match["softmax"].arguments["axis"] != rank - 1 or not 2 <= rank <= MAX_ATTENTION_RANK:
        return None
    if value.shape[-1] > _MAX_WIDTH or len(scores.shape) > MAX_ATTENTION_RANK:
        return None
    multiplied = match.root.operands["a"].shape
    if multiplied != sees:
        # The product reads the weights in another shape: give the values the softmax's shape.
        if value.shape[:-2] != multiplied[:-2]:
            return None
        value = emit.reshape(value, (*sees[:-2], *value.shape[-2:]))
    if len(value.shape) > rank:
        return None
    terms, causal = _split_causal(scores.terms, sees, scores.seen is None)
    mask = _sum(emit, terms, value.data_type)
    seen = None
    # If a mask hides the rest of a row, a finite number contributes to the row's weights.
    counts = scores.unseen > -math.inf and bool(terms)
    if scores.seen is not None:
        if not counts and is_lowest(scores.unseen, value) and _is_triangle(scores.seen, sees):
            causal = True
        else:
            seen = _condition(emit, scores.seen)
    query, key = scores.query.emit(emit), _key(emit, scores)
    if not query.data_type == value.data_type == match.root.output.data_type:
        return None
    if scores.shape != sees:
        # The scores were reshaped: give query and key the leading dimensions of the softmax.
        lead = scores.shape[:-2]
        if query.shape[:-2] != lead or key.shape[:-2] != lead:
            return None
        query, key = (emit.reshape(v, (*sees[:-2], *v.shape[-2:])) for v in (query, key))
    unseen = -math.inf if seen is None else scores.unseen
    arguments = {"scale": scores.scale, "causal": causal, "unseen": unseen}
    heads: Repeated | None = scores.key_heads
    value_heads: Repeated | None = match["value heads"]
    if (
        heads is None or value_heads is None or scores.shape != sees or multiplied != sees
        or (heads.heads, heads.count) != (value_heads.heads, value_heads.count)
        or query.shape[-3:-2] != (heads.heads * heads.count,)
    ):
        result = emit.attention(query, key, value, mask=mask, seen=seen, **arguments)
    else:
        # A new dimension separates the queries of heads that share keys.
        query, mask, seen = (_grouped(emit, v, heads.heads) for v in (query, mask, seen))
        value = value_heads.emit(emit)
        result = emit.attention(
            query, heads.emit(emit), value, mask=mask, seen=seen, **arguments
        )
    if match.get("no NaN") is not None:
        # Either all weights of a query are NaN or none is. If they are, each is replaced by 0.
        products = emit.mul(value, emit.constant(0, value.data_type))
        nothing = emit.reduce_sum(products, axes=(len(value.shape) - 2,), keep_dimensions=True)
        result = emit.where(emit.is_nan(result), nothing, result)
    shape = match.root.output.shape
    return result if result.shape == shape else emit.reshape(result, shape)


def _key(emit: Emitter, scores: Scores) -> Value:
    """The keys as [.., T, D]."""
    key = scores.key.emit(emit)
    *batch, rows, columns = range(len(key.shape))
    swap = (*batch, columns, rows)
    permutation = scores.permutation
    if permutation is None:
        return emit.transpose(key, permutation=swap)
    permutation = tuple(permutation[axis] for axis in swap)
    if permutation == (*batch, rows, columns):
        return key
    return emit.transpose(key, permutation=permutation)


def _grouped(emit: Emitter, operand: Value | None, heads: int) -> Value | None:
    """[.., all heads, S, X] as [.., heads, all heads / heads, S, X]."""
    if operand is None or len(operand.shape) < 3:
        return operand
    *batch, total, rows, columns = operand.shape
    groups = (1, 1) if total == 1 else (heads, total // heads)
    return emit.reshape(operand, (*batch, *groups, rows, columns))


# -- masks -----------------------------------------------------------------------------------------
def _split_causal(
    terms: Sequence[Term], sees: tuple[int, ...], alone: bool
) -> tuple[list[Term], bool]:
    """The terms without causal masks, and whether there were any: a causal mask only hides the keys
    after each query's own position. A mask of finite numbers counts as causal only if it is the
    only one and ``alone`` holds: if another mask hides the rest of a row, its numbers matter."""
    left: list[Term] = []
    causal = False
    for term in terms:
        elements = term.elements()
        if elements is not None and not elements.any():
            continue
        if elements is not None and _masks_future(elements, term.value, sees) and (
            (alone and len(terms) == 1) or np.isneginf(elements[elements != 0]).all()
        ):
            causal = True
        else:
            left.append(term)
    return left, causal


def _sum(emit: Emitter, terms: Sequence[Term], data_type: str) -> Value | None:
    """The sum of the terms, in this data type; None if there are none."""
    total: Value | None = None
    for term in terms:
        if term.number is None and not term.negative:
            value = term.value
        elif term.value.data is not None:
            value = emit.constant(term.elements(), data_type)
        elif term.number is None:
            value = emit.neg(term.value)
        else:
            pair = [emit.constant(number, data_type) for number in (0, term.number)]
            value = emit.where(term.value, *(reversed(pair) if term.hidden else pair))
        total = value if total is None else emit.add(total, value)
    return total


def _condition(emit: Emitter, seen: Term) -> Value:
    """The condition under which scores count, as uint8."""
    if not seen.hidden:
        return seen.value
    if seen.value.data is None:
        return emit.logical_not(seen.value)
    return emit.constant((seen.value.data == 0).astype(np.uint8))


def _is_triangle(seen: Term, shape: tuple[int, ...]) -> bool:
    """Whether each query sees the keys up to its own position, aligned at the last keys."""
    rows, keys = shape[-2:]
    if seen.data is None or seen.data.shape[-2:] != (rows, keys) or rows > keys:
        return False
    triangle = np.tri(rows, keys, keys - rows, dtype=bool)
    return bool((((seen.data != 0) != seen.hidden) == triangle).all())


def _masks_future(mask: np.ndarray, like: Value, shape: tuple[int, ...]) -> bool:
    """Whether a mask adds 0 up to each query's own position and hides the keys after it."""
    rows, keys = shape[-2:]
    if mask.shape[-2:] != (rows, keys) or rows > keys:
        return False
    kind = like.descriptor.numpy_dtype if like.data_type != "uint8" else np.float32
    hidden = mask <= np.finfo(kind).min / 2
    triangle = np.tri(rows, keys, keys - rows, dtype=bool)
    return bool(((mask == 0) == triangle).all() and (hidden != triangle).all())


def takes_attention(compilation: Compilation) -> bool:
    """Whether the device can run the kernel, and gains from it.

    Software Vulkan loads by gathers, and the kernel has more loads than products of register
    tiles: on lavapipe (Mesa 22.3, EPYC) it took 1.3 to 1.5 times as long as the products and the
    softmax, at 16 to 512 queries.
    """
    profile = compilation.profile
    if profile is None or profile.device_type == "cpu":
        return False
    return _BUFFERS <= min(
        profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set
    )


FUSE_ATTENTION = rewrite_pass(
    "fuse_attention", attention, attention_with_empty_rows, rounds=1, when=takes_attention
)
