"""Arguments that no method expects: foreign byte order, empty values, released buffers, huge
integers, arrays for booleans, objects that raise. A TypeError that names the call; methods that
return promises reject the promise only."""

import ctypes
from collections import UserList

import numpy as np
import pytest

import webnn_vk
from tests.fuzz.odd import Endless, LyingMapping, Numbers, Raises
from webnn_vk import MLGraphBuilder, MLTensorDescriptor
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.arguments import Operands
from webnn_vk.compiler.types.data_types import ALL_TYPES
from webnn_vk.gpu.queue import byte_view

HUGE = 10**5000
SWAPPED = [name for name in ALL_TYPES if np.dtype(name).itemsize > 1]


@pytest.fixture
def builder(cpu_context):
    return MLGraphBuilder(cpu_context)


def released() -> memoryview:
    view = memoryview(bytearray(16))
    view.release()
    return view


@pytest.mark.parametrize("name", SWAPPED)
def test_foreign_byte_order_is_refused_everywhere(cpu_context, builder, name):
    """One rule for all types: nothing is swapped, nothing is read as raw bits."""
    described = {"data_type": name, "shape": [4]}
    foreign = np.arange(4, dtype=np.dtype(name).newbyteorder(">"))
    read_write = MLTensorDescriptor(name, [4], readable=True, writable=True)
    tensor = cpu_context.create_tensor(read_write).result()
    x = builder.input("x", described)
    graph = builder.build({"y": builder.identity(x)}).result()
    other = MLGraphBuilder(cpu_context)
    calls = {
        "write_tensor": lambda: cpu_context.write_tensor(tensor, foreign),
        "read_tensor": lambda: cpu_context.read_tensor(tensor, foreign).result(),
        "create_constant_tensor": lambda: cpu_context.create_constant_tensor(
            described, foreign).result(),
        "import_constant_tensor": lambda: cpu_context.import_constant_tensor(
            described, foreign).result(),
        "compute": lambda: cpu_context.compute(graph, {"x": foreign}),
        "compute_async": lambda: cpu_context.compute_async(graph, {"x": foreign}).result(),
        "constant": lambda: other.constant(described, foreign),
        "constant:": lambda: other.constant(foreign),
        "write_buffer": lambda: byte_view(foreign, "write_buffer"),
    }
    for method, call in calls.items():
        with pytest.raises(TypeError, match=f"^{method}.*not in this machine's byte order"):
            call()
    assert not cpu_context.read_tensor(tensor).result().any()
    # Methods that copy values convert.
    copied = webnn_vk.from_dlpack(foreign, cpu_context)
    assert cpu_context.read_tensor(copied).result().tolist() == [0, 1, 2, 3]
    # The conversion that the message recommends works.
    cpu_context.write_tensor(tensor, foreign.astype(name))
    assert cpu_context.read_tensor(tensor).result().tolist() == [0, 1, 2, 3]


def test_foreign_byte_order_by_the_buffer_protocol(cpu_context):
    described = MLTensorDescriptor("int32", [2], writable=True)
    tensor = cpu_context.create_tensor(described).result()
    for odd in ((ctypes.c_int32.__ctype_be__ * 2)(1, 2), memoryview(np.zeros(2, ">i4"))):
        with pytest.raises(TypeError, match="write_tensor: elements are '>i4'.*byte order"):
            cpu_context.write_tensor(tensor, odd)
    # One byte has no order.
    byte = cpu_context.create_tensor(MLTensorDescriptor("int8", [2], writable=True)).result()
    cpu_context.write_tensor(byte, np.zeros(2, np.dtype("i1").newbyteorder(">")))


REQUIRED = [
    (name, p.name) for name, record in OPERATORS.items()
    for p in record.operands if not p.optional
]


@pytest.mark.parametrize(("name", "parameter"), REQUIRED)
def test_a_required_operand_is_named(builder, name, parameter):
    record = OPERATORS[name]
    x = builder.input("x", {"data_type": record.limit(parameter).types[0], "shape": [1]})
    for odd, kind in ((None, "NoneType"), (3, "int"), ("x", "str"), (np.zeros(1), "ndarray")):
        given = {}
        for p in record.parameters:
            if p.name == parameter:
                given[p.name] = [x, odd] if p.argument is Operands else odd
                where = f"{parameter}[1]" if p.argument is Operands else parameter
            elif p.is_operand and not p.optional:
                given[p.name] = x
            elif not p.optional:
                given[p.name] = 1
        with pytest.raises(TypeError) as caught:
            getattr(builder, name)(**given, label="the label")
        assert str(caught.value) == (
            f"{name} [the label]: {where}: an MLOperand is expected, not {kind}")


def test_no_sequence_of_operands_is_named(builder):
    for odd in (None, 3, builder.input("x", {"data_type": "int8", "shape": [1]}), iter([])):
        with pytest.raises(TypeError, match=r"concat \[l\]: inputs: a sequence of operands"):
            builder.concat(odd, 0, label="l")


def test_any_sequence_of_operands_is_accepted(builder):
    x = builder.input("x", {"data_type": "int8", "shape": [2]})
    array = np.empty(2, object)
    array[:] = x, x
    for operands in ([x, x], (x, x), UserList([x, x]), array):
        assert builder.concat(operands, 0).shape == (4,)


@pytest.mark.parametrize("odd", [
    released(), Raises(ValueError("odd")), Raises(OSError("odd")), [Raises(KeyError("odd"))],
    [HUGE], HUGE, [[1], [2, 3]], memoryview(b"abcdabcd")[::2], (ctypes.c_char_p * 2)(),
], ids=range(9))
def test_odd_buffers_reject_the_promise(cpu_context, builder, odd):
    described = MLTensorDescriptor("int32", [4], readable=True, writable=True)
    tensor = cpu_context.create_tensor(described).result()
    promises = {
        "create_constant_tensor": cpu_context.create_constant_tensor(described, odd),
        "import_constant_tensor": cpu_context.import_constant_tensor(described, odd),
        "read_tensor": cpu_context.read_tensor(tensor, odd),
    }
    for method, promise in promises.items():
        with pytest.raises(TypeError, match=method):
            promise.result()
    for method, call in (
        ("write_tensor", lambda: cpu_context.write_tensor(tensor, odd)),
        ("constant", lambda: builder.constant(described, odd)),
    ):
        with pytest.raises(TypeError, match=method):
            call()
    assert not cpu_context.read_tensor(tensor).result().any()


@pytest.mark.parametrize("descriptor", [
    {"data_type": "int8", "shape": [HUGE]},
    {"data_type": "int8", "shape": [-HUGE]},
    {"data_type": "int8", "shape": Endless()},
    {"data_type": "int8", "shape": [Raises(ValueError("odd"))]},
    {"data_type": "int8", "shape": Numbers([1])},
    {"data_type": HUGE, "shape": [1]},
    {"data_type": np.generic, "shape": [1]},
    {"data_type": "int8", "shape": [1], "readable": np.zeros(2)},
    {"data_type": "int8", "shape": [1], "writable": Raises(ValueError("odd"))},
    LyingMapping(["data_type", "shape"], {}),
    LyingMapping([], {}),
    Raises(ValueError("odd")),
    None,
], ids=range(13))
def test_odd_descriptors_reject_the_promise(cpu_context, builder, descriptor):
    for method in ("create_tensor", "create_exportable_tensor"):
        promise = getattr(cpu_context, method)(descriptor)
        with pytest.raises(TypeError, match=f"^{method}: "):
            promise.result()
    if not (isinstance(descriptor, dict) and {"readable", "writable"} & set(descriptor)):
        with pytest.raises(TypeError, match="^input: "):
            builder.input("x", descriptor)
        with pytest.raises(TypeError, match="^constant: "):
            builder.constant(descriptor, b"")


def test_arrays_are_no_booleans(builder):
    x = builder.input("x", {"data_type": "float32", "shape": [2, 2]})
    for odd in (np.zeros(2), np.ones((2, 2), bool)):
        with pytest.raises(TypeError, match=r"triangular \[l\]: upper: a bool is expected"):
            builder.triangular(x, upper=odd, label="l")
    # WebIDL's boolean is the truth value of any object that has one.
    assert builder.triangular(x, upper=np.array([True])).shape == (2, 2)
    assert builder.triangular(x, upper="").shape == (2, 2)


def test_huge_integers_are_named_by_their_length(builder):
    x = builder.input("x", {"data_type": "float32", "shape": [2, 2]})
    with pytest.raises(TypeError, match=r"softmax \[l\]: axis: an integer of 16610 bits is outsi"):
        builder.softmax(x, HUGE, label="l")
    with pytest.raises(TypeError, match=r"elu: alpha: .*16610 bits is too large for a double"):
        builder.elu(x, alpha=HUGE)
    with pytest.raises(TypeError, match=r"resample2d: mode: .*16610 bits is not one of"):
        builder.resample2d(x, mode=HUGE)


def test_odd_mappings_name_the_call(cpu_context, builder):
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    graph = builder.build({"y": builder.relu(x)}).result()
    other = MLGraphBuilder(cpu_context)
    for odd in (LyingMapping(["x"], {}), Raises(ValueError("odd")), None, [("x", 1)]):
        with pytest.raises(TypeError, match="^build: "):
            other.build(odd).result()
        with pytest.raises(TypeError, match="^compute: "):
            cpu_context.compute(graph, odd)
        with pytest.raises(TypeError, match="^compute_async: "):
            cpu_context.compute_async(graph, odd).result()
        for sides in ((odd, {}), ({}, odd)):
            with pytest.raises(TypeError, match="^dispatch: "):
                cpu_context.dispatch(graph, *sides)


def test_odd_options_of_contexts_reject_the_promise():
    for odd in (np.zeros(2), Raises(ValueError("odd")), HUGE, None):
        promise = webnn_vk.ml.create_context(power_preference=odd)
        with pytest.raises(TypeError, match="power_preference"):
            promise.result()
    with pytest.raises(TypeError, match="create_context: accelerated: a bool is expected"):
        webnn_vk.ml.create_context(accelerated=np.zeros(2)).result()
