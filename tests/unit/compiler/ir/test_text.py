"""The text form: printed text reads back as the same graph, and errors name the position."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.graphs import graphs
from tests.support.graph_text import GraphTextError, parse, random_elements
from tests.support.graphs import (
    assert_same,
    constant_arrays,
    data_of,
    evaluate,
    graph_input,
    graph_of,
)
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.ir.literals import digest
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

TEXT = """
# A model of every form.
input %x: float32[1, 8, 8, 3]
constant %w: float32[4, 3, 3, 3] = random(7)
constant %b: float32[4] = tensor(bias)

%y = conv2d [stem](%x, %w, input_layout="nhwc", bias=%b) on vulkan from "conv2d [stem]", "pad"
%p, %q = split(%y, splits=(1, 5), axis=1)   # of two parts
%z: float32[1, 12, 6, 4] = concat(inputs=[%y, %q, %p], axis=1) on cpu because "it's \\"slow\\""
%r = relu(%z)
output z = %r
output "the parts" = %q
"""
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


def read_back(graph: Graph) -> Graph:
    return parse(str(graph), data_of(graph))


def test_what_is_read_and_what_is_printed():
    graph = parse(TEXT)
    graph.verify()
    assert str(graph) == PRINTED
    assert_same(read_back(graph), graph)
    conv, split, concat, _ = graph.nodes
    assert (conv.device, conv.label) == ("vulkan", "stem")
    assert conv.origins == ("conv2d [stem]", "pad")
    assert (concat.on_cpu, concat.reason) == (True, 'it\'s "slow"')
    assert concat.sequence("inputs") == (conv.output, split.outputs[1], split.outputs[0])
    bias = conv.operands["bias"]
    assert bias.data is None and bias.is_constant
    given = object()
    graph = parse(TEXT, {"tensor(bias)": given})
    assert graph.nodes[0].operands["bias"].source is given


@given(graphs())
def test_random_graphs_read_back(random_graph):
    graph = random_graph.graph()
    assert_same(read_back(graph), graph)


@pytest.mark.parametrize("name", sorted(ALL_OPERATORS))
def test_every_operator_reads_back(name):
    @settings(max_examples=20)
    @given(examples(name))
    def check(example):
        graph = example.graph()
        again = read_back(graph)
        assert_same(again, graph)
        assert str(again) == str(graph)

    check()


@given(
    st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True),
    st.text(), st.text(), st.text(), st.lists(st.text(), max_size=3),
)
def test_names_and_labels_of_any_characters(inputs, label, device, reason, origins):
    emit = Emitter()
    values = [graph_input(name, (2,)) for name in inputs]
    y = emit.add(emit.add(values[0], values[1]), values[2], label=label)
    graph = graph_of(emit, dict.fromkeys(inputs, y), *values)
    node = replace(graph.nodes[1], device=device, reason=reason, origins=tuple(origins))
    graph = replace(graph, nodes=(graph.nodes[0], node))
    text = str(graph)
    assert text.isprintable() or text.replace("\n", "").isprintable()
    assert_same(read_back(graph), graph)


def test_inputs_named_like_other_values():
    emit = Emitter()
    values = [graph_input(name, (2,)) for name in ("0", "c0", "1.0", "input", "a b", 'q"\n')]
    y = emit.constant(np.ones(2, np.float32))
    for value in values:
        y = emit.add(y, value)
    graph = graph_of(emit, {"0": y, "output": y}, *values)
    assert_same(read_back(graph), graph)


@given(array=constant_arrays())
def test_constants_keep_their_bits(array):
    emit = Emitter()
    graph = graph_of(emit, {"y": emit.identity(emit.constant(array))})
    assert_same(read_back(graph), graph)


@pytest.mark.parametrize(("elements", "expected"), [
    ("0.5", [0.5, 0.5, 0.5]),
    ("[1, -2.5e-3, inf]", [1, -0.0025, np.inf]),
    ("[-inf, nan, -0.0]", [-np.inf, np.nan, -0.0]),
])
def test_elements(elements, expected):
    value = parse(f"constant %c: float32[3] = {elements}\noutput y = %c").outputs["y"]
    np.testing.assert_array_equal(value.data, np.array(expected, np.float32))
    assert not value.data.flags.writeable


def test_random_elements_are_the_same_everywhere():
    descriptor = MLOperandDescriptor("float16", (2, 3))
    # Fixed here because texts of tests rely on it.
    assert random_elements(descriptor, "7").tolist() == EXPECTED_FLOATS
    assert random_elements(MLOperandDescriptor("int8", (6,)), "7").tolist() == EXPECTED_INTEGERS
    large = random_elements(MLOperandDescriptor("float32", (10000,)), "x")
    assert -1 <= large.min() < -0.99 and 0.99 < large.max() < 1
    assert len(np.unique(large)) > 1900
    parsed = parse("constant %c: float16[2, 3] = random(7)\noutput y = %c").outputs["y"]
    assert digest(parsed.descriptor, parsed.data) == digest(
        descriptor, random_elements(descriptor, "7")
    )


EXPECTED_FLOATS = [
    [-0.9658203125, 0.6982421875, -0.8740234375],
    [-0.76171875, -0.71875, 0.193359375],
]
EXPECTED_INTEGERS = [3, 3, 1, 6, 3, 1]


def test_two_constants_of_one_tensor_stay_so():
    emit, tensor = Emitter(), object()
    descriptor = MLOperandDescriptor("float32", (2,))
    first, second = (Value(descriptor, source=tensor) for _ in range(2))
    other = Value(descriptor, source=object())
    graph = graph_of(emit, {"y": emit.where(emit.equal(first, second), second, other)})
    again = read_back(graph)
    assert_same(again, graph)
    assert len({id(v.source) for v in again.constants()}) == 2


def test_the_graph_that_is_read_computes_the_same():
    graph = parse(TEXT.replace("tensor(bias)", "[1, 2, 3, 4]"))
    x = random_elements(graph.inputs["x"].descriptor, "x")
    one, other = evaluate(graph, x=x), evaluate(read_back(graph), x=x)
    assert one.keys() == other.keys() == {"z", "the parts"}
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


A = "input %a: float32[2, 3]\n"


@pytest.mark.parametrize(("text", "line", "column", "message"), [
    ("frob", 1, 1, "input, constant, output or the results of a node are expected"),
    ("input a: float32[2]", 1, 7, "a value's name is expected"),
    ("input %a: float33[2]", 1, 11, "float33 is no data type; one of float32, float16"),
    ("input %a: float32[2, -1]", 1, 22, "a dimension is expected"),
    ("input %a: float32[0]", 1, 11, "dimension 0 is 0"),
    ("input %a: float32[2] 3", 1, 22, "the end of the line is expected"),
    (A + "input %a: float32[2]", 2, 7, "%a is there already"),
    (A + 'input %"a": float32[2]', 2, 7, "input 'a' is there already"),
    ('input %"\\x": float32[2]', 1, 8, "is no string"),
    (A + "%b = frobnicate(%a)", 2, 6, "no operator is called frobnicate"),
    (A + "\n\n  %b = relu(%c)", 4, 13, "%c is not computed before"),
    (A + "%b = relu(%a", 2, 13, "',' is expected"),
    (A + "%b = relu(%a, %a)", 2, 15, "a name with '=' is expected"),
    (A + "%b = relu(%a, input=%a)", 2, 15, "input is given twice"),
    (A + "%b = relu(%a, axis=1)", 2, 15, "relu has no axis; it takes input"),
    (A + "%b = softmax(%a)", 2, 6, "softmax needs axis"),
    (A + "%b = softmax(%a, axis=2)", 2, 6, "axis 2 is not below the rank"),
    (A + "%b = softmax(%a, axis=x)", 2, 23, "a number, a string, True, False, None or a list"),
    (A + "%b = softmax(%a, axis=-1)", 2, 23, "softmax: axis: -1 is outside"),
    (A + '%b = pad(%a, (1, 1), (1, 1))', 2, 14, "a name with '=' is expected"),
    (A + '%b = cast(%a, data_type="float33")', 2, 25, "is not a data type"),
    (A + "%b: float32[3, 2] = relu(%a)", 2, 1, "%b is float32[2, 3], not float32[3, 2]"),
    (A + "%b, %c = relu(%a)", 2, 10, "relu has 1 results, not 2"),
    (A + "%b = relu(%a)\n%b = relu(%a)", 3, 1, "%b is there already"),
    (A + "%b = concat(%a, axis=0)", 2, 13, "'[' is expected"),
    (A + "%b = relu(%a) on", 2, 17, "a device is expected"),
    (A + "%b = relu(%a) because slow", 2, 23, "a reason in quotes is expected"),
    (A + "output y = %b", 2, 12, "%b is not computed before"),
    (A + "output y = %a\noutput y = %a", 3, 8, "output 'y' is there already"),
    ("constant %c: int8[2] = [1, 300]", 1, 28, "300 is no int8"),
    ("constant %c: int8[2] = 0.5", 1, 24, "0.5 is no int8"),
    ("constant %c: int8[2] = [1, 2, 3]", 1, 24, "3 elements are given; int8[2] has 2"),
    ("constant %c: int8[2] = nan(0x7f)", 1, 24, "nan(0x7f) is no int8"),
    ("constant %c: int8[2] = data(0123)", 1, 24, "data(0123) are not among those given"),
])
def test_errors_say_where(text, line, column, message):
    with pytest.raises(GraphTextError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_held_elements_have_to_fit():
    with pytest.raises(GraphTextError, match=r"data\(k\) is float32\[3\], not int8\[2\]"):
        parse("constant %c: int8[2] = data(k)", {"k": np.zeros(3, np.float32)})
