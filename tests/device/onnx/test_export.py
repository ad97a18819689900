"""Graphs built on Vulkan as ONNX models: weights are read back and unpacked."""

import json

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import webnn_vk.onnx
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.loading import set_up
from tests.support.saving import save_program
from webnn_vk import MLGraphBuilder, OperationError, webnn_file
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.compiler.program import Constants
from webnn_vk.compiler.program.constants import HostArray
from webnn_vk.compiler.program.serial import TEXT, load


def rng():
    return np.random.default_rng(0)


def attention(context):
    """A convolution over NHWC and an attention, with weights that are packed, shared by two
    products, small, and in a constant tensor."""
    b, r = MLGraphBuilder(context), rng()

    def weight(*shape):
        return r.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[-2]))

    x = b.input("x", {"data_type": "float32", "shape": [1, 16, 16, 8]})
    filters = b.constant(weight(32, 3, 3, 8) / 3)
    h = b.conv2d(
        x, filters, input_layout="nhwc", filter_layout="ohwi", padding=[1, 1, 1, 1],
        strides=[2, 2],
    )
    h = b.reshape(b.relu(h), [64, 32])
    tensor = context.create_constant_tensor(
        {"data_type": "float32", "shape": [96]}, weight(1, 96)[0]
    ).result()
    q, k, v = b.split(b.add(b.matmul(h, b.constant(weight(32, 96))), b.constant(tensor)), 3, axis=1)
    scores = b.softmax(b.matmul(q, b.transpose(k)), 1)
    square = b.constant(weight(32, 32))
    y = b.matmul(b.matmul(scores, v), square)
    y = b.add(y, b.gemm(v, square, b_transpose=True))
    return b.build({"y": b.layer_normalization(y, axes=[1])}).result()


def outputs_of(model, feeds):
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def test_packed_weights_are_read_back(vulkan_context):
    graph = attention(vulkan_context)
    packings = [part.packing for part in graph._executable.program.setup]
    assert any(p.startswith("Panels") for p in packings)
    assert any(p.startswith("Permuted") for p in packings)
    x = rng().standard_normal((1, 16, 16, 8)).astype(np.float32)
    (got,) = outputs_of(webnn_vk.onnx.export(graph), {"x": x})
    expected = vulkan_context.compute(graph, {"x": x})["y"]
    assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_as_compiled(vulkan_context):
    """Operators decomposed for the device are exported decomposed."""
    b, r = MLGraphBuilder(vulkan_context), rng()
    x = b.input("x", {"data_type": "float32", "shape": [3, 2, 4]})
    weights = [b.constant(r.standard_normal(s).astype(np.float32))
               for s in ((1, 15, 4), (1, 15, 5))]
    described = {"h": b.gru(x, *weights, 3, 5)[0]}
    whole = webnn_vk.onnx.export(described)
    graph = b.build(described).result()
    apart = webnn_vk.onnx.export(graph)
    assert [n.op_type for n in whole.graph.node] == ["GRU"]
    assert "GRU" not in {n.op_type for n in apart.graph.node}
    feeds = {"x": r.standard_normal((3, 2, 4)).astype(np.float32)}
    for model in (whole, apart):
        (got,) = outputs_of(model, feeds)
        expected = vulkan_context.compute(graph, feeds)["h"]
        assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_cpu_steps_on_the_engine(vulkan):
    """The CPU steps of a mixed graph run on ONNX Runtime, and its constants are exported too."""
    results = {}
    x = rng().standard_normal((4, 64)).astype(np.float32)
    for engine in ("numpy", "onnxruntime"):
        with open_context(force_cpu=("softmax", "matmul"), cpu_engine=engine) as context:
            b = MLGraphBuilder(context)
            v = b.input("x", {"data_type": "float32", "shape": [4, 64]})
            weight = b.constant(rng().standard_normal((64, 64)).astype(np.float32))
            y = b.exp(b.softmax(b.matmul(b.tanh(v), weight), 1))
            graph = b.build({"y": y}).result()
            results[engine] = context.compute(graph, {"x": x})["y"]
            kernels = {x.operators[0]: x.kernel for x in graph.report().lines if x.device == "cpu"}
            assert kernels == {"matmul": engine, "softmax": engine}
            (got,) = outputs_of(webnn_vk.onnx.export(graph), {"x": x})
            assert_allclose(got, results[engine], rtol=1e-4)
    assert_allclose(results["numpy"], results["onnxruntime"], rtol=1e-5)


def test_a_cpu_step_that_onnx_runtime_refuses_in_a_run(vulkan):
    """NumPy takes it, in that run too, and also after the weights were released."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (2, 4, 5, 8)).astype(np.float32)
    weights = rng.uniform(1, 2, (32, 2, 5, 2)).astype(np.float32)

    def outputs(builder):
        operand = builder.input("x", {"data_type": "float32", "shape": x.shape})
        turned = builder.transpose(builder.cos(operand), permutation=[0, 2, 3, 1])
        small = builder.resample2d(turned, mode="linear", sizes=[2, 1])
        shifted = builder.cos(builder.mul(
            builder.softmax(builder.transpose(small), 1), builder.constant(weights)))
        return {"y": builder.neg(shifted)}

    names = ("cos", "transpose", "resample2d", "softmax", "mul")
    made = []
    for engine in ("numpy", "onnxruntime"):
        with open_context(force_cpu=names, cpu_engine=engine) as context:
            builder = MLGraphBuilder(context)
            graph = builder.build(outputs(builder)).result()
            made += [context.compute(graph, {"x": x})["y"] for _ in range(2)]
            kernels = {s.operators[0]: s.kernel for s in graph.report().steps}
    assert kernels["neg"] not in ("numpy", "onnxruntime")
    assert kernels["resample2d"] == "numpy" and kernels["softmax"] == "onnxruntime"
    for array in made[1:]:
        assert_allclose(array, made[0], rtol=1e-5)


def test_views_between_cpu_steps(vulkan):
    """A reshape on the device is not a step: CPU steps see one slot in two shapes."""
    x = rng().standard_normal((4, 6)).astype(np.float32)
    with open_context(force_cpu=("softmax", "cos"), cpu_engine="onnxruntime") as context:
        b = MLGraphBuilder(context)
        v = b.input("x", {"data_type": "float32", "shape": [4, 6]})
        made = b.softmax(b.reshape(b.cos(v), [2, 12]), 1)
        other = b.cos(b.reshape(v, [24]))
        graph = b.build({"y": made, "z": other}).result()
        assert {line.kernel for line in graph.report().lines if line.device == "cpu"} >= {
            "onnxruntime"
        }
        got = context.compute(graph, {"x": x})
    e = np.exp(np.cos(x).reshape(2, 12))
    assert_allclose(got["y"], e / e.sum(1, keepdims=True), rtol=1e-5)
    assert_allclose(got["z"], np.cos(x.reshape(24)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("vulkan", marks=pytest.mark.device)]
)
@pytest.mark.parametrize("force_cpu", [[], ["add", "softmax"]], ids=["", "mixed"])
def test_saved_graphs_are_exported_as_before(device, force_cpu, tmp_path):
    """Through a file, twice, nothing is lost: operators, names, labels and weights, packed or not.
    ``.webnn`` files have no fused attention, which GPUs make.
    """
    if device == "vulkan":
        require_vulkan()
    options = {"force_cpu": force_cpu, "skip_passes": ("fuse_attention",)}
    with open_context(device, cache=tmp_path, **options) as context:
        graph = attention(context)
        expected = webnn_vk.onnx.export(graph)
        webnn_file.save(graph, tmp_path / "before.webnn")
        for key in ("first", "second"):
            context.save_graph(key, graph).result()
            graph.destroy()
            graph = context.load_graph(key).result()
            assert webnn_vk.onnx.export(graph) == expected
        webnn_file.save(graph, tmp_path / "after.webnn")
    after = (tmp_path / "after.webnn").read_text()
    assert after.replace("after", "before") == (tmp_path / "before.webnn").read_text()
    weights = [(tmp_path / f"{name}.safetensors").read_bytes() for name in ("before", "after")]
    assert weights[0] == weights[1]


def test_a_saved_graph_whose_text_is_none(cpu_context, tmp_path):
    """The compiled program still runs; the graph that it was compiled from is unknown."""
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    graph = builder.build({"y": builder.add(x, builder.constant(np.float32([1, 2])))}).result()
    program = executable_of(graph).program
    save_program(program, Constants([HostArray(np.float32([1, 2]))]), tmp_path)
    text = json.loads((tmp_path / TEXT).read_text())
    for change, message in (
        (lambda t: t.replace('"add"', '"plus"'), "no operator is called plus"),
        (lambda t: t.replace('{"y"', '{"z"'), "other inputs or outputs"),
        (lambda t: t.replace('0, ""]', '1, ""]'), "1 constants, not"),
        (lambda t: t.replace('"float32"', '"float33"'), "'float33' is not a data type"),
        (lambda t: t[:-1], "Expecting"),
    ):
        changed = {**text["compiled"], "graph": change(text["compiled"]["graph"])}
        assert changed != text["compiled"]
        (tmp_path / TEXT).write_text(json.dumps({**text, "compiled": changed}))
        stored = load(tmp_path)
        other = set_up(cpu_context, stored.program, stored.constants)
        got = cpu_context.compute(other, {"x": np.float32([3, 4])})["y"]
        np.testing.assert_array_equal(got, [4, 6])
        with pytest.raises(OperationError, match=f"export: the graph's text can't .*{message}"):
            webnn_vk.onnx.export(other)
