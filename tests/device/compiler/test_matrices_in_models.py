"""Models in float16 whose products use cooperative matrices. On a device without them, the kernels
run in their emulation; newer versions of lavapipe have them (test_newer_mesa.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.matrices import pretended_gpu_with_own
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.compiler.kernels import coopmat
from webnn_vk.generate import Model

_TOKENS, _WIDTH, _HEADS = 64, 96, 3
_SIZE = _WIDTH // _HEADS


@pytest.fixture
def gpu(vulkan: None) -> Iterator[MLContext]:
    with open_context(limits=pretended_gpu_with_own()) as context:
        yield context


def _encoder(context: MLContext, weights: dict[str, np.ndarray]) -> Any:
    """A layer of MiniLM: self-attention and two dense layers, each with a residual."""
    b = MLGraphBuilder(context)
    x = b.input("x", {"data_type": "float16", "shape": [_TOKENS, _WIDTH]})

    def dense(value: Any, name: str) -> Any:
        return b.gemm(value, b.constant(weights[name]), c=b.constant(weights[f"{name} bias"]))

    def heads(value: Any) -> Any:
        return b.transpose(b.reshape(value, [_TOKENS, _HEADS, _SIZE]), permutation=[1, 0, 2])

    def normal(value: Any) -> Any:
        return b.layer_normalization(value, axes=[1])

    query, key, value = (heads(dense(x, name)) for name in ("query", "key", "value"))
    scores = b.matmul(query, b.transpose(key, permutation=[0, 2, 1]))
    scale = b.constant(np.float16(_SIZE**-0.5))
    attended = b.matmul(b.softmax(b.mul(scores, scale), 2), value)
    joined = b.reshape(b.transpose(attended, permutation=[1, 0, 2]), [_TOKENS, _WIDTH])
    first = normal(b.add(x, dense(joined, "out")))
    second = normal(b.add(first, dense(b.gelu(dense(first, "up")), "down")))
    return b.build({"y": second}).result(120)


def _computed(graph: Any, x: np.ndarray, context: MLContext) -> np.ndarray:
    like = {"data_type": "float16", "shape": list(x.shape), "readable": True, "writable": True}
    source, target = (context.create_tensor(like).result(60) for _ in range(2))
    context.write_tensor(source, x)
    context.dispatch(graph, {"x": source}, {"y": target})
    return np.asarray(context.read_tensor(target).result(60))


def test_an_encoder(gpu: MLContext, cpu_context: MLContext) -> None:
    rng = np.random.default_rng(1)
    weights: dict[str, np.ndarray] = {}
    for name, (rows, columns) in {
        **dict.fromkeys(("query", "key", "value", "out"), (_WIDTH, _WIDTH)),
        "up": (_WIDTH, 4 * _WIDTH), "down": (4 * _WIDTH, _WIDTH),
    }.items():
        weights[name] = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float16)
        weights[f"{name} bias"] = rng.standard_normal(columns).astype(np.float16) / 8
    x = rng.standard_normal((_TOKENS, _WIDTH)).astype(np.float16)
    graph = _encoder(gpu, weights)
    by_matrices = [s for s in graph.report().steps if s.kernel == coopmat.KERNEL]
    assert len(by_matrices) >= 4, graph.report()
    expected = _computed(_encoder(cpu_context, weights), x, cpu_context)
    computed = _computed(graph, x, gpu)
    # Roundings of the layer norms' results, up to 4, and of what they are made of.
    np.testing.assert_allclose(
        computed.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2.0**-6
    )


def test_a_decoder(gpu: MLContext, tmp_path) -> None:
    config = CONFIGS["llama"]
    weights = random_weights(config, 7)
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, gpu, dtype="float16")
    ids = np.random.default_rng(8).integers(0, config["vocab_size"], 64).tolist()
    expected = logits(config, weights, ids)
    np.testing.assert_allclose(
        model.logits(ids), expected, rtol=0, atol=2e-2 * np.abs(expected).max()
    )
    kernels = {step.kernel for step in model._engine.graph(64).report().steps}
    assert coopmat.KERNEL in kernels, kernels
