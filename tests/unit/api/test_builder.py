"""The builder's own rules; the operators' rules are tested with the operators."""

import contextlib
import inspect
import threading

import numpy as np
import pytest

from webnn_vk import InvalidStateError, MLGraphBuilder, MLOperand, Settings, ml
from webnn_vk.compiler.ops import OPERATORS

F22 = {"data_type": "float32", "shape": [2, 2]}


@pytest.fixture
def builder(cpu_context):
    return MLGraphBuilder(cpu_context)


def test_every_operator_is_a_method_with_signature_and_doc():
    assert len(OPERATORS) == 95
    for name, record in OPERATORS.items():
        method = getattr(MLGraphBuilder, name)
        parameters = list(inspect.signature(method).parameters)
        assert parameters[0] == "self" and parameters[-1] == "label"
        assert parameters[1:-1] == [p.name for p in record.parameters]
        assert record.section in method.__doc__ and record.doc, name


def test_operands_have_type_and_shape(builder):
    a = builder.input("a", F22)
    assert isinstance(a, MLOperand)
    assert (a.data_type, a.shape) == ("float32", (2, 2))
    with pytest.raises(AttributeError):
        a.shape = (1,)


def test_constants_in_all_forms(builder, cpu_context):
    as_bytes = builder.constant(F22, np.ones((2, 2), np.float32).tobytes())
    typed = builder.constant(F22, np.ones(4, np.float32))
    half = builder.constant({"data_type": "float16", "shape": [2]},
                            np.array([0x3C00, 0x4000], np.uint16))
    with pytest.warns(RuntimeWarning, match="constant: 300 is clamped to 127 as int8") as warned:
        number = builder.constant("int8", 300)
    assert warned[0].filename == __file__
    big = builder.constant("uint64", 2**64 - 1)
    given = builder.constant(np.array([[1, 2]], np.int64))
    outputs = dict(a=as_bytes, b=typed, c=half, d=number, e=big, f=given)
    graph = builder.build({k: builder.identity(v) for k, v in outputs.items()}).result()
    results = cpu_context.compute(graph, {})
    np.testing.assert_array_equal(results["a"], np.ones((2, 2)))
    np.testing.assert_array_equal(results["b"], np.ones((2, 2)))
    np.testing.assert_array_equal(results["c"], np.array([1, 2], np.float16))
    assert results["d"] == 127 and results["e"] == 2**64 - 1
    assert results["f"].dtype == np.int64 and results["f"].shape == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((F22, np.zeros(3, np.float32)), "12 bytes"),
        ((F22, np.zeros(4, np.float64)), "float64"),
        ((F22, "text"), "buffer protocol"),
        (("float64", 1), "not a data type"),
        (("float32", True), "not a bool"),
        (("float32", "1"), "a number is expected"),
        ((np.zeros(2, np.complex64),), "no operand has elements of complex64"),
        ((), "is expected, not"),
        ((1, 2, 3), "is expected, not"),
        (({"data_type": "float32", "shape": [0]}, b""), "dimension 0 is 0"),
    ],
)
def test_constant_errors(builder, arguments, message):
    with pytest.raises(TypeError, match=message):
        builder.constant(*arguments)


def test_constants_from_tensors(builder, cpu_context):
    def made(context, **flags):
        return context.create_tensor({**F22, **flags}).result()

    with pytest.raises(TypeError, match="is not a constant tensor"):
        builder.constant(made(cpu_context, readable=True))
    with ml.create_context(settings=Settings(device="cpu")).result() as other:
        foreign = other.create_constant_tensor(F22, np.ones(4, np.float32)).result()
        with pytest.raises(TypeError, match="belongs to another context"):
            builder.constant(foreign)


def test_input_errors(builder):
    for name, descriptor, message in (
        ("", F22, "name is empty"),
        (3, F22, "has to be a str"),
        ("a", {"data_type": "float32", "shape": [2**31]}, "dimension 0 is 2147483648"),
        ("a", {"data_type": "float32", "shape": [2**33]}, "outside 0"),
        ("a", {"data_type": "float32", "shape": [2**30, 4]}, "elements"),
        ("a", {"data_type": "float64", "shape": []}, "not a data type"),
    ):
        with pytest.raises(TypeError, match=message):
            builder.input(name, descriptor)


def test_one_name_for_two_inputs_of_a_graph(builder):
    a, b = builder.input("same", F22), builder.input("same", F22)
    with pytest.raises(TypeError, match="two inputs are called 'same'"):
        builder.build({"y": builder.add(a, b)}).result()
    assert list(builder.build({"y": builder.neg(b)}).result().inputs) == ["same"]


def test_operator_errors_name_operator_label_shapes_and_types(builder):
    a = builder.input("a", F22)
    b = builder.input("b", {"data_type": "float32", "shape": [3]})
    with pytest.raises(TypeError, match=r"add \[my add\]: .*\[2, 2\].*\[3\]"):
        builder.add(a, b, label="my add")
    with pytest.raises(TypeError, match=r"logical_not.*float32.*uint8"):
        builder.logical_not(a)
    with pytest.raises(TypeError, match=r"\[\\u202evil\]"):
        builder.add(a, b, label="\u202evil")
    with pytest.raises(TypeError, match=r"softmax: axis: 1.5|softmax: axis: an integer"):
        builder.softmax(a, 1.5)
    with pytest.raises(TypeError, match="softmax: axis: -1 is outside"):
        builder.softmax(a, -1)
    with pytest.raises(TypeError, match="conv2d.*'nwhc' is not one of nchw, nhwc"):
        builder.conv2d(a, b, input_layout="nwhc")
    with pytest.raises(TypeError, match="relu: got an unexpected keyword argument 'alpha'"):
        builder.relu(a, alpha=1)
    for wrong, right in (
        ("pads", "padding"), ("stride", "strides"), ("inputLayout", "input_layout")
    ):
        with pytest.raises(TypeError, match=rf"'{wrong}'; .*; did you mean {right}"):
            builder.conv2d(a, a, **{wrong: 1})
    with pytest.raises(TypeError, match=r"softmax: axis: -1 is outside.*axes count from 0: of "
                       r"<MLOperand input 'a': float32\[2, 2\]> that is 1"):
        builder.softmax(a, -1)
    with pytest.raises(TypeError, match=r"-3 is outside .* has the axes 0 … 1"):
        builder.reduce_sum(a, axes=[0, -3])
    with pytest.raises(TypeError, match="softmax: axis 5 is not below the rank; .* axis is 0 … 1"):
        builder.softmax(a, 5)
    with pytest.raises(TypeError, match="axes .5.: 5 is not below the rank 2; an axis is 0 … 1"):
        builder.reduce_sum(a, axes=[5])
    with pytest.raises(TypeError, match=r"new_shape\[1\]: -1 is outside .*WebNN infers no "
                       "dimension: here it would be 4"):
        builder.reshape(a, [1, -1])
    with pytest.raises(TypeError, match="WebNN infers no dimension$"):
        builder.reshape(a, [3, -1])
    assert repr(builder.neg(a, label="n")) == "<MLOperand neg [n]: float32[2, 2]>"
    second = builder.split(a, 2, label="s")[1]
    assert repr(second) == "<MLOperand split [s] output 1: float32[1, 2]>"
    with pytest.raises(TypeError, match=r"clamp \[c\]: too many.* input, min_value, max"):
        builder.clamp(a, {"min_value": 1}, label="c")
    with pytest.raises(TypeError, match="relu: missing a required argument"):
        builder.relu()
    with pytest.raises(TypeError, match="relu: input: an MLOperand is expected, not ndarray"):
        builder.relu(np.zeros(3))
    with pytest.raises(TypeError, match="concat: inputs: a sequence of operands"):
        builder.concat(a, 0)
    with pytest.raises(TypeError, match="the label has to be a str"):
        builder.relu(a, label=3)


def test_operands_of_another_builder(builder, cpu_context):
    other = MLGraphBuilder(cpu_context).input("a", F22)
    with pytest.raises(TypeError, match="belongs to another builder"):
        builder.relu(other)
    with pytest.raises(TypeError, match="belongs to another builder"):
        builder.concat([builder.input("b", F22), other], 0)


def test_outputs_too_large_for_the_device(builder, cpu_context):
    limit = cpu_context.op_support_limits()["max_tensor_byte_length"]
    a = builder.input("a", {"data_type": "float32", "shape": [limit // 8 + 1]})
    with pytest.raises(TypeError, match=r"tile \[big\]: the output.*max_tensor_byte_length"):
        builder.tile(a, [3], label="big")


def test_constants_by_names_of_no_form(builder):
    for args, named, message in (
        ((), {"data_type": "float32"}, "no form has 0 arguments before data_type"),
        ((np.ones(2, np.float32),), {"label": "x"}, "no form has 1 arguments before label"),
    ):
        with pytest.raises(TypeError, match=message):
            builder.constant(*args, **named)


def test_of_two_threads_that_build_one_is_refused(cpu_context, monkeypatch):
    """One of the two finds the graph built, in either order."""
    builder = MLGraphBuilder(cpu_context)
    outputs = {"y": builder.relu(builder.input("a", F22))}
    graph_of, inside = builder._graph, threading.Barrier(2)

    def slow(*given):
        made = graph_of(*given)
        with contextlib.suppress(threading.BrokenBarrierError):
            inside.wait(0.5)  # both threads reach this point, unless one keeps the other out
        return made

    monkeypatch.setattr(builder, "_graph", slow)
    promises = []
    threads = [
        threading.Thread(target=lambda: promises.append(builder.build(outputs))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    errors = [promise.exception(60) for promise in promises]
    assert sorted(type(error) for error in errors if error) == [InvalidStateError]


def test_build_errors(builder, cpu_context):
    a = builder.input("a", F22)
    y = builder.relu(a)
    foreign = MLGraphBuilder(cpu_context)
    for outputs, message in (
        ({}, "at least one output"),
        ({"": y}, "name is empty"),
        ({"y": a}, "pass it through identity"),
        ({"y": builder.constant("float32", 1)}, "pass it through identity"),
        ({"y": foreign.relu(foreign.input("a", F22))}, "another builder"),
        ({"y": 3}, "map names to operands"),
        ([y], "a mapping of outputs"),
    ):
        with pytest.raises(TypeError, match=message):
            builder.build(outputs).result()
    builder.build({"y": y}).result()
    for call in (lambda: builder.build({"y": y}).result(), lambda: builder.relu(a),
                 lambda: builder.input("b", F22), lambda: builder.constant("float32", 1)):
        with pytest.raises(InvalidStateError, match="has built its graph"):
            call()
