"""Models in float16 whose products use cooperative matrices. On a device without them, the kernels
run in their emulation; newer versions of lavapipe have them (test_newer_mesa.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.forced import pretended_gpu
from tests.support.matrices import with_denormals
from tests.support.reference_decoder import CONFIGS, logits, random_weights, write_folder
from tests.support.running import device_profile
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.compiler.kernels import coopmat
from webnn_vk.generate import Model

_TOKENS, _WIDTH, _HEADS = 64, 96, 3
_SIZE = _WIDTH // _HEADS


@pytest.fixture
def gpu(vulkan: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[MLContext]:
    with_denormals(monkeypatch)
    with open_context(limits=pretended_gpu(device_profile())) as context:
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
    assert_allclose(
        computed.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2.0**-6
    )


@pytest.mark.parametrize("zeros", ["one", "of blocks"])
@pytest.mark.parametrize("bits", [4, 8])
def test_layers_with_weights_in_blocks(
    gpu: MLContext, cpu_context: MLContext, bits: int, zeros: str
) -> None:
    """As `MatMulNBits` is imported: activations and scales in float16, here 32 elements a block. In
    the first layer K ends within a block."""
    rng = np.random.default_rng(bits)

    def layers(context: MLContext, given: list[tuple[np.ndarray, ...]]) -> Any:
        b = MLGraphBuilder(context)
        value = b.input("x", {"data_type": "float16", "shape": [_TOKENS, 120]})
        for integers, scale, zero, bias in given:
            weights = b.dequantize_linear(*map(b.constant, (integers, scale, zero)))
            inner = value.shape[1]
            weights = b.slice(weights, [0, 0], [len(integers), inner])
            product = b.matmul(value, b.transpose(weights, permutation=[1, 0]))
            value = b.gelu(b.add(product, b.constant(bias)))
        return b.build({"y": value}).result(120)

    given = []
    for outputs, inputs in ((96, 128), (120, 96)):
        zero = np.full((outputs, inputs // 32), 1 << (bits - 1))
        if zeros == "of blocks":
            zero = rng.integers(1 << (bits - 2), 3 << (bits - 2), zero.shape)
        scale = rng.uniform(0.5, 1, zero.shape) / (1 << (bits - 2)) / inputs**0.5
        given.append((
            rng.integers(0, 1 << bits, (outputs, inputs)).astype(np.uint8),
            scale.astype(np.float16), zero.astype(np.uint8),
            rng.uniform(-1, 1, outputs).astype(np.float16),
        ))
    x = rng.standard_normal((_TOKENS, 120)).astype(np.float16)
    graph = layers(gpu, given)
    kernels = [(step.kernel, step.operators) for step in graph.report().steps]
    assert [kernel for kernel, _ in kernels] == [coopmat.KERNEL] * 2, kernels
    assert all(names[0] == "block_matmul" and len(names) > 2 for _, names in kernels), kernels
    expected = _computed(layers(cpu_context, given), x, cpu_context)
    # Roundings of products, sums and activations of up to 4, each of the CPU's operators in turn.
    assert_allclose(
        _computed(graph, x, gpu).astype(np.float64), expected.astype(np.float64), rtol=0,
        atol=2.0**-7,
    )


def test_a_decoder(gpu: MLContext, tmp_path) -> None:
    config = CONFIGS["llama"]
    weights = random_weights(config, 7)
    write_folder(tmp_path, config, weights)
    model = Model.load(tmp_path, gpu, dtype="float16")
    ids = np.random.default_rng(8).integers(0, config["vocab_size"], 64).tolist()
    expected = logits(config, weights, ids)
    assert_allclose(
        model.logits(ids), expected, rtol=0, atol=2e-2 * np.abs(expected).max()
    )
    kernels = {step.kernel for step in model._engine.graph(64).report().steps}
    assert coopmat.KERNEL in kernels, kernels
