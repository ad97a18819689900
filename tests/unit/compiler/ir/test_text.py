"""The printed form of graphs: complete, in one line per input, constant, node and output."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import constant_arrays, graph_input, graph_of, random_elements
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.ir.literals import constant_text, digest
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

PRINTED = """\
input %x: float32[1, 8, 8, 3]
constant %c0: float32[4, 3, 3, 3] = data(4008599b711382e0)
constant %c1: float32[4] = tensor(0)
%0: float32[1, 6, 6, 4] = conv2d [stem](input=%x, filter=%c0, bias=%c1, \
padding=(0, 0, 0, 0), strides=(1, 1), dilations=(1, 1), groups=1, input_layout="nhwc", \
filter_layout="oihw") on vulkan from "conv2d [stem]", "pad"
%1.0: float32[1, 1, 6, 4], %1.1: float32[1, 5, 6, 4] = split(input=%0, splits=(1, 5), axis=1)
%2: float32[1, 12, 6, 4] = concat(inputs=[%0, %1.1, %1.0], axis=1) \
on cpu because "it's \\"slow\\""
%3: float32[1, 12, 6, 4] = relu(input=%2)
output z = %3
output "the parts" = %1.1"""


def test_a_model_of_every_form():
    emit = Emitter()
    x = graph_input("x", (1, 8, 8, 3))
    w = emit.constant(random_elements(MLOperandDescriptor("float32", (4, 3, 3, 3)), "7"))
    bias = Value(MLOperandDescriptor("float32", (4,)), source=object())
    y = emit.conv2d(x, w, input_layout="nhwc", bias=bias, label="stem")
    p, q = emit.split(y, (1, 5), axis=1)
    z = emit.relu(emit.concat([y, q, p], axis=1))
    graph = graph_of(emit, {"z": z, "the parts": q}, x)
    conv, split, concat, relu = graph.nodes
    conv = replace(conv, device="vulkan", origins=("conv2d [stem]", "pad"))
    concat = replace(concat, device="cpu", reason='it\'s "slow"')
    assert str(replace(graph, nodes=(conv, split, concat, relu))) == PRINTED


@given(st.text(), st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_names_and_labels_of_any_characters(label, device, reason, origins):
    """Each node stays in its line, and graphs that differ have different texts."""
    emit, x = Emitter(), graph_input("x", (2,))
    graph = graph_of(emit, {"y": emit.neg(x, label=label)}, x)
    (node,) = graph.nodes
    node = replace(node, device=device, reason=reason, origins=tuple(origins))
    text = str(replace(graph, nodes=(node,)))
    assert len(text.splitlines()) == 3 and text.replace("\n", "").isprintable()
    for name in ("label", "device", "reason"):
        other = replace(node, **{name: getattr(node, name) + "'"})
        assert str(replace(graph, nodes=(other,))) != text
    other = replace(node, origins=(*node.origins, "more"))
    assert str(replace(graph, nodes=(other,))) != text


def test_inputs_named_like_other_values_are_quoted():
    emit = Emitter()
    values = [graph_input(name, (2,)) for name in ("0", "c0", "1.0", "input", "a b", 'q"\n')]
    y = emit.constant(np.ones(2, np.float32))
    for value in values:
        y = emit.add(y, value)
    text = str(graph_of(emit, {"0": y, "output": y}, *values))
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("input")] == [
        'input %"0"', 'input %"c0"', 'input %"1.0"', "input %input", 'input %"a b"',
        'input %"q\\"\\n"',
    ]
    assert text.splitlines()[-2:] == ['output "0" = %5', "output output = %5"]


@pytest.mark.parametrize(("elements", "expected"), [
    ([0.5, 0.5, 0.5], "0.5"),
    ([1, -2.5e-3, np.inf], "[1.0, -0.0025, inf]"),
    ([-np.inf, np.nan, -0.0], "[-inf, nan, -0.0]"),
    ([0.0, -0.0, 0.0], "[0.0, -0.0, 0.0]"),
])
def test_elements(elements, expected):
    array = np.array(elements, np.float32)
    assert constant_text(MLOperandDescriptor("float32", (3,)), array) == expected


@given(array=constant_arrays(), data=st.data())
def test_constants_of_other_bits_have_another_text(array, data):
    descriptor = MLOperandDescriptor(array.dtype, array.shape)
    flat = bytearray(array.tobytes())
    flat[data.draw(st.integers(0, len(flat) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    other = np.frombuffer(bytes(flat), array.dtype).reshape(array.shape)
    assert constant_text(descriptor, array) != constant_text(descriptor, other)
    assert digest(descriptor, array) != digest(descriptor, other)


def test_two_constants_of_one_tensor_stay_so():
    emit, tensor = Emitter(), object()
    descriptor = MLOperandDescriptor("float32", (2,))
    first, second = (Value(descriptor, source=tensor) for _ in range(2))
    other = Value(descriptor, source=object())
    text = str(graph_of(emit, {"y": emit.where(emit.equal(first, second), second, other)}))
    assert [line.split(" = ")[1] for line in text.splitlines() if "constant" in line] == [
        "tensor(0)", "tensor(0)", "tensor(1)"
    ]
