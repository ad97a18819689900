"""Dimensions of size 0 (webnn#391), with "dynamic-shapes": every operator, and named dimensions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.contexts import open_context
from webnn_vk import MLDynamicDimension, MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS

F = "float32"
#: Operators without a result if something of no elements is read: a case each.
NO_RESULT = {
    "arg_max": lambda b, x: b.arg_max(x(F, 2, 0), 1),
    "arg_min": lambda b, x: b.arg_min(x(F, 2, 0), 1),
    "gather": lambda b, x: b.gather(x(F, 0, 3), x("int32", 2)),
    "gather_elements": lambda b, x: b.gather_elements(x(F, 0, 3), x("int32", 2, 3), axis=0),
    "gather_nd": lambda b, x: b.gather_nd(x(F, 0, 3), x("int32", 2, 1)),
    "max_pool2d": lambda b, x: b.max_pool2d(
        x(F, 1, 1, 0, 4), window_dimensions=[1, 1], padding=[1, 1, 0, 0]),
    "pad": lambda b, x: b.pad(x(F, 0), [1], [1], mode="edge"),
}
#: (operator, call, expected): results of nothing, and of nothing beside something.
CASES = [
    ("concat", lambda b, x: b.concat([x(F, 0, 2), x(F, 1, 2), x(F, 0, 2)], 0), [[0.5, 1.5]]),
    ("concat", lambda b, x: b.concat([x(F, 0, 2), x(F, 1, 2), x(F, 1, 2)], 0),
     [[0.5, 1.5], [0.5, 1.5]]),
    ("split", lambda b, x: b.split(x(F, 2), [0, 2])[1], [0.5, 1.5]),
    ("split", lambda b, x: b.split(x(F, 2), [2, 0])[1], np.zeros(0)),
    ("pad", lambda b, x: b.pad(x(F, 0), [1], [2], value=7), [7, 7, 7]),
    ("matmul", lambda b, x: b.matmul(x(F, 2, 0), x(F, 0, 3)), np.zeros((2, 3))),
    ("matmul", lambda b, x: b.matmul(x(F, 0, 2), x(F, 2, 3)), np.zeros((0, 3))),
    ("gemm", lambda b, x: b.gemm(x(F, 2, 0), x(F, 0, 2), c=x(F, 2), beta=2),
     [[1, 3], [1, 3]]),
    ("gemm", lambda b, x: b.gemm(x(F, 2, 0), x(F, 0, 2)), np.zeros((2, 2))),
    ("conv2d", lambda b, x: b.conv2d(x(F, 1, 0, 2, 2), x(F, 2, 0, 1, 1), bias=x(F, 2)),
     [[[[0.5, 0.5], [0.5, 0.5]], [[1.5, 1.5], [1.5, 1.5]]]]),
    ("conv2d", lambda b, x: b.conv2d(x(F, 0, 1, 2, 2), x(F, 2, 1, 1, 1)),
     np.zeros((0, 2, 2, 2))),
    ("scatter_elements", lambda b, x: b.scatter_elements(x(F, 2), x("int32", 0), x(F, 0)),
     [0.5, 1.5]),
    ("scatter_nd", lambda b, x: b.scatter_nd(x(F, 2), x("int32", 0, 1), x(F, 0)), [0.5, 1.5]),
    ("gather", lambda b, x: b.gather(x(F, 3, 2), x("int32", 0)), np.zeros((0, 2))),
    ("reduce_sum", lambda b, x: b.reduce_sum(x(F, 2, 0), axes=[1]), [0, 0]),
    ("reduce_l1", lambda b, x: b.reduce_l1(x(F, 2, 0), axes=[1]), [0, 0]),
    ("reduce_l2", lambda b, x: b.reduce_l2(x(F, 2, 0), axes=[1]), [0, 0]),
    ("reduce_sum_square", lambda b, x: b.reduce_sum_square(x(F, 2, 0), axes=[1]), [0, 0]),
    ("reduce_product", lambda b, x: b.reduce_product(x("int32", 2, 0), axes=[1]), [1, 1]),
    ("reduce_mean", lambda b, x: b.reduce_mean(x(F, 0)), np.nan),
    ("reduce_max", lambda b, x: b.reduce_max(x(F, 0)), -np.inf),
    ("reduce_max", lambda b, x: b.reduce_max(x("int32", 0)), -(2**31)),
    ("reduce_min", lambda b, x: b.reduce_min(x("int32", 0)), 2**31 - 1),
    ("reduce_min", lambda b, x: b.reduce_min(x(F, 0)), np.inf),
    ("reduce_log_sum", lambda b, x: b.reduce_log_sum(x(F, 0)), -np.inf),
    ("reduce_log_sum_exp", lambda b, x: b.reduce_log_sum_exp(x(F, 0)), -np.inf),
    ("add", lambda b, x: b.add(x(F, 0, 2), x(F, 2)), np.zeros((0, 2))),
    ("add", lambda b, x: b.add(x(F, 1), x(F, 0)), np.zeros(0)),
    ("where", lambda b, x: b.where(x("uint8", 0), x(F, 1), x(F, 1)), np.zeros(0)),
    ("slice", lambda b, x: b.slice(x(F, 3), [1], [0]), np.zeros(0)),
    ("tile", lambda b, x: b.tile(x(F, 3), [0]), np.zeros(0)),
    ("expand", lambda b, x: b.expand(x(F, 1), [0]), np.zeros(0)),
    ("reshape", lambda b, x: b.reshape(x(F, 0, 2), [3, 0]), np.zeros((3, 0))),
    ("resample2d", lambda b, x: b.resample2d(x(F, 0, 1, 2, 2), scales=[2, 2]),
     np.zeros((0, 1, 4, 4))),
    ("average_pool2d", lambda b, x: b.average_pool2d(x(F, 1, 0, 2, 2)), np.zeros((1, 0, 1, 1))),
    ("max_pool2d", lambda b, x: b.max_pool2d(x(F, 0, 1, 2, 2)), np.zeros((0, 1, 1, 1))),
    ("l2_pool2d", lambda b, x: b.l2_pool2d(x(F, 0, 1, 2, 2)), np.zeros((0, 1, 1, 1))),
    ("conv_transpose2d", lambda b, x: b.conv_transpose2d(x(F, 0, 1, 2, 2), x(F, 1, 2, 1, 1)),
     np.zeros((0, 2, 2, 2))),
    ("batch_normalization", lambda b, x: b.batch_normalization(x(F, 0, 2), x(F, 2), x(F, 2)),
     np.zeros((0, 2))),
    ("instance_normalization", lambda b, x: b.instance_normalization(x(F, 0, 1, 2, 2)),
     np.zeros((0, 1, 2, 2))),
    ("layer_normalization", lambda b, x: b.layer_normalization(x(F, 0, 2)), np.zeros((0, 2))),
    ("arg_max", lambda b, x: b.arg_max(x(F, 0, 2), 1), np.zeros(0, np.int32)),
    ("arg_min", lambda b, x: b.arg_min(x(F, 0, 2), 1), np.zeros(0, np.int32)),
    ("gather_elements", lambda b, x: b.gather_elements(x(F, 2), x("int32", 0)), np.zeros(0)),
    ("gather_nd", lambda b, x: b.gather_nd(x(F, 2), x("int32", 0, 1)), np.zeros(0)),
    ("prelu", lambda b, x: b.prelu(x(F, 0, 2), x(F, 2)), np.zeros((0, 2))),
    ("softmax", lambda b, x: b.softmax(x(F, 2, 0), 1), np.zeros((2, 0))),
    ("triangular", lambda b, x: b.triangular(x(F, 0, 2)), np.zeros((0, 2))),
    ("transpose", lambda b, x: b.transpose(x(F, 0, 2)), np.zeros((2, 0))),
    ("reverse", lambda b, x: b.reverse(x(F, 0, 2)), np.zeros((0, 2))),
    ("cast", lambda b, x: b.cast(x(F, 0), "int8"), np.zeros(0, np.int8)),
    ("clamp", lambda b, x: b.clamp(x(F, 0), min_value=0), np.zeros(0)),
    ("cumulative_sum", lambda b, x: b.cumulative_sum(x(F, 0, 2), 0), np.zeros((0, 2))),
    ("quantize_linear", lambda b, x: b.quantize_linear(x(F, 0), x(F, 1), x("int8", 1)),
     np.zeros(0, np.int8)),
    ("dequantize_linear", lambda b, x: b.dequantize_linear(x("int8", 0), x(F, 1), x("int8", 1)),
     np.zeros(0)),
    ("gru", lambda b, x: b.gru(x(F, 1, 0, 2), x(F, 1, 9, 2), x(F, 1, 9, 3), 1, 3)[0],
     np.zeros((1, 0, 3))),
    ("gru_cell", lambda b, x: b.gru_cell(x(F, 0, 2), x(F, 9, 2), x(F, 9, 3), x(F, 0, 3), 3),
     np.zeros((0, 3))),
    ("lstm", lambda b, x: b.lstm(x(F, 1, 0, 2), x(F, 1, 12, 2), x(F, 1, 12, 3), 1, 3)[0],
     np.zeros((1, 0, 3))),
    ("lstm_cell", lambda b, x: b.lstm_cell(
        x(F, 0, 2), x(F, 12, 2), x(F, 12, 3), x(F, 0, 3), x(F, 0, 3), 3)[0], np.zeros((0, 3))),
]


@pytest.fixture(params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def context(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    drafts = ["dynamic-shapes", "low-precision"]
    with open_context(device=request.param, experimental=drafts) as context:
        yield context


class Inputs:
    """Makes a builder's inputs: half numbers from 0.5 on, or integers from 0 on. ``floats`` is the
    type in the place of float32."""

    def __init__(self, builder, floats=F):
        self.builder, self.arrays, self.floats = builder, {}, floats

    def __call__(self, data_type, *shape):
        name = f"x{len(self.arrays)}"
        data = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        if data_type == F:
            data, data_type = data + 0.5, self.floats
        self.arrays[name] = data.astype(getattr(ml_dtypes, data_type, data_type))
        return self.builder.input(name, {"data_type": data_type, "shape": shape})


def element_wise():
    """The operators of one or two operands whose result has their shape."""
    for name, record in OPERATORS.items():
        needed = [p for p in record.parameters if not p.optional]
        operands = all(p.is_operand for p in needed) and len(needed) == len(record.operands) <= 2
        if operands and name not in {case for case, *_ in CASES}:
            yield name, len(needed)


def test_the_cases_cover_every_operator():
    known = {name for name, *_ in CASES} | {name for name, _ in element_wise()}
    assert known == set(OPERATORS)


@pytest.mark.parametrize("floats", [F, "bfloat16"])
def test_results_of_nothing(context, floats):
    for name, call, expected in CASES:
        builder = MLGraphBuilder(context)
        inputs = Inputs(builder, floats)
        graph = builder.build({"y": call(builder, inputs)}).result()
        got = context.compute(graph, inputs.arrays)["y"]
        expected = np.asarray(expected)
        assert got.shape == expected.shape == graph.outputs["y"].shape, name
        np.testing.assert_array_equal(got.astype(expected.dtype), expected, err_msg=name)


def test_results_of_nothing_in_four_bits(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "int4", "shape": [3, 0]})
    graph = builder.build({
        "least": builder.reduce_min(x, axes=[1]), "largest": builder.reduce_max(x, axes=[1]),
        "padded": builder.pad(x, [0, 1], [0, 0], value=-3),
    }).result()
    got = context.compute(graph, {"x": np.zeros((3, 0), ml_dtypes.int4)})
    numbers = {name: array.astype(int).tolist() for name, array in got.items()}
    assert numbers == {"least": [7] * 3, "largest": [-8] * 3, "padded": [[-3]] * 3}


def test_element_wise_operators_of_nothing(context):
    for name, count in element_wise():
        builder = MLGraphBuilder(context)
        inputs = Inputs(builder)
        record = OPERATORS[name]
        types = [record.limit(p.name).types[0] for p in record.operands[:count]]
        rank = 4 if name.endswith("pool2d") or name == "instance_normalization" else 2
        shape = (0, *[2] * (rank - 1))
        operands = [inputs(t, *shape) for t in types]
        graph = builder.build({"y": getattr(builder, name)(*operands)}).result()
        assert context.compute(graph, inputs.arrays)["y"].size in (0, 1), name


@pytest.mark.parametrize("name", NO_RESULT)
def test_without_a_result(cpu_context, name):
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        builder = MLGraphBuilder(context)
        with pytest.raises(TypeError, match=f"^{name}: .*no result without elements"):
            NO_RESULT[name](builder, Inputs(builder))


def test_without_the_name_a_dimension_has_elements(cpu_context):
    described = {"data_type": F, "shape": [0]}
    with pytest.raises(TypeError, match="dimension 0 is 0; a dimension is 1"):
        MLGraphBuilder(cpu_context).input("x", described)
    with pytest.raises(TypeError, match="dimension 0 is 0"):
        cpu_context.create_tensor(described).result()
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": F, "shape": [3]})
    with pytest.raises(TypeError, match=r"sizes\[0\] is 0"):
        builder.slice(x, [0], [0])


def test_a_named_dimension_without_elements(context):
    """A growing cache, empty at first."""
    past = MLDynamicDimension("past", 8, 0)
    builder = MLGraphBuilder(context)
    cache = builder.input("cache", {"data_type": F, "shape": [past, 2]})
    new = builder.input("new", {"data_type": F, "shape": [1, 2]})
    whole = builder.concat([cache, new], 0)
    total = builder.reduce_sum(whole, axes=[0])
    graph = builder.build({"whole": whole, "cache": builder.neg(cache), "total": total}).result()
    rows = np.zeros((0, 2), np.float32)
    for step in range(5):
        given = np.full((1, 2), step, np.float32)
        got = context.compute(graph, {"cache": rows, "new": given})
        np.testing.assert_array_equal(got["cache"], -rows)
        rows = np.concatenate([rows, given])
        np.testing.assert_array_equal(got["whole"], rows)
        np.testing.assert_array_equal(got["total"], rows.sum(axis=0))


def test_tensors_without_elements(context):
    described = {"data_type": F, "shape": [0, 3], "readable": True, "writable": True}
    x, y = (context.create_tensor(described).result() for _ in range(2))
    context.write_tensor(x, np.zeros((0, 3), np.float32))
    builder = MLGraphBuilder(context)
    x_operand = builder.input("x", {"data_type": F, "shape": [0, 3]})
    graph = builder.build({"y": builder.add(x_operand, x_operand)}).result()
    for _ in range(3):
        context.write_tensor(x, np.zeros((0, 3), np.float32))
        context.dispatch(graph, {"x": x}, {"y": y})
        assert context.read_tensor(y).result().shape == (0, 3)
    with x.to_numpy() as view:
        assert view.shape == (0, 3)


def test_a_donated_input_without_elements(context):
    n = MLDynamicDimension("n", 8, 0)
    builder = MLGraphBuilder(context)
    x, y = (builder.input(name, {"data_type": F, "shape": [n, 3]}) for name in "xy")
    graph = builder.build({"z": x + y, "w": y * 2}, donate={"x": "z"}).result()
    for rows in (0, 2, 0):
        described = {"data_type": F, "shape": [rows, 3], "readable": True, "writable": True}
        tensor, other, w = (context.create_tensor(described).result() for _ in range(3))
        ones = np.ones((rows, 3), np.float32)
        context.write_tensor(other, ones)
        np.testing.assert_array_equal(
            context.compute(graph, {"x": tensor, "y": ones})["w"], 2 * ones)
        context.dispatch(graph, {"x": tensor, "y": other}, {"z": tensor, "w": w})
        np.testing.assert_array_equal(context.read_tensor(tensor).result(), 2 * ones)


def test_nothing_is_updated_in_place(vulkan):
    with open_context(device="vulkan", experimental=["dynamic-shapes"]) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": F, "shape": [0, 3]})
        graph = builder.build({"y": builder.neg(x)}, donate={"x": "y"}, in_place=True).result()
        zero = np.zeros((0, 3), np.float32)
        assert context.compute(graph, {"x": zero})["y"].shape == (0, 3)


def test_an_output_without_elements_beside_others(context):
    builder = MLGraphBuilder(context)
    nothing = builder.input("nothing", {"data_type": F, "shape": [2, 0]})
    some = builder.input("some", {"data_type": F, "shape": [2]})
    graph = builder.build({"a": builder.relu(nothing), "b": builder.neg(some)}).result()
    for _ in range(2):
        got = context.compute(
            graph, {"nothing": np.zeros((2, 0), np.float32), "some": np.float32([1, 2])})
        assert got["a"].shape == (2, 0)
        np.testing.assert_array_equal(got["b"], [-1, -2])
