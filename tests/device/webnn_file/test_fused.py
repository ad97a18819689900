"""Built graphs with compiler operators, which passes introduced, are written without them."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import webnn_vk.onnx
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.forced import pretended_gpu
from tests.support.running import device_profile
from webnn_vk import MLGraphBuilder, webnn_file

FUSED = {"attention", "rms_normalization", "swish", "gelu_tanh"}
WIDTH, LENGTH, HEADS = 32, 7, 4


def transformer(context, data_type):
    """A layer with causal attention, both activations and normalisations by the root mean square,
    as exporters write them."""
    b, rng = MLGraphBuilder(context), np.random.default_rng(8)

    def number(value):
        return b.constant(data_type, value)

    def product(x, columns):
        weight = rng.standard_normal((WIDTH, columns)) / np.sqrt(WIDTH)
        return b.matmul(x, b.constant(weight.astype(data_type)))

    def normal(x):
        mean = b.reduce_mean(b.mul(x, x), axes=[1], keep_dimensions=True)
        return b.div(x, b.sqrt(b.add(mean, number(1e-3))))

    def heads(x):
        return b.transpose(b.reshape(x, [LENGTH, HEADS, WIDTH // HEADS]), permutation=[1, 0, 2])

    x = b.input("x", {"data_type": data_type, "shape": [LENGTH, WIDTH]})
    q, k, v = (heads(product(normal(x), WIDTH)) for _ in range(3))
    hidden = np.triu(np.full((LENGTH, LENGTH), -np.inf), 1).astype(data_type)
    scores = b.mul(b.matmul(q, b.transpose(k, permutation=[0, 2, 1])), number(0.35))
    weights = b.softmax(b.add(scores, b.constant(hidden)), 2)
    mixed = b.transpose(b.matmul(weights, v), permutation=[1, 0, 2])
    y = b.add(x, product(b.reshape(mixed, [LENGTH, WIDTH]), WIDTH))
    gate, up = (product(normal(y), WIDTH) for _ in range(2))
    gate = b.mul(gate, b.sigmoid(gate))
    cubic = b.mul(b.pow(up, number(3)), number(0.044715))
    tanh = b.tanh(b.mul(b.add(up, cubic), number(np.sqrt(2 / np.pi))))
    up = b.mul(b.mul(number(0.5), up), b.add(number(1), tanh))
    return b.build({"y": b.add(y, product(b.mul(gate, up), WIDTH))}).result()


@pytest.mark.parametrize(("data_type", "tolerance"), [("float32", 1e-4), ("float16", 2e-2)])
def test_a_transformer_built_on_a_gpu_computes_the_same_elsewhere(
    data_type, tolerance, vulkan_context, cpu_context, tmp_path
):
    rng = np.random.default_rng(9)
    feeds = {"x": rng.standard_normal((LENGTH, WIDTH)).astype(data_type)}
    path = tmp_path / "layer.webnn"
    with open_context(limits=pretended_gpu(device_profile())) as gpu:
        graph = transformer(gpu, data_type)
        made = {name for step in graph.report().steps for name in step.operators}
        assert made >= FUSED
        expected = gpu.compute(graph, feeds)["y"]
        webnn_file.save(graph, path)
        model = webnn_vk.onnx.export(graph)
    results = []
    for context in (vulkan_context, cpu_context):
        with webnn_file.load(path, context).result() as loaded:
            results.append(context.compute(loaded, feeds)["y"])
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    results += session.run(None, feeds)
    for got in results:
        assert got.dtype == expected.dtype
        assert_allclose(
            got.astype(np.float32), expected.astype(np.float32), rtol=tolerance, atol=tolerance
        )


def test_a_recurrent_network_computes_the_same_elsewhere(vulkan_context, cpu_context, tmp_path):
    """A recurrence becomes a loop, which is unrolled."""
    b, rng = MLGraphBuilder(vulkan_context), np.random.default_rng(10)
    x = b.input("x", {"data_type": "float32", "shape": [3, 2, 4]})
    weights = [
        b.constant(rng.standard_normal(shape).astype(np.float32))
        for shape in ((1, 20, 4), (1, 20, 5))
    ]
    graph = b.build({"h": b.lstm(x, *weights, 3, 5)[0]}).result()
    assert "lstm_recurrence" in {name for step in graph.report().steps for name in step.operators}
    path = tmp_path / "lstm.webnn"
    webnn_file.save(graph, path)
    feeds = {"x": rng.standard_normal((3, 2, 4)).astype(np.float32)}
    with webnn_file.load(path, cpu_context).result() as loaded:
        got = cpu_context.compute(loaded, feeds)["h"]
    expected = vulkan_context.compute(graph, feeds)["h"]
    assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
