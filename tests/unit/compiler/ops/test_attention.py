"""The compiler's attention: shapes, reference, and its decomposition."""

import math

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.passes import decompose_nodes
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


@pytest.mark.parametrize(("more", "arguments"), [
    ({}, {}),
    ({"mask": (2, 1, 1, 5)}, {"scale": 0.25}),
    ({"seen": (3, 5)}, {"unseen": -4.0}),
    ({"mask": (3, 5)}, {"softcap": 0.7, "causal": True}),
    ({"mask": (4, 3, 5), "seen": (2, 1, 3, 5)}, {"scale": -2.0, "unseen": 0.5, "causal": True}),
])
def test_it_is_what_it_is_taken_apart_into(more, arguments):
    emit = Emitter()
    inputs = [graph_input("q", (2, 4, 3, 8)), graph_input("k", (2, 1, 5, 8)),
              graph_input("v", (1, 4, 5, 6))]
    given = {
        name: graph_input(name, shape, "uint8" if name == "seen" else "float32")
        for name, shape in more.items()
    }
    y = emit.attention(*inputs, **given, **arguments)
    graph = graph_of(emit, {"y": y}, *inputs, *given.values())
    feeds = random_feeds(graph)
    if "seen" in feeds:
        feeds["seen"] = feeds["seen"] % 2
    apart = decompose_nodes(graph, lambda node: node.operator.name == "attention")
    assert "attention" not in {node.operator.name for node in apart.nodes}
    one, other = (evaluate(g, **feeds)["y"] for g in (graph, apart))
    assert one.shape == (2, 4, 3, 6)
    assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_values():
    record = ALL_OPERATORS["attention"]
    one = np.eye(2, dtype=np.float32)
    out = [MLOperandDescriptor("float32", (2, 2))]
    operands = {"query": one, "key": one, "value": np.array([[1, 2], [3, 4]], np.float32),
                "mask": None, "seen": None, "length": None}
    rest = {"scale": math.log(3), "unseen": -math.inf, "causal": False, "softcap": 0.0}
    # Weights 3/4 and 1/4, then in reverse.
    assert_allclose(
        record.evaluate(out, operands, rest)[0], [[1.5, 2.5], [2.5, 3.5]], rtol=1e-6
    )
    assert_allclose(
        record.evaluate(out, operands, rest | {"causal": True})[0], [[1, 2], [2.5, 3.5]], rtol=1e-6
    )
    # tanh(log 3) = 4/5: weights e^(4/5) and 1.
    large = math.exp(0.8) / (1 + math.exp(0.8))
    assert_allclose(
        record.evaluate(out, operands, rest | {"softcap": 1.0})[0][0],
        [1 + 2 * (1 - large), 2 + 2 * (1 - large)], rtol=1e-6,
    )
    seen = np.array([[0, 1], [0, 0]], np.uint8)
    (result,) = record.evaluate(out, operands | {"seen": seen}, rest)
    np.testing.assert_array_equal(result, [[3, 4], [np.nan, np.nan]])


@pytest.mark.parametrize(("shapes", "arguments", "message"), [
    ({"key": (2, 5, 7)}, {}, "query is float32.2, 3, 8., key is float32.2, 5, 7."),
    ({"value": (2, 4, 6)}, {}, "are expected"),
    ({"key": (3, 5, 8)}, {}, "are expected"),
    ({"mask": (3, 4)}, {}, r"mask is .*broadcasts to \[2, 3, 5\]"),
    ({"query": (2, 6, 8)}, {"causal": True}, "6 causal queries of 5 keys"),
])
def test_refuses(shapes, arguments, message):
    emit = Emitter()
    all_shapes = {"query": (2, 3, 8), "key": (2, 5, 8), "value": (2, 5, 6)} | shapes
    values = {name: graph_input(name, shape) for name, shape in all_shapes.items()}
    with pytest.raises(TypeError, match=message):
        emit.attention(**values, **arguments)
