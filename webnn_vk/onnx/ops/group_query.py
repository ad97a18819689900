"""Attention of many queries' heads to fewer heads of keys and values, with a cache."""

from __future__ import annotations

import math

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from . import cached_attention
from .attention import attend, heads_of, rotary_embedding
from .normalization import rms_norm


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
    head_sink: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    sliding_window_cache: int = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> list[MLOperand | None]:
    refuse_if((k_quant_type, v_quant_type) != ("NONE", "NONE"), "a quantised cache")
    refuse_if(sliding_window_cache, "sliding_window_cache: a cache that evicts by itself")
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
    if q_norm is not None and k_norm is not None:
        q, k = (rms_norm(c, t, w, [3], qk_norm_epsilon) for t, w in ((q, q_norm), (k, k_norm)))
    past = None if past_key is None or past_value is None else (past_key, past_value)
    cache = _Cache(c, lengths, total_length, q, past)
    if do_rotary:
        if cosines is None or sines is None:
            raise Unsupported("rotary positions without tables")
        at = cache.positions() if position_ids is None else position_ids
        q, k = (
            rotary_embedding(
                c, c.typed(t, query.type), at, cosines, sines, interleaved=rotary_interleaved,
                rotary_embedding_dim=2 * cosines.shape[-1],
            )
            for t in (q, k)
        )
    if past is not None:
        k, v = (cache.present(old, new) for old, new in zip(past, (k, v), strict=True))
    factor = scale or 1 / math.sqrt(q.shape[3])
    plain = attention_bias is None and head_sink is None and not smooth_softmax
    if cache.is_shared and causal and plain:
        result = cached_attention.attend(
            c, q, k, v, cache.counts(), scale=factor, causal=True, softcap=softcap,
            seen=cache.window(max(local_window_size, 0)),
        )
        rows = [*query.shape[:2], num_heads * q.shape[3]]
        return [c.reshape(c.transpose(result, [0, 2, 1, 3]), rows), k, v]
    groups = num_heads // kv_num_heads
    wide = [c.repeated(cache.attended(t), groups) for t in (k, v)]
    added = [] if attention_bias is None else [cache.widened(attention_bias)]
    sink = None
    if head_sink is not None:
        sink = c.reshape(head_sink, [1, num_heads, 1, 1])
    elif smooth_softmax:
        sink = c.constant(np.zeros([1, num_heads, 1, 1]), q.data_type)
    window = max(local_window_size, 0)
    result = attend(
        c, q, *wide, added, factor, wide[0].shape[2] - q.shape[2] if causal else None,
        softcap=softcap, window=window, sink=sink, seen=cache.seen(window, bool(causal)),
    )
    return [result, k, v]


class _Cache:
    """Where the new keys and values lie in the cache, and which of its rows a query sees.

    Four ways: the past is whole and the new rows follow it (known at import); a first prompt, of
    which the past's tensor is only the buffer; for lengths of their own per sequence, which may be
    computed, rows that go where each sequence ends; and the same where the past is donated: then
    it is a buffer that the present shares, and the total length is not looked at."""

    def __init__(
        self, c: NodeContext, lengths: Tensor, total: Tensor, q: MLOperand,
        past: tuple[Tensor, Tensor] | None,
    ) -> None:
        self.c = c
        self.batch, _, self.steps, _ = q.shape
        before = 0 if past is None else past[0].shape[2]
        self.before = before
        self.is_shared = past is not None and all(
            t.sources and t.sources <= c.conversion.donated for t in past
        )
        self._lengths = lengths
        #: First new place of each sequence, [batch, 1] of int32; None where it is known.
        self.starts: MLOperand | None = None
        #: The new rows' first place in all sequences, and the rows of the cache.
        self.start, self.rows = self.before, self.before + self.steps
        if self.is_shared:
            refuse_if(before < self.steps, f"{self.steps} new steps in a cache of {before} rows")
            self.rows = before
            # Prompts that are shorter than others begin at 0, like these.
            self.starts = c.b.max(c.b.add(self._last(), 1 - self.steps), 0)
            return
        if not before or _whole(lengths, self.rows):
            return
        length = c.int(total, "the total length")
        self.rows = max(before, length)
        if length == self.steps:
            self.start = 0
            return
        refuse_if(length < self.steps, f"{self.steps} new steps of a total length of {length}")
        self.starts = c.b.add(self._last(), 1 - self.steps)

    def _last(self) -> MLOperand:
        """The last place of each sequence, [batch, 1]."""
        return self.c.reshape(self.c.cast(self._lengths, "int32"), [self.batch, 1])

    def positions(self) -> Tensor:
        """The new rows' places: the first of them, or one for each row of each sequence."""
        c = self.c
        if self.starts is None:
            return c.conversion.tensor(np.array([self.start], np.int64))
        at = c.b.add(self.starts, c.constant(np.arange(self.steps)[None], "int32"))
        return c.typed(at, "int32")

    def present(self, old: Tensor, new: MLOperand) -> MLOperand:
        """The cache with the new rows in it, and zeros after them."""
        c = self.c
        if self.is_shared:
            assert self.starts is not None
            return cached_attention.update(c, old, new, self.starts)
        if self.starts is None:
            if not self.start:
                return c.pad(new, [(0, 0), (0, 0), (0, self.rows - self.steps), (0, 0)])
            return c.b.concat([old, new], 2)
        batch, heads, steps, size = new.shape
        check_made(batch, heads, self.rows)
        places = c.constant(np.arange(self.rows)[None], "int32")
        offsets = c.b.sub(places, self.starts)  # [batch, rows]: which of the new rows
        if steps > 1:
            first = np.arange(batch * heads).reshape(batch, heads, 1) * steps
            row = c.b.clamp(offsets, min_value=0, max_value=steps - 1)
            row = c.b.add(c.reshape(row, [batch, 1, self.rows]), c.constant(first, "int32"))
            new = c.b.gather(c.reshape(new, [batch * heads * steps, size]), row)
        view = [batch, 1, self.rows, 1]
        is_old = c.reshape(c.b.lesser(offsets, 0), view)
        is_new = c.reshape(c.b.lesser(offsets, steps), view)
        kept = c.pad(old, [(0, 0), (0, 0), (0, self.rows - old.shape[2]), (0, 0)])
        return c.b.where(is_old, kept, c.b.where(is_new, new, c.constant(0, kept.data_type)))

    def counts(self) -> MLOperand:
        """The valid rows of each sequence, the new ones among them, [batch]."""
        return self.c.reshape(self.c.b.add(self._last(), 1), [self.batch])

    def window(self, size: int) -> MLOperand | None:
        """The rows that are not behind a window of ``size`` (0: none), [batch, steps, rows]."""
        if not size:
            return None
        last = self.c.reshape(self.positions().operand, [self.batch, self.steps, 1])
        places = self.c.constant(np.arange(self.rows)[None, None], "int32")
        return self.c.b.greater(places, self.c.b.sub(last, size))

    def attended(self, present: MLOperand) -> MLOperand:
        """The rows of the cache that any query may see."""
        count = self.steps if self.starts is None and not self.start else self.rows
        return self.c.slice(present, 2, 0, count)

    def widened(self, bias: Tensor) -> MLOperand:
        """The addend to the scores for all rows of the cache; it may have the total length."""
        missing = (self.rows if self.starts is not None else 0) - bias.shape[3]
        return self.c.pad(bias, [(0, 0), (0, 0), (0, 0), (0, max(missing, 0))])

    def seen(self, window: int, causal: bool) -> MLOperand | None:
        """Which rows each query sees, broadcast to [batch, 1, steps, rows]; None where ``attend``
        knows."""
        c = self.c
        if causal and self.starts is None:
            return None
        if not causal:
            last = self._last()
        else:
            last = self.positions().operand
        last = c.reshape(last, [self.batch, 1, last.shape[1], 1])
        rows = self.steps if self.starts is None and not self.start else self.rows
        places = c.constant(np.arange(rows)[None, None, None], "int32")
        seen = c.b.lesser_or_equal(places, last)
        if window:
            seen = c.b.logical_and(seen, c.b.greater(places, c.b.sub(last, window)))
        return seen


def _whole(lengths: Tensor, rows: int) -> bool:
    """Whether all sequences are known to fill their rows."""
    return lengths.array is not None and bool((lengths.array.reshape(-1) + 1 == rows).all())
