"""Scaled dot-product attention: a compiler operator, introduced by `passes/attention.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..types.broadcasting import broadcast_shapes
from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import Bool, Double, Number, Operand
from .lowering import Attention
from .record import Check, Like, Limits, compiler_operator

#: Rank of the operands: kernels address three dimensions before the last two.
MAX_ATTENTION_RANK = 5


@compiler_operator(
    query=Limits(FLOAT_TYPES, (2, MAX_ATTENTION_RANK)),
    key=Like("query"),
    value=Like("query"),
    mask=Like("query", (0, MAX_ATTENTION_RANK)),
    seen=Limits(("uint8",), (0, MAX_ATTENTION_RANK)),
    length=Limits(("uint32",), (0, 1)),
    output=Like("query"),
)
def attention(
    check: Check,
    query: Operand,
    key: Operand,
    value: Operand,
    *,
    mask: Operand = None,
    seen: Operand = None,
    length: Operand = None,
    scale: Double = 1.0,
    unseen: Number = -math.inf,
    causal: Bool = False,
    softcap: Double = 0.0,
) -> MLOperandDescriptor:
    """softmax(where(seen, scale · query · keyᵀ + mask, unseen)) · value over the keys.

    ``query`` [.., S, D], ``key`` [.., T, D] and ``value`` [.., T, E] give [.., S, E]; the leading
    dimensions broadcast, ``mask`` and ``seen`` to the scores [.., S, T]. With ``causal`` query s
    ignores keys beyond s + T − S (but if a value there is not finite, the result may not be
    finite).

    A positive ``softcap`` bounds scores smoothly before the mask is added:
    softcap · tanh(scale · query · keyᵀ / softcap).

    ``length``, one number, is how many keys and values are valid; the others are not read. With
    ``causal`` query s then ignores keys beyond s + max(length − S, 0).
    """
    check.same_type(query=query, key=key, value=value, mask=mask)
    batch = broadcast_shapes(query.shape[:-2], key.shape[:-2])
    batch = None if batch is None else broadcast_shapes(batch, value.shape[:-2])
    rows, keys = query.shape[-2], key.shape[-2]
    check.that(
        batch is not None and query.shape[-1] == key.shape[-1] and keys == value.shape[-2],
        f"query is {query}, key is {key} and value is {value}; [.., S, D], [.., T, D] and "
        "[.., T, E] are expected",
    )
    assert batch is not None
    check.broadcasts_to("mask", mask, (*batch, rows, keys))
    check.broadcasts_to("seen", seen, (*batch, rows, keys))
    check.that(length is None or length.size == 1, f"length is {length}; one number is expected")
    check.that(
        not causal or rows <= keys, f"{rows} causal queries of {keys} keys: some would see nothing"
    )
    return MLOperandDescriptor(query.data_type, (*batch, rows, value.shape[-1]))


@attention.reference
def _(
    out: MLOperandDescriptor,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    mask: np.ndarray | None,
    seen: np.ndarray | None,
    length: np.ndarray | None,
    scale: float,
    unseen: float,
    causal: bool,
    softcap: float,
) -> np.ndarray:
    # In double, since exp would amplify rounding errors of the scores, which are no kernel's fault.
    wide = query.astype(np.float64)
    scores = np.matmul(wide, np.swapaxes(key, -1, -2).astype(np.float64)) * scale
    if softcap > 0:
        scores = softcap * np.tanh(scores / softcap)
    if mask is not None:
        scores = scores + mask
    if seen is not None:
        scores = np.where(seen != 0, scores, unseen)
    rows, keys = scores.shape[-2:]
    ahead = keys - rows
    if length is not None:
        valid = min(int(length.reshape(())), keys)
        ahead = max(valid - rows, 0)
        # Elements beyond the valid ones may be NaN.
        scores, value = scores[..., :valid], value[..., :valid, :]
        if valid == 0:
            return np.full(out.shape, math.nan)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], ahead, dtype=bool), scores, -math.inf)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights /= np.sum(weights, axis=-1, keepdims=True)
    return np.matmul(weights, value.astype(np.float64))


def _triangle(rows: int, keys: int) -> np.ndarray:
    return np.tri(rows, keys, keys - rows, dtype=bool)


def _decompose(emit: Any, operands: Any, arguments: Any, outputs: Any) -> Any:
    """The same by operators of the specification."""
    query, key, value = (operands[name] for name in ("query", "key", "value"))
    mask, seen, kind = operands["mask"], operands["seen"], query.data_type
    *batch, rows, columns = range(len(key.shape))
    scores = emit.matmul(query, emit.transpose(key, permutation=(*batch, columns, rows)))
    if arguments["scale"] != 1:
        scores = emit.mul(scores, emit.constant(arguments["scale"], kind))
    if arguments["softcap"] > 0:
        cap = emit.constant(arguments["softcap"], kind)
        scores = emit.mul(emit.tanh(emit.div(scores, cap)), cap)
    if mask is not None:
        scores = emit.add(scores, mask)
    if seen is not None:
        scores = emit.where(seen, scores, emit.constant(arguments["unseen"], kind))
    if operands["length"] is not None:
        scores, value = _shortened(emit, scores, value, operands["length"], arguments["causal"])
    elif arguments["causal"]:
        triangle = emit.constant(_triangle(*scores.shape[-2:]), "uint8")
        scores = emit.where(triangle, scores, emit.constant(-math.inf, kind))
    return emit.matmul(emit.softmax(scores, len(scores.shape) - 1), value)


def _shortened(emit: Any, scores: Any, value: Any, length: Any, causal: bool) -> Any:
    """The scores with −∞ for keys that are not valid or not seen, and the values with 0 for them.
    """
    rows, keys = scores.shape[-2:]
    columns = emit.constant(np.arange(keys), "uint32")
    valid = emit.lesser(columns, emit.reshape(length, (1,)))
    zero = emit.constant(0, value.data_type)
    value = emit.where(emit.reshape(valid, (keys, 1)), value, zero)
    if causal:
        count = emit.constant(rows, "uint32")
        ahead = emit.sub(emit.max(emit.reshape(length, (1,)), count), count)
        last = emit.add(emit.constant(np.arange(rows).reshape(rows, 1), "uint32"), ahead)
        valid = emit.logical_and(valid, emit.lesser_or_equal(columns, last))
    return emit.where(valid, scores, emit.constant(-math.inf, scores.data_type)), value


attention.lowers_to(Attention(_decompose))
