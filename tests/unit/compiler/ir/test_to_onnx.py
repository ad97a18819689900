"""Graphs as ONNX models: names, constants, and rules where ONNX's operators can express less than
ours."""

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of
from webnn_vk import NotSupportedError
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ir.onnx import fragment_of, model_of
from webnn_vk.compiler.ir.to_onnx import RULES
from webnn_vk.compiler.ops import OPERATORS


def exported(graph, **options):
    model = model_of(fragment_of(graph), **options)
    onnx.checker.check_model(model, full_check=True)
    return model


def in_onnx_runtime(model, **feeds):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def same(describe, *arrays, **arguments):
    """An operator's result in ONNX Runtime equals the reference's exactly."""
    emit = Emitter()
    inputs = [graph_input(f"x{i}", a.shape, a.dtype.name) for i, a in enumerate(arrays)]
    graph = graph_of(emit, {"y": getattr(emit, describe)(*inputs, **arguments)}, *inputs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    (got,) = in_onnx_runtime(exported(graph, opset=21), **feeds)
    np.testing.assert_array_equal(got, evaluate(graph, **feeds)["y"])


def test_every_operator_has_a_rule():
    # And loops, which only the compiler makes.
    assert set(RULES) == {*OPERATORS, "repeat"}


def test_names_are_kept_and_unique():
    """Inputs with names like those that the writer generates."""
    emit = Emitter()
    x, other = graph_input("t0", (3,)), graph_input("c0", (3,))
    y = emit.relu(emit.add(x, other))
    graph = graph_of(emit, {"t1": y, "again": y, "same": emit.identity(x)}, x, other)
    model = exported(graph)
    assert [i.name for i in model.graph.input] == ["t0", "c0"]
    assert [o.name for o in model.graph.output] == ["t1", "again", "same"]
    a, b = np.array([-2, 0, 2], np.float32), np.array([1, 1, 1], np.float32)
    t1, again, unchanged = in_onnx_runtime(model, t0=a, c0=b)
    assert t1.tolist() == again.tolist() == [0, 1, 3] and unchanged.tolist() == a.tolist()


def test_what_cant_be_said_is_listed_at_once():
    emit = Emitter()
    x = graph_input("x", (3,), "int32")
    y = emit.pow(x, x, label="cube")
    graph = graph_of(emit, {"y": emit.abs(y), "x": emit.pow(y, x)}, x)
    with pytest.raises(NotSupportedError) as caught:
        fragment_of(graph)
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["output 'x'", "pow [cube]", "pow"]
    assert "names are unique" in lines[0] and "wrap around" in lines[1]


def test_nothing_unused_is_written():
    emit = Emitter()
    x = graph_input("x", (3,))
    first, _ = emit.split(emit.concat([x, x], 0), [3, 3])
    emit.mul(first, emit.constant(np.arange(3, dtype=np.float32)))
    model = exported(graph_of(emit, {"y": first}, x))
    assert [n.op_type for n in model.graph.node] == ["Concat", "Split"]
    assert len(model.graph.initializer) == 1


def test_a_comparison_goes_on_as_bool():
    emit = Emitter()
    x = graph_input("x", (3,))
    y = emit.where(emit.logical_not(emit.greater(x, x)), x, x)
    model = exported(graph_of(emit, {"y": y}, x))
    assert [n.op_type for n in model.graph.node] == ["Greater", "Not", "Where"]


def test_constants_of_no_dimensions_stay_so():
    emit = Emitter()
    x = graph_input("x", (2,))
    model = exported(graph_of(emit, {"y": emit.mul(x, emit.constant(np.float32(2)))}, x))
    (constant,) = model.graph.initializer
    assert list(constant.dims) == []


@pytest.mark.parametrize("data_type", ["int32", "int64"])
def test_division_of_integers(data_type):
    least = np.iinfo(data_type).min
    a = np.array([7, -7, 7, -7, 5, least, least, 0], data_type)
    b = np.array([2, 2, -2, -2, 0, -1, 0, -1], data_type)
    same("div", a, b)


@pytest.mark.parametrize("data_type", ["float16", "float32", "int8", "int64"])
@pytest.mark.parametrize("bounds", [{"min_value": 0}, {"max_value": 0}, {}])
def test_clamps_with_one_bound(data_type, bounds):
    """ONNX's absent bound is the largest finite number, ours is infinity."""
    if data_type.startswith("float"):
        extremes = (-np.inf, np.inf, np.nan)
    else:
        extremes = (np.iinfo(data_type).min, np.iinfo(data_type).max)
    same("clamp", np.array([-1, 0, 1, *extremes], data_type), **bounds)


@pytest.mark.parametrize("operator", ["gather", "gather_elements"])
def test_indices_out_of_range(operator):
    x = np.arange(5, dtype=np.float32)
    for indices in (np.array([0, -1, -5, -6, 5, 2**40, -(2**40)]), np.array([2**32 - 1, 5, 4])):
        same(operator, x, indices.astype("int64"))
    same(operator, x, np.array([2**32 - 1, 5, 4], np.uint32))


def test_coordinates_out_of_range():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    same("gather_nd", x, np.array([[0, 0], [-4, 4], [9, -9], [2, -1]], np.int32))


POOLS = {
    "padding as large as the window": dict(
        window_dimensions=[2, 2], padding=[2, 2, 2, 2], strides=[2, 2]),
    "a window in the padding alone": dict(
        window_dimensions=[1, 1], padding=[1, 1, 1, 1], strides=[2, 2]),
    "rounded up": dict(window_dimensions=[2, 2], strides=[2, 2], output_shape_rounding="ceil"),
    "dilated": dict(window_dimensions=[2, 2], dilations=[2, 3], padding=[1, 0, 0, 1]),
    "less than the input": dict(window_dimensions=[2, 2], strides=[3, 4]),
}


@pytest.mark.parametrize("operator", ["average_pool2d", "max_pool2d", "l2_pool2d"])
@pytest.mark.parametrize("case", POOLS)
def test_pooling(operator, case):
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 5, 7)).astype(np.float32)
    emit = Emitter()
    v = graph_input("x", x.shape)
    graph = graph_of(emit, {"y": getattr(emit, operator)(v, **POOLS[case])}, v)
    (got,) = in_onnx_runtime(exported(graph), x=x)
    assert_allclose(got, evaluate(graph, x=x)["y"], rtol=1e-6)


@pytest.mark.parametrize("data_type", ["int32", "uint32", "int64", "uint64"])
def test_pooling_of_integers(data_type):
    limits = np.iinfo(data_type)
    x = np.random.default_rng(0).integers(limits.min, limits.max, (1, 1, 4, 4), data_type)
    same("max_pool2d", x, window_dimensions=[2, 2], padding=[1, 1, 0, 0])


def test_peepholes_see_the_cell_state_before():
    """ONNX's LSTM would pass the next state to the output gate."""
    rng = np.random.default_rng(0)
    shapes = ((2, 1, 3), (1, 8, 3), (1, 8, 2))
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    peephole = rng.standard_normal((1, 6)).astype(np.float32)
    emit = Emitter()
    inputs = [graph_input(f"x{i}", a.shape) for i, a in enumerate(arrays)]
    outputs = emit.lstm(*inputs, 2, 2, peephole_weight=emit.constant(peephole))
    graph = graph_of(emit, {"h": outputs[0], "c": outputs[1]}, *inputs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    got = in_onnx_runtime(exported(graph), **feeds)
    for array, expected in zip(got, evaluate(graph, **feeds).values(), strict=True):
        assert_allclose(array, expected, rtol=1e-5)


def test_blocks_of_a_scale():
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 127, (4, 6), np.int8)
    for shape in ((1, 1), (4, 1), (1, 6), (4, 3), (2, 3), (2, 6)):
        scale = rng.uniform(0.1, 1, shape).astype(np.float32)
        zero = rng.integers(-9, 9, shape, np.int8)
        same("dequantize_linear", x, scale, zero)


def test_without_the_package(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    emit = Emitter()
    x = graph_input("x", (3,))
    with pytest.raises(ImportError, match=r"pip install 'webnn_vk\[onnx\]'"):
        fragment_of(graph_of(emit, {"y": emit.abs(x)}, x))
