"""Graphs with named dimensions, saved and loaded again, behind "dynamic-shapes"."""

from __future__ import annotations

import json
import random
import shutil

import ml_dtypes
import numpy as np
import pytest

from tests.conformance.differential.graphs import assert_equal
from tests.conformance.differential.shaped import MAX, ShapedGraph
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.onnx_models import classifier
from webnn_vk import MLDynamicDimension, MLGraphBuilder, NotSupportedError, OperationError
from webnn_vk.onnx import Session

DRAFT = ["dynamic-shapes"]
DRAFTS = [*DRAFT, "low-precision", "subgraph"]
N, T = MLDynamicDimension("n", 6), MLDynamicDimension("a name", 9, 0)


@pytest.fixture(params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def device(request):
    if request.param == "vulkan":
        require_vulkan()
    return request.param


@pytest.fixture
def context(device, tmp_path):
    with open_context(device, cache=tmp_path, experimental=DRAFTS) as context:
        yield context


def described(*shape, data_type="float32"):
    return {"data_type": data_type, "shape": list(shape)}


def model(context, weights):
    """Constants of several kinds, an input that nothing reads, and computed sizes."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(N, T, 8))
    builder.input("idle", described(1))
    y = builder.matmul(x, builder.constant(weights), label="product")
    y = builder.add(y, builder.constant(np.arange(4, dtype=np.float32)))
    y = builder.mul(y, builder.constant("float32", 0.1))
    half = builder.constant(np.float32([0.5, -2, 3, 0]).astype(ml_dtypes.bfloat16))
    y = builder.add(y, builder.cast(half, "float32"))
    rows = builder.reshape(y, [N * T, 4])
    return {"y": builder.slice(rows, [0, 1], [N * T, 2]), "sum": builder.reduce_sum(y, axes=[1])}


def expected(x, weights):
    y = (x @ weights + np.arange(4)) * 0.1 + np.float32([0.5, -2, 3, 0])
    return {"y": y.reshape(-1, 4)[:, 1:3], "sum": y.sum(1)}


SHAPES = ((6, 9, 8), (1, 1, 8), (3, 4, 8), (2, 0, 8))


def check(context, graph, weights):
    for shape in SHAPES:
        x = np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float32)
        got = context.compute(graph, {"x": x})
        for name, wanted in expected(x, weights).items():
            assert got[name].shape == wanted.shape
            assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:build. no output depends on the inputs")
@pytest.mark.parametrize("tensor", [False, True])
def test_a_loaded_graph_has_its_dimensions(context, device, tmp_path, tensor):
    weights = np.random.default_rng(1).uniform(-1, 1, (8, 4)).astype(np.float32)
    given = weights
    if tensor:
        given = context.create_constant_tensor(described(8, 4), weights).result()
    builder_graph = model(context, given)
    builder = next(iter(builder_graph.values()))._builder
    graph = builder.build(builder_graph).result()
    context.save_graph("model", graph).result()
    graph.destroy()
    # Another context, with nothing but the files.
    with open_context(device, cache=tmp_path, experimental=DRAFTS) as other:
        loaded = other.load_graph("model").result()
        assert (loaded.inputs, loaded.outputs) == (graph.inputs, graph.outputs)
        assert loaded.inputs["x"].shape == (N, T, 8)
        assert loaded.inputs["x"].shape[1].min_size == 0
        assert loaded.compute_shapes({"x": (2, 3, 8)}) == {"y": (6, 2), "sum": (2, 4)}
        check(other, loaded, weights)
        with pytest.raises(TypeError, match="dimension 'n' is 7; 1 … 6 are accepted"):
            other.compute(loaded, {"x": np.ones((7, 1, 8), np.float32)})
        with pytest.raises(TypeError, match=r"no output depends on \['idle'\]"):
            other.compute(loaded, {"x": np.ones((2, 1, 8), np.float32), "idle": np.ones(1)})
        other.save_graph("copy", loaded).result()
        check(other, other.load_graph("copy").result(), weights)
        assert other.list_graphs().result() == ["copy", "model"]
        other.delete_graph("copy").result()
    for drafts, message in (([], "named dimensions.*'dynamic-shapes'"),
                            (DRAFT, "bfloat16.*'low-precision'")):
        with open_context(device, cache=tmp_path, experimental=drafts) as plain:
            with pytest.raises(TypeError, match=f"^load_graph: {message}"):
                plain.load_graph("model").result()


@pytest.mark.filterwarnings("ignore:.*no GLSL compiler")
def test_no_glsl_compiler_is_needed(context, device, tmp_path):
    if device == "cpu":
        return
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(N, 8))
    y = builder.tanh(builder.softmax(builder.mul(x, builder.sigmoid(x)), 1))
    graph = builder.build({"y": y}).result()
    x = np.random.default_rng(0).uniform(-1, 1, (3, 8)).astype(np.float32)
    wanted = context.compute(graph, {"x": x})["y"]
    context.save_graph("model", graph).result()
    shutil.move(tmp_path / "graphs", tmp_path / "empty" / "graphs")
    with open_context(
        device, cache=tmp_path / "empty", experimental=DRAFT, glslang="none"
    ) as other:
        loaded = other.load_graph("model").result()
        kernels = [(s.operators, s.device, s.kernel) for s in loaded.report().steps]
        assert kernels == [(s.operators, s.device, s.kernel) for s in graph.report().steps]
        assert {device for _, device, _ in kernels} == {"vulkan"}
        np.testing.assert_array_equal(other.compute(loaded, {"x": x})["y"], wanted)


def test_donated_inputs_stay_donated(context):
    builder = MLGraphBuilder(context)
    cache = builder.input("cache", described(8, 4))
    new = builder.input("new", described(N, 4))
    at = builder.input("at", described(N, 1, data_type="int32"))
    graph = builder.build({"after": builder.scatter_nd(cache, at, new)}, donate={"cache": "after"})
    context.save_graph("model", graph.result()).result()
    loaded = context.load_graph("model").result()
    kept = {**described(8, 4), "readable": True, "writable": True}
    tensor = context.create_tensor(kept).result()
    context.write_tensor(tensor, np.zeros((8, 4), np.float32))
    for size in (2, 3):
        given = {}
        for name, array in (("new", np.full((size, 4), size, np.float32)),
                            ("at", np.arange(size, dtype=np.int32)[:, None] + size)):
            spec = described(*array.shape, data_type=array.dtype.name)
            given[name] = context.create_tensor({**spec, "writable": True}).result()
            context.write_tensor(given[name], array)
        context.dispatch(loaded, {"cache": tensor, **given}, {"after": tensor})
    got = context.read_tensor(tensor).result().view(np.float32).reshape(8, 4)[:, 0]
    np.testing.assert_array_equal(got, [0, 0, 2, 3, 3, 3, 0, 0])


def test_conditions_of_an_importer_are_kept(context):
    proto = classifier(np.random.default_rng(0), ("n", 3, "h", "w"))
    session = Session(proto, context)
    image = np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    (wanted,) = session.run(None, {"image": image})
    graph = session.graph({"image": image})
    assert graph._shapes.shaped.trace.folds
    context.save_graph("model", graph).result()
    loaded = context.load_graph("model").result()
    assert loaded._shapes.shaped.trace.guards == graph._shapes.shaped.trace.guards
    (got,) = context.compute(loaded, {"image": image}).values()
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.filterwarnings("ignore:build. no output depends on the inputs")
def test_random_graphs(context):
    """Loaded graphs compute what the saved graphs computed."""
    compared, pick = 0, random.Random(7)
    for seed in range(3):
        graph = ShapedGraph(seed)
        dimensions = {name: MLDynamicDimension(name, size) for name, size in MAX.items()}
        shaped = graph.build(context, dimensions)
        context.save_graph("random", shaped).result()
        loaded = context.load_graph("random").result()
        assert (loaded.inputs, loaded.outputs) == (shaped.inputs, shaped.outputs)
        for _ in range(2):
            sizes = {name: pick.randint(1, most) for name, most in MAX.items()}
            given = graph.feeds(sizes, list(shaped.inputs))
            assert_equal(context.compute(loaded, given), context.compute(shaped, given), f"{seed}")
            compared += 1
    assert compared == 6


def damaged(text):
    """Changes to the JSON of a saved graph, that no graph is saved with."""
    atoms = text["atoms"]
    yield {"version": 1}, "version 1; 3 is what this reads"
    yield {"dimensions": [["n", 9, 2]]}, "9 … 2"
    yield {"atoms": [*atoms, ["__import__", 1, 2]]}, "no operation '__import__'"
    yield {"atoms": [*atoms, ["//", [[[99], 1]], 2]]}, "has other atoms than"
    yield {"atoms": [*atoms, ["dimension", "other", None]]}, "no dimension 'other'"
    yield {"atoms": [*atoms, atoms[0]]}, "is there twice"
    yield {"atoms": [*atoms, ["//", "n", 2]]}, "is no list"
    yield {"sizes": []}, "there is no size 0"
    yield {"examples": {"n": 77}}, "are outside of"
    graph = json.dumps(text["graph"])
    for before, after, message in (
        ('"tanh"', '"flatten"', "no operator is called flatten"),
        ('{"size": 0}', '{"size": 99}', "there is no size 99"),
        ('{"size": 0}', '{"size": "0"}', "'0' in the file is no int"),
        ('{"size": 0}', '{"float": "1"}', "is not an argument"),
        ('"float32"', '"float33"', "'float33' is not a data type"),
    ):
        assert before in graph
        yield {"graph": json.loads(graph.replace(before, after))}, message
    yield {"donated": {"x": "nothing"}}, "donates"
    yield {"modules": [[0, 10**9]]}, "bytes has no 0\\+1000000000|modules for"
    yield {"guards": [[[[[[0], 1]], 1, "2"]], []]}, "is no int"


def test_damaged_files_are_refused(tmp_path, monkeypatch):
    with open_context("cpu", cache=tmp_path, experimental=DRAFT) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", described(N))
        graph = builder.build({"y": builder.tanh(builder.reshape(x, [N, 1]))}).result()
        context.save_graph("model", graph).result()
        (path,) = (tmp_path / "graphs").glob("*/program.json")
        text = json.loads(path.read_text())
        monkeypatch.setattr(
            "webnn_vk.compiler.program.saved_graphs._digest", lambda path: "the same")
        context.save_graph("model", graph).result()
        (path,) = (tmp_path / "graphs").glob("*/program.json")
        context.load_graph("model").result()
        for change, message in damaged(text):
            path.write_text(json.dumps({**text, **change}))
            with pytest.raises(NotSupportedError, match=message):
                context.load_graph("model").result()


def test_a_graph_with_a_constant_tensor_that_is_gone_is_not_saved(context):
    tensor = context.create_constant_tensor(described(4), np.ones(4, np.float32)).result()
    builder = MLGraphBuilder(context)
    y = builder.add(builder.input("x", described(N, 4)), builder.constant(tensor))
    graph = builder.build({"y": y}).result()
    tensor.destroy()
    with pytest.raises((OperationError, TypeError, NotSupportedError), match="save_graph|destroy"):
        context.save_graph("model", graph).result()


def test_low_precision_without_named_dimensions(context, device, tmp_path):
    builder = MLGraphBuilder(context)
    x = builder.input("x", described(4, data_type="bfloat16"))
    weights = builder.constant(np.float32([1, 2, 3, 4]).astype(ml_dtypes.bfloat16))
    graph = builder.build({"y": builder.mul(x, weights)}).result()
    context.save_graph("low", graph).result()
    x = np.float32([1.5, -2, 0, 3]).astype(ml_dtypes.bfloat16)
    got = context.compute(context.load_graph("low").result(), {"x": x})["y"]
    np.testing.assert_array_equal(got.astype(np.float32), [1.5, -4, 0, 12])
    with open_context(device, cache=tmp_path) as plain:
        with pytest.raises(TypeError, match="load_graph: bfloat16.*'low-precision'"):
            plain.load_graph("low").result()
