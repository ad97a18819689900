"""A recurrent graph with random weights: a bidirectional LSTM, a GRU on its states, classes."""

from __future__ import annotations

from typing import Any

import numpy as np

import webnn_vk

STEPS, BATCH, INPUT, HIDDEN, CLASSES = 8, 4, 64, 128, 32
INPUT_SHAPE = (STEPS, BATCH, INPUT)


def build(context: Any, seed: int = 0) -> Any:
    """Promise of the graph: "sequence" float32 [8, 4, 64] → "classes" float32 [4, 32]."""
    random = np.random.default_rng(seed)
    b = webnn_vk.MLGraphBuilder(context)

    def weights(*shape: int) -> Any:
        scale = np.float32(1 / np.sqrt(shape[-1]))
        return b.constant(random.standard_normal(shape, np.float32) * scale)

    x = b.input("sequence", {"data_type": "float32", "shape": list(INPUT_SHAPE)})
    states = b.lstm(
        x, weights(2, 4 * HIDDEN, INPUT), weights(2, 4 * HIDDEN, HIDDEN), STEPS, HIDDEN,
        bias=weights(2, 4 * HIDDEN), recurrent_bias=weights(2, 4 * HIDDEN),
        return_sequence=True, direction="both", label="lstm",
    )[-1]
    # [steps, directions, batch, hidden] → [steps, batch, directions × hidden]
    states = b.transpose(states, permutation=[0, 2, 1, 3])
    states = b.reshape(states, [STEPS, BATCH, 2 * HIDDEN])
    last = b.gru(
        states, weights(1, 3 * HIDDEN, 2 * HIDDEN), weights(1, 3 * HIDDEN, HIDDEN), STEPS, HIDDEN,
        bias=weights(1, 3 * HIDDEN), recurrent_bias=weights(1, 3 * HIDDEN), label="gru",
    )[0]
    logits = b.gemm(
        b.reshape(last, [BATCH, HIDDEN]), weights(CLASSES, HIDDEN), c=weights(CLASSES),
        b_transpose=True, label="classes",
    )
    return b.build({"classes": b.softmax(logits, 1)})
