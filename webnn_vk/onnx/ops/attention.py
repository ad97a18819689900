"""Attention and what surrounds it in transformers, as ONNX Runtime's operators have it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.support.dataclass import dataclass

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from . import byte_products
from .byte_products import centred
from .elementwise import tanh_gelu
from .matrix_products import matmul
from .normalization import by_rows, rms_norm, scaled_layer_norm


# -- normalisation and activations ---------------------------------------------------------------
@onnx_operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    c: NodeContext,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> list[MLOperand | None]:
    simplified = c.operator == "SkipSimplifiedLayerNormalization"
    if simplified:
        beta, bias = None, bias if bias is not None else beta
    total = c.b.add(x, skip)
    if bias is not None:
        total = c.b.add(total, bias)
    if simplified:
        result = rms_norm(c, total, gamma, [x.rank - 1], epsilon)
    else:
        result = scaled_layer_norm(c, total, gamma, beta, [x.rank - 1], epsilon)
    return [result, None, None, total]


@onnx_operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    c: NodeContext,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> list[MLOperand | None]:
    total = c.b.gather(words, ids)
    if position_ids is not None:
        total = c.b.add(total, c.b.gather(places, position_ids))
    else:
        total = c.b.add(total, c.slice(places, 0, 0, ids.shape[1]))
    if segments is not None and segment_table is not None:
        total = c.b.add(total, c.b.gather(segment_table, segments))
    result = scaled_layer_norm(c, total, gamma, beta, [2], epsilon)
    count = None
    if c.wants(1):
        batch = ids.shape[0]
        if mask is None:
            count = c.constant(np.zeros(batch), "int32")
        else:
            count = c.b.reduce_sum(c.cast(mask, "int32"), axes=[1])
    return [result, count, total]


@onnx_operator("QEmbedLayerNormalization", domain=MICROSOFT)
def q_embed_layer_normalization(
    c: NodeContext,
    ids: Tensor,
    segments: Tensor | None,
    words: Tensor,
    places: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    words_scale: Tensor,
    places_scale: Tensor,
    segments_scale: Tensor | None,
    gamma_scale: Tensor,
    beta_scale: Tensor,
    words_zero: Tensor,
    places_zero: Tensor,
    segments_zero: Tensor | None,
    gamma_zero: Tensor,
    beta_zero: Tensor,
    *,
    epsilon: float = 1e-12,
) -> list[MLOperand | None]:
    def real(x: Tensor | None, scale: Tensor | None, zero: Tensor | None) -> Tensor | None:
        if x is None or scale is None:
            return None
        return c.typed(c.b.mul(centred(c, x, zero, []), c.reshape(scale, [])), "float32")

    made = embed_layer_normalization(
        c, ids, segments, real(words, words_scale, words_zero),
        real(places, places_scale, places_zero),
        real(segment_table, segments_scale, segments_zero), real(gamma, gamma_scale, gamma_zero),
        real(beta, beta_scale, beta_zero), mask, epsilon=epsilon,
    )
    return made[:2]


@onnx_operator("FastGelu", domain=MICROSOFT)
def fast_gelu(c: NodeContext, x: Tensor, bias: Tensor | None = None) -> MLOperand:
    return tanh_gelu(c, x.operand if bias is None else c.b.add(x, bias))


@onnx_operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(c: NodeContext, x: Tensor, bias: Tensor) -> MLOperand:
    return c.b.gelu(c.b.add(x, bias))


@onnx_operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(c: NodeContext, x: Tensor, *, alpha: float = 1.702) -> MLOperand:
    return c.widened(x, lambda v: c.b.mul(v, c.b.sigmoid(c.b.mul(v, alpha))))


@onnx_operator("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(
    c: NodeContext, x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int
) -> MLOperand:
    at = c.axis(axis, x.rank)
    refuse_if(not is_inner_broadcast and bias.rank != x.rank, "an outer broadcast of another rank")
    return by_rows(c, c.b.add(x, bias), at, lambda rows: c.b.softmax(rows, 1))


# -- rotary positions ----------------------------------------------------------------------------
@onnx_operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    c: NodeContext,
    x: Tensor,
    position_ids: Tensor,
    cosines: Tensor,
    sines: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> MLOperand:
    refuse_if(is_packed_batching or scale != 1.0, "packed batches and scales are not supported")
    half = cosines.shape[-1]
    if x.rank == 3:
        split = heads_of(c, x, num_heads or x.shape[2] // (rotary_embedding_dim or 2 * half))
    else:
        split = x.operand
    batch, heads, steps, size = split.shape
    rotated = rotary_embedding_dim or size
    if position_ids.size == 1:  # the first of consecutive positions
        first = c.reshape(c.cast(position_ids, "int64"), [1, 1])
        at = c.b.add(first, c.constant(np.arange(steps)[None], "int64"))
        at = c.b.expand(at, [batch, steps])
    else:
        at = position_ids.operand
    cos, sin = (
        c.reshape(c.b.gather(table, at), [batch, 1, steps, half]) for table in (cosines, sines)
    )
    part = c.slice(split, 3, 0, rotated)
    if interleaved:
        pairs = c.reshape(part, [batch, heads, steps, half, 2])
        a, b = (c.reshape(v, [batch, heads, steps, half]) for v in c.b.split(pairs, 2, axis=4))
    else:
        a, b = c.b.split(part, 2, axis=3)
    left = c.b.sub(c.b.mul(a, cos), c.b.mul(b, sin))
    right = c.b.add(c.b.mul(b, cos), c.b.mul(a, sin))
    if interleaved:
        both = [c.reshape(v, [*v.shape, 1]) for v in (left, right)]
        turned = c.reshape(c.b.concat(both, 4), [batch, heads, steps, rotated])
    else:
        turned = c.b.concat([left, right], 3)
    if rotated < size:
        turned = c.b.concat([turned, c.slice(split, 3, rotated, size - rotated)], 3)
    if x.rank == 3:
        turned = c.reshape(c.transpose(turned, [0, 2, 1, 3]), x.shape)
    return turned


# -- attention -----------------------------------------------------------------------------------
def heads_of(c: NodeContext, x: Any, heads: int) -> MLOperand:
    """[batch, steps, hidden] as [batch, heads, steps, size]."""
    batch, steps, hidden = x.shape
    return c.transpose(c.reshape(x, [batch, steps, heads, hidden // heads]), [0, 2, 1, 3])


def attend(
    c: NodeContext, q: MLOperand, k: MLOperand, v: MLOperand, added: list[Any], scale: float,
    past: int | None = None, *, softcap: float = 0.0, window: int = 0,
    seen: MLOperand | None = None, sink: MLOperand | None = None,
) -> MLOperand:
    """softmax(q·kᵀ·scale + added)·v of [batch, heads, steps, size], as [batch, steps, hidden].

    ``softcap`` bounds the scores smoothly. Causal where ``past`` is given: a query sees that many
    keys and one more for each query up to itself, of these the last ``window`` (all when 0); or
    where ``seen`` (uint8, broadcast to the scores) says what is seen. ``sink`` ([1, heads, 1, 1]):
    one more score of the softmax, which counts for nothing."""
    keys = c.transpose(k, [0, 1, 3, 2])
    if q.data_type == "float16" and scale < 1:  # unscaled scores may overflow
        scores = c.b.matmul(c.b.mul(q, scale), keys)
    else:
        scores = c.b.mul(c.b.matmul(q, keys), scale)
    if softcap:
        scores = c.b.mul(c.b.tanh(c.b.div(scores, softcap)), softcap)
    for term in added:
        scores = c.b.add(scores, c.cast(term, scores.data_type))
    if past is not None and seen is None:
        rows, columns = q.shape[2], k.shape[2]
        check_made(rows, columns)
        before = np.tri(rows, columns, past, dtype=bool)
        if window:
            before &= ~np.tri(rows, columns, past - window, dtype=bool)
        # As ONNX Runtime has it: nothing is after the last query, more keys than queries or not.
        before[-1, past + rows :] = True
        seen = c.constant(before[None, None], "uint8")
    if seen is not None:
        # The lowest number there is: less than what padding is given, so that in a row of which
        # the padding is all that is seen, the padding counts.
        low = np.finfo(scores.data_type).min
        scores = c.b.where(seen, scores, c.constant(low, scores.data_type))
    if sink is not None:
        one_more = c.b.expand(c.cast(sink, scores.data_type), [*scores.shape[:3], 1])
        weights = c.slice(
            c.b.softmax(c.b.concat([scores, one_more], 3), 3), 3, 0, scores.shape[3]
        )
    else:
        weights = c.b.softmax(scores, 3)
    result = c.b.matmul(weights, v)
    batch, heads, steps, size = result.shape
    return c.reshape(c.transpose(result, [0, 2, 1, 3]), [batch, steps, heads * size])


def mask_term(
    c: NodeContext, mask: Tensor, batch: int, rows: int, columns: int, kind: str, filter_value:
    float
) -> MLOperand:
    """The addend to the scores that stands for a mask of ones (seen) and zeros."""
    if mask.rank == 1:
        places = c.constant(np.arange(columns)[None], "int32")
        given = c.cast(mask, "int32")
        seen = c.b.lesser(places, c.reshape(c.slice(given, 0, 0, batch), [batch, 1]))
        if mask.size == 2 * batch:
            start = c.reshape(c.slice(given, 0, batch, batch), [batch, 1])
            seen = c.b.logical_and(seen, c.b.greater_or_equal(places, start))
        elif mask.size != batch:
            raise Unsupported(f"a mask of shape {list(mask.shape)}")
        view = [batch, 1, 1, columns]
    else:
        seen = c.b.greater(mask, 0)
        view = {
            2: [*mask.shape[:1], 1, 1, *mask.shape[1:]],
            3: [mask.shape[0], 1, *mask.shape[1:]],
        }.get(mask.rank, list(mask.shape))
        if mask.rank == 4:
            total, at = columns, columns - rows
            seen = c.slice(c.slice(seen, 2, at, rows), 3, 0, total)
            view = list(seen.shape)
    low = max(filter_value, -65504.0) if kind == "float16" else filter_value
    return c.reshape(c.b.where(seen, c.constant(0, kind), c.constant(low, kind)), view)


@dataclass(frozen=True)
class HeadAttributes:
    """The attributes that the attention operators have in common."""

    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
    unidirectional: int = 0


@dataclass(frozen=True)
class AttentionAttributes(HeadAttributes):
    """The attributes of the operators that project their input."""

    do_rotary: int = 0
    past_present_share_buffer: int = 0

    def check(self, c: NodeContext) -> None:
        """Unsupported for what no operator of these is supported with."""
        if self.do_rotary or self.past_present_share_buffer:
            raise Unsupported(f"rotary positions and shared buffers inside of {c.operator}")


@onnx_operator("Attention", domain=MICROSOFT)
def attention(
    c: NodeContext, x: Tensor, weights: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None, past: Tensor | None = None, attention_bias: Tensor | None = None,
    past_length: Tensor | None = None, *, given: AttentionAttributes,
    qkv_hidden_sizes: list[int] | None = None, rotary_embedding_dim: int = 0,
) -> list[MLOperand | None]:
    given.check(c)
    projected = matmul(c, x.operand, weights.operand)
    if bias is not None:
        projected = c.b.add(projected, bias)
    sizes = qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
    return _projected_attention(c, projected, sizes, mask, past, attention_bias, given)


def _projected_attention(
    c: NodeContext, projected: MLOperand, sizes: Any, mask: Tensor | None, past: Tensor | None,
    attention_bias: Tensor | None, given: AttentionAttributes,
) -> list[MLOperand | None]:
    """Attention of the projected input, which is split into ``sizes``, and the new cache."""
    q, k, v = (
        heads_of(c, part, given.num_heads) for part in c.b.split(projected, sizes, axis=2)
    )
    before = 0
    if past is not None and past.size:
        before = past.shape[3]
        before_k, before_v = (
            c.reshape(c.slice(past, 0, i, 1), past.shape[1:]) for i in (0, 1)
        )
        k, v = c.b.concat([before_k, k], 2), c.b.concat([before_v, v], 2)
    present = None
    if c.wants(1):
        present = c.b.concat([c.reshape(t, [1, *t.shape]) for t in (k, v)], 0)
    return [_masked_attention(c, q, k, v, mask, attention_bias, given, before), present]


def _masked_attention(
    c: NodeContext, q: MLOperand, k: MLOperand, v: MLOperand, mask: Tensor | None,
    attention_bias: Tensor | None, given: HeadAttributes, past: int,
) -> MLOperand:
    added: list[Any] = []
    if mask is not None:
        added.append(mask_term(
            c, mask, q.shape[0], q.shape[2], k.shape[2], q.data_type, given.mask_filter_value
        ))
    if attention_bias is not None:
        added.append(attention_bias)
    factor = given.scale or 1 / math.sqrt(q.shape[3])
    return attend(c, q, k, v, added, factor, past if given.unidirectional else None)


@onnx_operator("QAttention", domain=MICROSOFT)
def qattention(
    c: NodeContext, x: Tensor, weight: Tensor, bias: Tensor, x_scale: Tensor, weight_scale: Tensor,
    mask: Tensor | None = None, x_zero: Tensor | None = None, weight_zero: Tensor | None = None,
    past: Tensor | None = None, *, given: AttentionAttributes,
) -> list[MLOperand | None]:
    given.check(c)
    total = c.cast(byte_products.product(c, x, x_zero, weight, weight_zero), "float32")
    factor = c.b.mul(
        c.reshape(x_scale, []),
        c.reshape(weight_scale, [] if weight_scale.size == 1 else [weight_scale.size]),
    )
    projected = c.b.add(c.b.mul(total, factor), bias)
    return _projected_attention(c, projected, 3, mask, past, None, given)


@onnx_operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    c: NodeContext, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
    bias: Tensor | None = None, key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None, past_key: Tensor | None = None,
    past_value: Tensor | None = None, *, given: HeadAttributes,
) -> list[MLOperand | None]:
    n = given.num_heads
    parts: list[Any]
    if query.rank == 5:  # [batch, steps, heads, 3, size]
        batch, steps, _, _, size = query.shape
        parts = [
            c.reshape(t, [batch, steps, n * size]) for t in c.b.split(query, 3, axis=3)
        ]
    elif key is not None and key.rank == 5:  # [batch, steps, heads, 2, size]
        batch, steps, _, _, size = key.shape
        pair = [c.reshape(t, [batch, steps, n * size]) for t in c.b.split(key, 2, axis=3)]
        parts = [query.operand, *pair]
    elif key is not None and value is not None:
        parts = [query.operand, key.operand, value.operand]
    else:
        raise Unsupported("key and value are missing")
    if bias is not None:
        lengths = [
            t.shape[-1] if len(t.shape) == 3 else t.shape[1] * t.shape[3] for t in parts
        ]
        pieces = c.b.split(bias, lengths, axis=0)
        # Keys and values of four dimensions are projected already, their bias with them.
        parts = [
            c.b.add(t, b) if len(t.shape) == 3 else t
            for t, b in zip(parts, pieces, strict=True)
        ]
    q, k, v = (t if len(t.shape) == 4 else heads_of(c, t, n) for t in parts)
    past = 0
    if past_key is not None and past_value is not None and past_key.size:
        past = past_key.shape[2]
        k, v = c.b.concat([past_key, k], 2), c.b.concat([past_value, v], 2)
    result = _masked_attention(c, q, k, v, key_padding_mask, attention_bias, given, past)
    return [result, k, v]
