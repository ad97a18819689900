from dataclasses import replace

import numpy as np
import pytest

from tests.support.graphs import evaluate, graph_input, graph_of
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def small() -> Graph:
    emit = Emitter()
    a = graph_input("a", (2, 3))
    b = emit.constant(np.arange(3, dtype=np.float32))
    return graph_of(emit, {"y": emit.relu(emit.add(a, b, label="sum"))}, a)


def test_text_form():
    assert str(small()) == (
        "input %a: float32[2, 3]\n"
        "constant %c0: float32[3] = [0.0, 1.0, 2.0]\n"
        "%0: float32[2, 3] = add [sum](a=%a, b=%c0)\n"
        "%1: float32[2, 3] = relu(input=%0)\n"
        "output y = %1"
    )


def test_emitter_takes_arguments_in_the_builders_order():
    emit = Emitter("gates")
    x = graph_input("x", (4, 6))
    halves = emit.split(x, 2, axis=1)
    assert [h.shape for h in halves] == [(4, 3), (4, 3)]
    assert emit.nodes[0].label == "gates"
    with pytest.raises(AttributeError, match="no operator is called frobnicate"):
        emit.frobnicate(x)
    with pytest.raises(TypeError, match=r"add \[gates\]: .*float32\[4, 3\].*"):
        emit.add(halves[0], emit.constant(np.zeros((5, 3), np.float32)))


def test_evaluate_uses_the_references():
    a = np.array([[-1, 0, 1], [2, -3, -4]], np.float32)
    np.testing.assert_array_equal(evaluate(small(), a=a)["y"], [[0, 1, 3], [2, 0, 0]])


def test_producers_and_users():
    graph = small()
    add, relu = graph.nodes
    assert graph.producers[add.output] is add
    assert graph.users[add.output] == [relu]
    assert relu.output not in graph.users


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda g: replace(g, nodes=g.nodes[::-1]), "reads a value before it is computed"),
        (lambda g: replace(g, nodes=(*g.nodes, g.nodes[1])), "assigns a value twice"),
        (lambda g: replace(g, nodes=g.nodes[:1]), "output 'y' is never computed"),
        (lambda g: replace(g, inputs={"b": g.inputs["a"]}), "input 'b' is a value named 'a'"),
        (
            lambda g: replace(
                g,
                nodes=(
                    replace(
                        g.nodes[0], outputs=(Value(MLOperandDescriptor("float32", (3, 2))),)
                    ),
                    g.nodes[1],
                ),
            ),
            "is inferred",
        ),
        (
            lambda g: replace(
                g,
                nodes=(
                    g.nodes[0],
                    replace(
                        g.nodes[1],
                        outputs=(Value(MLOperandDescriptor("float32", (9,))),),
                    ),
                ),
            ),
            "is inferred",
        ),
    ],
)
def test_verifier_finds(broken, message):
    with pytest.raises(ValueError, match=message):
        broken(small()).verify()
