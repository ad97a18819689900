"""``webnn_vk.onnx.export``: which objects can be exported, and to which targets."""

import io

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

import webnn_vk.onnx
from webnn_vk import InvalidStateError, MLGraphBuilder, NotSupportedError

WEIGHT = np.arange(1200, dtype=np.float32).reshape(4, 300) / 1000


def described(context):
    """A builder's outputs, not built yet."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [2, 4]})
    tensor = context.create_constant_tensor(
        {"data_type": "float32", "shape": [300]}, np.ones(300, np.float32)
    ).result()
    product = builder.matmul(x, builder.constant(WEIGHT))
    return builder, {"y": builder.relu(builder.add(product, builder.constant(tensor)))}


def weights(model):
    return {tuple(t.dims): onnx.numpy_helper.to_array(t) for t in model.graph.initializer}


@pytest.mark.parametrize("build", [False, True])
def test_a_model_with_its_weights(cpu_context, build):
    builder, outputs = described(cpu_context)
    model = webnn_vk.onnx.export(builder.build(outputs).result() if build else outputs)
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node] == ["MatMul", "Add", "Relu"]
    np.testing.assert_array_equal(weights(model)[4, 300], WEIGHT)
    np.testing.assert_array_equal(weights(model)[300,], np.ones(300))
    if not build:
        # The builder is unchanged.
        builder.build(outputs).result()


def test_to_a_path_and_to_a_file(cpu_context, tmp_path):
    _, outputs = described(cpu_context)
    assert webnn_vk.onnx.export(outputs, tmp_path / "m.onnx") is None
    file = io.BytesIO()
    webnn_vk.onnx.export(outputs, file)
    assert file.getvalue() == (tmp_path / "m.onnx").read_bytes()
    assert onnx.load(tmp_path / "m.onnx") == webnn_vk.onnx.export(outputs)


def test_weights_beside_the_model(cpu_context, tmp_path):
    _, outputs = described(cpu_context)
    webnn_vk.onnx.export(outputs, str(tmp_path / "m.onnx"), external_data=True)
    assert (tmp_path / "m.onnx").stat().st_size < WEIGHT.nbytes
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    np.testing.assert_array_equal(weights(onnx.load(tmp_path / "m.onnx"))[4, 300], WEIGHT)
    with pytest.raises(NotSupportedError, match="give a path"):
        webnn_vk.onnx.export(outputs, external_data=True)


def test_too_large_for_one_file(cpu_context, tmp_path, monkeypatch):
    monkeypatch.setattr("webnn_vk.onnx.exporting.MAX_EMBEDDED", 1000)
    _, outputs = described(cpu_context)
    webnn_vk.onnx.export(outputs, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").exists()


def test_opsets(cpu_context):
    _, outputs = described(cpu_context)
    for opset in (21, onnx.defs.onnx_opset_version()):
        model = webnn_vk.onnx.export(outputs, opset=opset)
        onnx.checker.check_model(model, full_check=True)
        assert model.opset_import[0].version == opset
    for wrong in (20, 1000, "21"):
        with pytest.raises(ValueError, match="is not one of 21"):
            webnn_vk.onnx.export(outputs, opset=wrong)


def test_back_again(cpu_context):
    _, outputs = described(cpu_context)
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    with webnn_vk.onnx.load(webnn_vk.onnx.export(outputs), cpu_context).result() as graph:
        got = cpu_context.compute(graph, {"x": x})["y"]
    np.testing.assert_array_equal(got, np.maximum(x @ WEIGHT + 1, 0))


def test_what_is_no_graph(cpu_context):
    builder, outputs = described(cpu_context)
    for wrong in (None, builder, {}, {"y": 1}):
        with pytest.raises(TypeError, match="expected"):
            webnn_vk.onnx.export(wrong)
    graph = builder.build(outputs).result()
    with pytest.raises(InvalidStateError, match="has built"):
        webnn_vk.onnx.export(outputs)
    graph.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        webnn_vk.onnx.export(graph)
