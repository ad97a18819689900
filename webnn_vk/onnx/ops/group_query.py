"""Attention of many queries' heads to fewer heads of keys and values, with a cache."""

from __future__ import annotations

import math

import numpy as np

from ...builder import MLOperand
from ..context import NodeContext
from ..errors import Unsupported
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .attention import attend, heads_of, rotary_embedding


@onnx_operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    c: NodeContext,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total_length: Tensor,
    cosines: Tensor | None = None,
    sines: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    do_rotary: int = 0,
    local_window_size: int = -1,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> list[MLOperand | None]:
    if key is None or value is None:
        size = query.shape[2] // (num_heads + 2 * kv_num_heads)
        parts = c.b.split(
            query, [num_heads * size, kv_num_heads * size, kv_num_heads * size], axis=2
        )
    else:
        parts = [query.operand, key.operand, value.operand]
    q, k, v = (
        heads_of(c, t, n)
        for t, n in zip(parts, (num_heads, kv_num_heads, kv_num_heads), strict=True)
    )
    steps, before = q.shape[2], 0 if past_key is None else past_key.shape[2]
    _check_lengths(c, lengths, total_length, q.shape[0], before, steps)
    if do_rotary:
        if cosines is None or sines is None:
            raise Unsupported("rotary positions without tables")
        at = position_ids
        if at is None:
            at = c.conversion.tensor(np.array([before], np.int64))
        q, k = (
            rotary_embedding(
                c, c.typed(t, query.type), at, cosines, sines, interleaved=rotary_interleaved,
                rotary_embedding_dim=2 * cosines.shape[-1],
            )
            for t in (q, k)
        )
    if past_key is not None and past_value is not None and before:
        k, v = c.b.concat([past_key, k], 2), c.b.concat([past_value, v], 2)
    factor = scale or 1 / math.sqrt(q.shape[3])
    groups = num_heads // kv_num_heads
    wide = [_repeated(c, t, groups) for t in (k, v)]
    added = [] if attention_bias is None else [attention_bias]
    low = float(np.finfo(q.data_type).min)
    result = attend(
        c, q, *wide, added, factor, True, low, softcap=softcap,
        window=max(local_window_size, 0), smooth=bool(smooth_softmax),
    )
    return [result, k, v]


def _check_lengths(
    c: NodeContext, lengths: Tensor, total: Tensor, batch: int, before: int, steps: int
) -> None:
    """Unsupported unless the past fills its tensor and all sequences are of one length, as exports
    of decoders have them. Without a past, what follows a shorter sequence's end is not seen."""
    if not before:
        return
    if batch == 1 and not lengths.known and total.known:
        fits = c.int(total, "the total length") == before + steps
    else:
        known = np.asarray(c.array(lengths, "the sequences' lengths")).reshape(-1)
        fits = bool((known + 1 == before + steps).all())
    if not fits:
        raise Unsupported("padded sequences and buffers longer than the past")


def _repeated(c: NodeContext, x: MLOperand, count: int) -> MLOperand:
    """Each head ``count`` times, one after the other."""
    if count == 1:
        return x
    batch, heads, steps, size = x.shape
    many = c.b.expand(c.reshape(x, [batch, heads, 1, steps, size]), [batch, heads, count, steps,
                                                                     size])
    return c.reshape(many, [batch, heads * count, steps, size])
