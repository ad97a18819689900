import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.random_chains import random_graphs
from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.lowering import Decompose
from webnn_vk.compiler.passes import Compilation, remove_dead_code
from webnn_vk.compiler.passes.decompose import decompose
from webnn_vk.compiler.passes.fold import fold_constants
from webnn_vk.compiler.passes.place import order, place


def fold(graph: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The folded graph and the titles of what was folded."""
    compilation = Compilation()
    return fold_constants(graph, compilation), compilation.notes.of("fold")


def names(graph: Graph) -> list[str]:
    return [node.title for node in graph.nodes]


def test_dead_code_keeps_inputs_and_what_outputs_need():
    emit = Emitter()
    a, unused = graph_input("a", (2,)), graph_input("unused", (2,))
    y = emit.relu(a)
    emit.exp(y)
    graph = remove_dead_code(graph_of(emit, {"y": y}, a, unused))
    assert names(graph) == ["relu"]
    assert list(graph.inputs) == ["a", "unused"]


def test_folding_computes_constant_subgraphs():
    emit = Emitter()
    a = graph_input("a", (2, 2))
    w = emit.transpose(emit.constant(np.array([[1, 2], [3, 4]], np.float32)))
    y = emit.matmul(a, emit.mul(w, emit.constant(2.0, "float32")))
    graph, folded = fold(graph_of(emit, {"y": y, "w": w}, a))
    assert folded == ("transpose", "mul")
    assert names(graph) == ["matmul"]
    np.testing.assert_array_equal(graph.outputs["w"].data, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(
        evaluate(graph, a=np.eye(2, dtype=np.float32))["y"], [[2, 6], [4, 8]]
    )


def test_folding_leaves_huge_results_to_the_device():
    emit = Emitter()
    y = emit.expand(emit.constant(1.0, "float32"), (1024, 1024))
    graph, folded = fold(graph_of(emit, {"y": y}))
    assert folded == ()
    assert names(graph) == ["expand"]


def test_decomposition_keeps_the_meaning_and_what_it_is_told():
    emit = Emitter()
    x, w, r, h = (
        graph_input(n, s) for n, s in dict(x=(2, 3), w=(12, 3), r=(12, 4), h=(2, 4)).items()
    )
    y = emit.gru_cell(x, w, r, h, 4, label="cell")
    graph = graph_of(emit, {"y": y}, x, w, r, h)
    expanded = decompose(graph, Compilation())
    expanded.verify()
    assert "gru_cell" not in {n.operator.name for n in expanded.nodes}
    assert all("[cell]" in n.title for n in expanded.nodes)
    assert {n.origins for n in expanded.nodes} == {("gru_cell [cell]",)}
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in graph.inputs.items()}
    assert_allclose(
        evaluate(expanded, **arrays)["y"], evaluate(graph, **arrays)["y"], atol=1e-6
    )
    assert decompose(graph, Compilation(force_cpu=frozenset({"gru_cell"}))) is graph


def test_what_a_decomposition_is_made_of_is_decomposed_too(monkeypatch):
    def by_sigmoid(emit, operands, arguments, outputs):
        two, one = emit.constant(2.0, "float32"), emit.constant(1.0, "float32")
        x = emit.sigmoid(emit.mul(operands["input"], two))
        return emit.sub(emit.mul(x, two), one)

    monkeypatch.setattr(OPERATORS["tanh"], "lowering", Decompose(by_sigmoid))
    emit = Emitter()
    x, w, r, h = (
        graph_input(n, s) for n, s in dict(x=(2, 3), w=(12, 3), r=(12, 4), h=(2, 4)).items()
    )
    graph = graph_of(emit, {"y": emit.gru_cell(x, w, r, h, 4)}, x, w, r, h)
    expanded = decompose(graph, Compilation())
    expanded.verify()
    found = {n.operator.name for n in expanded.nodes}
    assert not {"gru_cell", "tanh"} & found and "sigmoid" in found


@given(random_graphs())
def test_dead_code_preserves_meaning(graph):
    x = np.array([-0.5, 0.25, 1.5], np.float32)
    expected = evaluate(graph, a=x)
    alive = remove_dead_code(graph)
    alive.verify()
    for name, array in evaluate(alive, a=x).items():
        np.testing.assert_array_equal(array, expected[name])


@given(random_graphs(), st.sets(st.sampled_from(["relu", "neg", "tanh", "add", "mul", "max"])))
def test_order_is_topological_with_no_needless_change(graph, forced):
    compilation = Compilation(stored_profile(), force_cpu=frozenset(forced))
    placed = place(graph, compilation)
    ordered = order(placed, compilation)
    ordered.verify()
    assert sorted(map(id, ordered.nodes)) == sorted(map(id, placed.nodes))
    changes = lambda g: sum(  # noqa: E731
        x.device != y.device for x, y in zip(g.nodes, g.nodes[1:], strict=False)
    )
    assert changes(ordered) <= changes(placed) + 1
    x = np.array([-0.5, 0.25, 1.5], np.float32)
    expected = evaluate(graph, a=x)
    for name, array in evaluate(ordered, a=x).items():
        np.testing.assert_array_equal(array, expected[name])
    for node in ordered.nodes:
        assert node.on_cpu == (node.operator.name in forced)
        assert node.reason == ("forced to the CPU" if node.on_cpu else "")


def test_without_a_device_everything_is_on_the_cpu():
    emit = Emitter()
    a = graph_input("a", (4,))
    graph = place(graph_of(emit, {"y": emit.relu(emit.exp(a))}, a), Compilation())
    assert [(n.device, n.reason) for n in graph.nodes] == [
        ("cpu", "the CPU device was chosen")
    ] * 2


def test_folding_can_not_be_fooled_by_side_outputs():
    emit = Emitter()
    parts = emit.split(emit.constant(np.arange(4, dtype=np.int32)), 2)
    graph, folded = fold(graph_of(emit, {"b": parts[1]}))
    assert folded == ("split",)
    np.testing.assert_array_equal(graph.outputs["b"].data, [2, 3])
    with pytest.raises(ValueError):
        graph.outputs["b"].data[0] = 1  # shared between programs: read-only
