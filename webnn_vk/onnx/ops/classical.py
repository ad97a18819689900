"""ai.onnx.ml and text features, as far as they are arithmetic on numbers."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Maps, Tensor

ML = "ai.onnx.ml"
#: Columns of features that a TfIdfVectorizer makes at most.
_MAX_COLUMNS = 1 << 16


@onnx_operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(c: NodeContext, x: Tensor, indices: Tensor) -> MLOperand:
    flat = c.reshape(indices, [indices.size])
    data = x.operand if x.rank > 1 else c.reshape(x, [1, x.size])
    return c.b.gather(data, flat, axis=len(data.shape) - 1)


@onnx_operator("ZipMap", domain=ML)
def zip_map(
    c: NodeContext, x: Tensor, *, classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> Maps:
    """Maps of labels to scores, one for each row: they may be the model's output, no more."""
    refuse_if(x.rank not in (1, 2), f"an input of rank {x.rank}, not rows of scores")
    keys = classlabels_int64s or classlabels_strings or []
    refuse_if(len(keys) != x.shape[-1] or not keys, f"{len(keys)} labels for {x.shape[-1]} scores")
    return Maps(x, tuple(keys), c.node.inputs[0])


@onnx_operator("Binarizer", domain=ML)
def binarizer(c: NodeContext, x: Tensor, *, threshold: float = 0.0) -> MLOperand:
    return c.b.cast(c.b.greater(x, threshold), x.operand.data_type)


@onnx_operator("Scaler", domain=ML)
def scaler(
    c: NodeContext, x: Tensor, *, offset: list[float] | None = None, scale: list[float] | None =
    None
) -> MLOperand:
    result = c.cast(x, "float32")
    if offset:
        result = c.b.sub(result, c.constant(np.array(offset), "float32"))
    return result if not scale else c.b.mul(result, c.constant(np.array(scale), "float32"))


@onnx_operator("Normalizer", domain=ML)
def normalizer(c: NodeContext, x: Tensor, *, norm: str = "MAX") -> MLOperand:
    value = c.cast(x, "float32")
    refuse_if(norm not in ("MAX", "L1", "L2"), f"norm {norm!r} is unknown")
    name = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}[norm]
    total = getattr(c.b, name)(value, axes=[x.rank - 1], keep_dimensions=True)
    # Rows of zeros stay as they are.
    return c.b.div(value, c.b.where(c.b.equal(total, 0.0), c.constant(1, "float32"), total))


@onnx_operator("TfIdfVectorizer", first=9)
def tf_idf_vectorizer(
    c: NodeContext,
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> MLOperand:
    if pool_int64s is None:
        raise Unsupported("a pool of strings")
    rows = c.reshape(x, [1, x.size]) if x.rank == 1 else x.operand
    count, length = rows.shape
    refuse_if(not all(0 <= i < _MAX_COLUMNS for i in ngram_indexes),
              f"ngram_indexes has other columns than 0 … {_MAX_COLUMNS - 1}")
    columns: list[MLOperand | None] = [None] * (max(ngram_indexes) + 1)
    index = 0
    for size, start in enumerate(ngram_counts, 1):
        end = ngram_counts[size] if size < len(ngram_counts) else len(pool_int64s)
        for at in range(start, end, size):
            if min_gram_length <= size <= max_gram_length:
                gram = pool_int64s[at : at + size]
                found = _occurrences(c, rows, gram, length, max_skip_count)
                columns[ngram_indexes[index]] = found
            index += 1
    nothing = c.constant(np.zeros((count, 1)), "float32")
    counts = c.b.concat([nothing if v is None else v for v in columns], 1)
    table = np.ones(len(columns), np.float32)
    for i, weight in enumerate(weights or []):
        table[ngram_indexes[i]] = weight
    if mode in ("IDF", "TFIDF"):
        if mode == "IDF":
            counts = c.b.cast(c.b.greater(counts, 0.0), "float32")
        counts = c.b.mul(counts, c.constant(table, "float32"))
    elif mode != "TF":
        raise Unsupported(f"mode {mode!r} is unknown")
    return c.reshape(counts, [len(columns)]) if x.rank == 1 else counts


def _occurrences(
    c: NodeContext, rows: MLOperand, gram: list[int], length: int, skips: int
) -> MLOperand:
    """How often the numbers follow each other in each row, with up to ``skips`` between."""
    total = c.constant(np.zeros((rows.shape[0], 1)), "float32")
    for step in range(1, 2 if len(gram) == 1 else skips + 2):
        places = length - (len(gram) - 1) * step
        if places < 1:
            break
        hit: MLOperand | None = None
        for i, number in enumerate(gram):
            part = c.b.equal(c.slice(rows, 1, i * step, places), number)
            hit = part if hit is None else c.b.logical_and(hit, part)
        seen = c.b.cast(hit, "float32")
        total = c.b.add(total, c.b.reduce_sum(seen, axes=[1], keep_dimensions=True))
    return total
