"""A saved graph loads as the same graph: every operator with all its options, random graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.graphs import graphs
from tests.support.graphs import assert_same, constant_arrays, graph_input, graph_of
from webnn_vk import webnn_file
from webnn_vk.api.builder import ShapeBuilder
from webnn_vk.api.builder import graph_of as graph_of_outputs
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.webnn_file import weights
from webnn_vk.webnn_file.writing import document


def read_back(graph: Graph, folder, **options) -> Graph:
    text, arrays = document(graph, "graph")
    path = folder / "graph.webnn"
    path.write_bytes(text.encode())
    if arrays:
        weights.write(folder / "graph.safetensors", arrays)
    return graph_of_outputs(webnn_file.build_operands(path, ShapeBuilder(), **options))


def live(graph: Graph) -> Graph:
    """Without the nodes and inputs that no output needs, which a builder omits."""
    values = set(graph.outputs.values())
    nodes = []
    for node in reversed(graph.nodes):
        if not values.isdisjoint(node.outputs):
            values.update(node.inputs)
            nodes.append(node)
    inputs = {name: v for name, v in graph.inputs.items() if v in values}
    return Graph(inputs, graph.outputs, tuple(reversed(nodes)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("webnn")


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_reads_back(name, folder):
    @settings(max_examples=max(8, settings.default.max_examples // 10))
    @given(examples(name))
    def check(example):
        graph = example.graph()
        again = read_back(graph, folder)
        assert_same(again, graph)
        assert str(again) == str(graph)

    check()


@given(random_graph=graphs())
def test_random_graphs_read_back(random_graph, folder):
    graph = live(random_graph.graph())
    again = read_back(graph, folder)
    assert_same(again, graph)
    assert str(again) == str(graph)


@given(
    names=st.lists(
        st.text(st.characters(codec="utf-8"), min_size=1), min_size=2, max_size=4, unique=True
    ),
    label=st.text(st.characters(codec="utf-8")),
)
def test_names_and_labels_of_any_characters(folder, names, label):
    emit = Emitter()
    values = {name: graph_input(name, (2,)) for name in names}
    y = emit.add(*(list(values.values()) * 2)[:2], label=label)
    for value in values.values():
        y = emit.sub(value, y)
    # Outputs may have the names of inputs, and one operand several names.
    graph = graph_of(emit, dict.fromkeys([*names, "v0", "c0"], y), *values.values())
    again = read_back(graph, folder)
    assert_same(again, graph)
    assert str(again) == str(graph)


@given(array=constant_arrays())
def test_constants_keep_their_bits(array, folder):
    emit = Emitter()
    graph = graph_of(emit, {"y": emit.identity(emit.constant(array))})
    assert_same(read_back(graph, folder), graph)


@pytest.mark.parametrize("value", [
    -0.0, 1e-45, 3.4028235e38, 2.0**-24, np.nan, np.inf, -np.inf, 0.1,
])
@pytest.mark.parametrize("shape", [(), (7,), (100, 300)])
def test_numbers_keep_their_bits(value, shape, folder):
    emit = Emitter()
    array = np.full(shape, value, np.float32)
    graph = graph_of(emit, {"y": emit.neg(emit.constant(array))})
    (constant,) = read_back(graph, folder).constants()
    assert constant.data.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**24 + 1, 7])
def test_large_integers_are_exact_for_readers_with_floats(value, folder):
    """rustnn converts the number of a scalar through float32."""
    emit = Emitter()
    array = np.full((3,), value, np.int64)
    graph = graph_of(emit, {"y": emit.neg(emit.constant(array))})
    assert_same(read_back(graph, folder), graph)
    scalar = "@scalar" in (folder / "graph.webnn").read_text()
    assert scalar == (int(np.float32(value)) == value)


def test_what_a_file_looks_like(folder):
    emit = Emitter()
    x = graph_input("pixels", (1, 3, 8, 8))
    w = emit.constant(np.arange(108).reshape(4, 3, 3, 3), "float32")
    y = emit.conv2d(x, w, padding=[1, 1, 1, 1], bias=emit.constant(np.ones(4), "float32"))
    parts = emit.split(emit.clamp(y, max_value=np.inf, label='the "top"'), 2, axis=1)
    text, arrays = document(
        graph_of(emit, {"pixels": parts[1], "a.b/c": parts[0], "again": parts[0]}, x), "a \\ b"
    )
    assert text == EXPECTED
    assert list(arrays) == ["c0"]


EXPECTED = """\
#webnn_vk: output pixels_0 = "pixels"
webnn_graph "a \\\\ b" v1 {
  inputs {
    pixels: f32[1, 3, 8, 8];
  }
  consts {
    c0: f32[4, 3, 3, 3] @weights("c0");
    c1: f32[4] @scalar(1.0);
  }
  nodes {
    v0 = conv2d(pixels, c0, bias=c1, padding=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], \
groups=1, inputLayout="nchw", filterLayout="oihw");
    v1 = clamp(v0, minValue="-Infinity", maxValue="Infinity", label="the \\"top\\"");
    [a.b/c, pixels_0] = split(v1, splits=[2, 2], axis=1);
    again = a.b/c;
  }
  outputs {
    pixels_0;
    a.b/c;
    again;
  }
}
"""
