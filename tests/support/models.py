"""Graphs of whole models, captured from the builder without a device that could run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import webnn_vk
from bench.models import mobilenet_v2
from webnn_vk.compiler.ir import Graph
from webnn_vk.examples import sentence_encoder

#: all-MiniLM-L6-v2: the values of its config.json. Only shapes matter to the compiler.
MINILM = sentence_encoder.Config(
    hidden_size=384, heads=12, layers=6, intermediate_size=1536, vocabulary=30522, positions=512,
    token_types=2, epsilon=1e-12, activation="gelu",
)


def capture(context: Any, build: Callable[[], Any]) -> Graph:
    """The graph that ``build`` passes to ``context``, not compiled."""
    captured: list[Graph] = []
    with mock.patch(
        "webnn_vk.api.builder.build_graph", lambda state, take, *_: captured.append(take())
    ):
        build()
    (graph,) = captured
    return graph


def minilm(context: Any, batch: int = 4, length: int = 32) -> Graph:
    """The sentence encoder with zero weights in constant tensors."""
    shapes = dict(sentence_encoder._weight_shapes(MINILM))
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    model = sentence_encoder.Model(Path(), MINILM, zeros, tokenizer=None)
    weights = sentence_encoder.Weights(context, model)
    weights.upload()
    return capture(context, lambda: sentence_encoder.build_encoder(weights, batch, length))


def mobilenet(context: Any, shape: Any = mobilenet_v2.INPUT_SHAPE) -> Graph:
    return capture(context, lambda: mobilenet_v2.build(context, shape=shape))


def lstm_operands(builder: Any, seed: int = 3) -> dict[str, Any]:
    """A bidirectional LSTM over 5 steps of a batch of 2, with 24 hidden features."""
    random = np.random.default_rng(seed)
    steps, batch, width, hidden = 5, 2, 16, 24

    def weights(*shape: int) -> Any:
        return builder.constant(random.standard_normal(shape, np.float32) * np.float32(0.2))

    x = builder.input("x", {"data_type": "float32", "shape": [steps, batch, width]})
    last, cell, sequence = builder.lstm(
        x, weights(2, 4 * hidden, width), weights(2, 4 * hidden, hidden), steps, hidden,
        bias=weights(2, 4 * hidden), direction="both", return_sequence=True,
    )
    return {"last": last, "cell": cell, "sequence": builder.tanh(sequence)}


def lstm(context: Any) -> Graph:
    builder = webnn_vk.MLGraphBuilder(context)
    return capture(context, lambda: builder.build(lstm_operands(builder)))
