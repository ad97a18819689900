"""Exports of graphs with named dimensions: ONNX models with ``dim_param``, ``.webnn`` files with
``dyn``, and what these formats can't express."""

from __future__ import annotations

import json
import random

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.conformance.differential.shaped import MAX, ShapedGraph
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLDynamicDimension, MLGraphBuilder, NotSupportedError, webnn_file
from webnn_vk.onnx import Session, export

DRAFT = ["dynamic-shapes"]
N, T = MLDynamicDimension("n", 6), MLDynamicDimension("tokens", 40)


@pytest.fixture(params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def context(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=request.param, experimental=DRAFT) as context:
        yield context


def described(*shape, data_type="float32"):
    return {"data_type": data_type, "shape": list(shape)}


def onnx_runtime(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda feeds: dict(zip(
        names, session.run(None, {k: np.asarray(x) for k, x in feeds.items()}), strict=True
    ))


def heads(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(N, T, 8))
    index = builder.input("index", described(data_type="int32"))
    weights = builder.constant(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8))
    y = builder.reshape(builder.matmul(x, weights), [N, T, 2, 4])
    y = builder.softmax(builder.transpose(y, permutation=[0, 2, 1, 3]), 2)
    both = builder.concat([y, y], axis=2)
    chosen = builder.gather(y, index, axis=2)
    half = builder.slice(x, [0, T // 2, 0], [N, T - T // 2, 8])
    outputs = {"both": both, "chosen": chosen, "half": half}
    return outputs, builder.build(outputs)


def feeds(n, t):
    x = np.random.default_rng((n, t)).uniform(-1, 1, (n, t, 8)).astype(np.float32)
    return {"x": x, "index": np.int32(t)}  # out of range: it is clamped


def test_a_model_has_the_names_and_their_bounds(context):
    graph = heads(context)[1].result()
    proto = export(graph)
    onnx.checker.check_model(proto, full_check=True)
    shapes = {
        port.name: [d.dim_param or d.dim_value for d in port.type.tensor_type.shape.dim]
        for port in (*proto.graph.input, *proto.graph.output)
    }
    assert shapes["x"] == ["n", "tokens", 8] and shapes["index"] == []
    assert shapes["both"] == ["n", 2, "2*tokens", 4]
    props = {p.key: p.value for p in proto.metadata_props}
    assert json.loads(props["webnn_vk.dimensions"]) == {"n": [1, 6], "tokens": [1, 40]}
    run = onnx_runtime(proto)
    for n, t in ((6, 40), (1, 1), (3, 7), (2, 12)):
        given = feeds(n, t)
        wanted, got = context.compute(graph, given), run(given)
        assert got.keys() == wanted.keys()
        for name, array in wanted.items():
            assert got[name].shape == array.shape
            assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


def test_a_session_reads_the_model_back(context, tmp_path):
    graph = heads(context)[1].result()
    export(graph, tmp_path / "model.onnx")
    session = Session(tmp_path / "model.onnx", context)
    for n, t in ((2, 5), (6, 40), (1, 1)):
        wanted = context.compute(graph, feeds(n, t))
        got = session.run(list(wanted), feeds(n, t))
        for a, b in zip(got, wanted.values(), strict=True):
            assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    made = session.graph(feeds(2, 5))
    assert made is session.graph(feeds(6, 40)), made.report().notes
    assert made.inputs["x"].shape == (N, T, 8)


def test_operands_are_exported_before_they_are_built(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(N, 3))
    y = builder.reshape(x, [N * 3])
    run = onnx_runtime(export({"y": y}))
    np.testing.assert_array_equal(run({"x": np.eye(3, dtype=np.float32)})["y"], np.eye(3).ravel())
    graph = builder.build({"y": y}).result()
    assert context.compute(graph, {"x": np.ones((2, 3), np.float32)})["y"].shape == (6,)


@pytest.mark.filterwarnings("ignore:build. no output depends on the inputs")
def test_random_graphs(cpu_context):
    pick, compared, refused = random.Random(5), 0, 0
    with open_context(device="cpu", experimental=DRAFT) as context:
        for seed in range(20):
            graph = ShapedGraph(seed)
            dimensions = {name: MLDynamicDimension(name, size) for name, size in MAX.items()}
            shaped = graph.build(context, dimensions)
            try:
                run = onnx_runtime(export(shaped))
            except NotSupportedError as error:
                assert "its form in ONNX depends on the size" in str(error)
                refused += 1
                continue
            for _ in range(3):
                sizes = {n: pick.choice((1, pick.randint(1, m), m)) for n, m in MAX.items()}
                given = graph.feeds(sizes, list(shaped.inputs))
                wanted, got = context.compute(shaped, given), run(given)
                for name, array in wanted.items():
                    assert got[name].shape == array.shape, (seed, sizes, name)
                    assert_allclose(
                        got[name], array, rtol=2e-4, atol=1e-5, err_msg=f"{seed} {sizes} {name}")
                    compared += 1
    assert compared > 200 and refused < 5


def test_what_onnx_writes_with_numbers_is_refused(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(1, 2, T, 8))
    pooled = builder.average_pool2d(x, window_dimensions=[3, 3], padding=[1, 1, 1, 1])
    graph = builder.build({"y": pooled}).result()
    with pytest.raises(NotSupportedError, match=r"average_pool2d: its form in ONNX .* tokens"):
        export(graph)


def test_a_webnn_file_has_the_names(context, tmp_path):
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(N, 4))
    weights = builder.constant(np.arange(8, dtype=np.float32).reshape(4, 2))
    y = builder.tanh(builder.matmul(x, weights))
    graph = builder.build({"y": y}).result()
    path = tmp_path / "graph.webnn"
    webnn_file.save(graph, path)
    assert 'x: f32[dyn("n", 6), 4];' in path.read_text()
    loaded = webnn_file.load(path, context).result()
    assert loaded.inputs["x"].shape == (N, 4)
    fixed = webnn_file.load(path, context, dimensions={"n": 3}).result()
    assert fixed.inputs["x"].shape == (3, 4)
    for rows, which in ((1, loaded), (6, loaded), (3, loaded), (3, fixed)):
        x = np.random.default_rng(rows).uniform(-1, 1, (rows, 4)).astype(np.float32)
        got = context.compute(which, {"x": x})["y"]
        assert_allclose(
            got, np.tanh(x @ np.arange(8).reshape(4, 2)), rtol=1e-5, atol=1e-6)
    with open_context(device="cpu") as plain:
        with pytest.raises(webnn_file.GraphFileError, match="dimension 'n' is dynamic"):
            webnn_file.load(path, plain).result()


def test_what_a_webnn_file_has_not_is_refused(context, tmp_path):
    graph = heads(context)[1].result()
    with pytest.raises(NotSupportedError, match=r"save: reshape takes the size n"):
        webnn_file.save(graph, tmp_path / "graph.webnn")
    builder = MLGraphBuilder(context)
    a = builder.input("a", described(N))
    b = builder.input("b", described(N + N))
    made = {"y": builder.add(builder.concat([a, a], 0), b)}
    with pytest.raises(NotSupportedError, match=r"no computed dimensions, as 2\*n"):
        webnn_file.save(made, tmp_path / "graph.webnn")
    for least in (0, 3):
        builder = MLGraphBuilder(context)
        x = builder.input("x", described(MLDynamicDimension("rows", 6, least), 4))
        message = f"save: dimension 'rows' has {least} elements at least; the format has only"
        with pytest.raises(NotSupportedError, match=message):
            webnn_file.save({"y": builder.tanh(x)}, tmp_path / "graph.webnn")
    assert not list(tmp_path.iterdir())
