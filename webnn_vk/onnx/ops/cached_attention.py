"""Attention to a cache of a fixed capacity, of which a number says how many rows are valid."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from webnn_vk.api.builder import MLOperand, apply_operator

from ..context import NodeContext
from ..errors import UseFunctionBody, refuse_if
from ..records import onnx_operator
from ..values import Tensor
from .attention import heads_of

#: The most sequences of a batch, each of which is an operator of its own.
MAX_SEQUENCES = 64


def update(c: NodeContext, cache: Tensor, rows: MLOperand, starts: MLOperand) -> MLOperand:
    """The cache [batch, heads, capacity, size] with ``rows`` [batch, heads, steps, size] from the
    place ``starts`` [batch, 1] (int32) on. If the cache is donated, only they are written."""
    batch, _, steps, _ = rows.shape
    at = c.b.add(starts, c.constant(np.arange(steps)[None], "int32"))
    at = c.b.expand(c.reshape(at, [batch, 1, steps, 1]), list(rows.shape))
    return c.b.scatter_elements(cache, at, rows, axis=2)


def attend(
    c: NodeContext, q: MLOperand, k: MLOperand, v: MLOperand, lengths: MLOperand, *,
    scale: float, causal: bool = False, seen: MLOperand | None = None, softcap: float = 0.0,
) -> MLOperand:
    """Attention of queries [batch, heads, steps, size] to the first ``lengths`` [batch] (int32, at
    least 1) rows of keys and values [batch, kv heads, capacity, size]; the others are not read.
    ``causal``: the last query sees all of these rows, each other one fewer. ``seen`` (uint8, [batch
    or 1, steps, capacity]) takes further rows away."""
    batch, heads, steps, size = q.shape
    kv_heads, capacity, width = k.shape[1], k.shape[2], v.shape[3]
    refuse_if(batch > MAX_SEQUENCES, f"a cache of {batch} sequences, {MAX_SEQUENCES} at most")
    group = heads // kv_heads
    # Queries of heads that share keys are the rows of one matrix, or of several with the same keys.
    queries, keys = [kv_heads, group, size], [kv_heads, capacity]
    if steps > 1 or seen is not None:
        queries, keys = [kv_heads, group, steps, size], [kv_heads, 1, capacity]
    made = []
    for number in range(batch):
        own = None
        if seen is not None:
            own = c.slice(seen, 0, min(number, seen.shape[0] - 1), 1)
        c.conversion.count_call()
        result = apply_operator(
            c.conversion.builder, "attention",
            c.reshape(c.slice(q, 0, number, 1), queries),
            c.reshape(c.slice(k, 0, number, 1), [*keys, k.shape[3]]),
            c.reshape(c.slice(v, 0, number, 1), [*keys, width]),
            seen=own, length=c.cast(c.slice(lengths, 0, number, 1), "uint32"), scale=scale,
            causal=causal and steps > 1, softcap=softcap, label=c.node.title,
        )
        made.append(c.reshape(result, [1, heads, steps, width]))
    return made[0] if batch == 1 else c.b.concat(made, 0)


@onnx_operator("Attention", first=24)
def attention_24(
    c: NodeContext, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_key: Tensor | None = None, past_value: Tensor | None = None,
    lengths: Tensor | None = None, *, is_causal: int = 0, kv_num_heads: int = 0,
    left_window_size: int = -1, q_num_heads: int = 0, qk_matmul_output_mode: int = 0,
    right_window_size: int = -1, scale: float = 0.0, softcap: float = 0.0,
    softmax_precision: int = 0,
) -> list[MLOperand | None]:
    """With the valid rows of a cache that another operator updates in place. (Otherwise the whole
    cache is copied anyway.)"""
    if (
        lengths is None or not k.sources & c.conversion.donated
        or mask is not None or past_key is not None or past_value is not None
        or any(map(c.wants, (1, 2, 3))) or not q.rank == k.rank == v.rank
        or softmax_precision == TensorProto.DOUBLE
        or (not is_causal and max(left_window_size, right_window_size) >= 0)
        or {t.type for t in (q, k, v)} - {"float32", "float16"} or len({q.type, v.type}) > 1
    ):
        raise UseFunctionBody
    parts = [
        heads_of(c, t, n) if t.rank == 3 else t.operand
        for t, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads))
    ]
    query, keys, _ = parts
    batch, _, steps, size = query.shape
    valid = c.cast(lengths, "int32")
    # How many of the rows each query sees, [batch, steps, 1].
    counts = c.reshape(valid, [batch, 1, 1])
    seen = None
    places = c.constant(np.arange(keys.shape[2])[None, None], "int32")
    if is_causal and steps > 1:
        order = np.arange(1 - steps, 1).reshape(1, steps, 1)
        counts = c.b.add(counts, c.constant(order, "int32"))
        seen = c.b.lesser(places, counts)
    if left_window_size >= 0:
        near = c.b.greater(places, c.b.sub(counts, left_window_size + 2))
        seen = near if seen is None else c.b.logical_and(seen, near)
    made = attend(
        c, *parts, c.b.max(valid, 1), scale=scale or 1 / math.sqrt(size), seen=seen,
        softcap=softcap,
    )
    # Queries that see nothing give 0.
    has_keys = c.reshape(c.b.greater(counts, 0), [batch, 1, counts.shape[1], 1])
    made = c.b.where(has_keys, made, c.constant(0, made.data_type))
    if q.rank == 3:
        wide = made.shape[1] * made.shape[3]
        made = c.reshape(c.transpose(made, [0, 2, 1, 3]), [batch, steps, wide])
    return [made, None, None, None]
