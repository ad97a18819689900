import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import evaluate, graph_input, graph_of
from webnn_vk.graph import Emitter, Graph
from webnn_vk.ops import OPERATORS
from webnn_vk.ops.lowering import Decompose
from webnn_vk.passes import (
    decompose,
    fold_constants,
    fuse_elementwise,
    place,
    remove_dead_code,
    schedule,
)

YES = lambda *_: True  # noqa: E731


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
    graph, folded = fold_constants(graph_of(emit, {"y": y, "w": w}, a))
    assert folded == ["transpose", "mul"]
    assert names(graph) == ["matmul"]
    np.testing.assert_array_equal(graph.outputs["w"].data, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(
        evaluate(graph, a=np.eye(2, dtype=np.float32))["y"], [[2, 6], [4, 8]]
    )


def test_folding_leaves_huge_results_to_the_device():
    emit = Emitter()
    y = emit.expand(emit.constant(1.0, "float32"), (1024, 1024))
    graph, folded = fold_constants(graph_of(emit, {"y": y}))
    assert folded == []
    assert names(graph) == ["expand"]


def test_decomposition_keeps_the_meaning_and_what_it_is_told():
    emit = Emitter()
    x, w, r, h = (
        graph_input(n, s) for n, s in dict(x=(2, 3), w=(12, 3), r=(12, 4), h=(2, 4)).items()
    )
    y = emit.gru_cell(x, w, r, h, 4, label="cell")
    graph = graph_of(emit, {"y": y}, x, w, r, h)
    expanded = decompose(graph)
    expanded.verify()
    assert "gru_cell" not in {n.operator.name for n in expanded.nodes}
    assert all("[cell]" in n.title for n in expanded.nodes)
    rng = np.random.default_rng(1)
    arrays = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in graph.inputs.items()}
    np.testing.assert_allclose(
        evaluate(expanded, **arrays)["y"], evaluate(graph, **arrays)["y"], atol=1e-6
    )
    assert names(decompose(graph, keep=YES)) == ["gru_cell [cell]"]


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
    expanded = decompose(graph)
    expanded.verify()
    found = {n.operator.name for n in expanded.nodes}
    assert not {"gru_cell", "tanh"} & found and "sigmoid" in found


def test_fusion_joins_a_chain_with_its_producer():
    emit = Emitter()
    a, b = graph_input("a", (4, 8)), graph_input("b", (8, 4))
    bias, residual = graph_input("bias", (4,)), graph_input("residual", (4, 4))
    y = emit.relu(emit.add(residual, emit.add(emit.matmul(a, b), bias)))
    graph = graph_of(emit, {"y": y}, a, b, bias, residual)
    fused = fuse_elementwise(graph, YES, YES)
    fused.verify()
    assert names(fused) == ["matmul + add + add + relu"]
    assert list(fused.nodes[0].operands) == ["a", "b", "side0", "side1"]
    rng = np.random.default_rng(2)
    arrays = {n: rng.standard_normal(v.shape).astype(np.float32) for n, v in graph.inputs.items()}
    np.testing.assert_array_equal(evaluate(fused, **arrays)["y"], evaluate(graph, **arrays)["y"])


def test_fusion_leaves_its_graph_alone_and_what_is_fused_as_it_is():
    emit = Emitter()
    a, b, bias = (graph_input(n, (4, 4)) for n in ("a", "b", "bias"))
    y = emit.relu(emit.add(emit.matmul(a, b), emit.mul(bias, bias)))
    graph = graph_of(emit, {"y": y}, a, b, bias)
    users = {value: list(nodes) for value, nodes in graph.users.items()}
    no_products = lambda node, step: node.operator.name != "matmul"  # noqa: E731
    fused = fuse_elementwise(graph, no_products, YES)
    assert names(fused) == ["matmul", "mul + add + relu"]
    assert graph.users == users
    again = fuse_elementwise(fused, YES, YES)
    again.verify()
    arrays = {n: np.arange(16, dtype=np.float32).reshape(4, 4) - 6 for n in ("a", "b", "bias")}
    np.testing.assert_array_equal(evaluate(again, **arrays)["y"], evaluate(graph, **arrays)["y"])


def test_fusion_needs_a_single_reader_and_no_output():
    emit = Emitter()
    a = graph_input("a", (4,))
    twice = emit.exp(a)
    x, y = emit.relu(twice), emit.neg(twice)
    seen = emit.sqrt(x)
    z = emit.add(seen, y)
    graph = graph_of(emit, {"seen": seen, "z": z}, a)
    fused = fuse_elementwise(graph, YES, YES)
    fused.verify()
    assert names(fused) == ["exp", "relu + sqrt", "neg + add"]


def test_fusion_asks_device_and_kernel():
    emit = Emitter()
    a = graph_input("a", (4,))
    graph = graph_of(emit, {"y": emit.relu(emit.exp(a))}, a)
    assert names(fuse_elementwise(graph, lambda node, step: False, YES)) == ["exp", "relu"]
    on_cpu = lambda node: node.operator.name != "exp"  # noqa: E731
    assert names(fuse_elementwise(graph, YES, on_cpu)) == ["exp", "relu"]


def test_one_value_used_for_both_operands():
    emit = Emitter()
    a = graph_input("a", (4,))
    e = emit.exp(a)
    graph = graph_of(emit, {"y": emit.mul(e, e)}, a)
    fused = fuse_elementwise(graph, YES, YES)
    assert names(fused) == ["exp + mul"]
    x = np.array([0, 1, 2, -1], np.float32)
    np.testing.assert_array_equal(evaluate(fused, a=x)["y"], evaluate(graph, a=x)["y"])


@st.composite
def random_graphs(draw):
    """A random DAG of unary and binary nodes over one input."""
    emit = Emitter()
    a = graph_input("a", (3,))
    values = [a]
    for _ in range(draw(st.integers(1, 12))):
        pick = st.integers(0, len(values) - 1)
        x, y = values[draw(pick)], values[draw(pick)]
        kind = draw(st.sampled_from(["relu", "neg", "tanh", "add", "mul", "max"]))
        values.append(getattr(emit, kind)(*((x,) if kind in ("relu", "neg", "tanh") else (x, y))))
    chosen = draw(st.sets(st.integers(1, len(values) - 1), min_size=1, max_size=3))
    return graph_of(emit, {f"y{i}": values[i] for i in sorted(chosen)}, a)


@given(random_graphs(), st.lists(st.booleans(), min_size=12, max_size=12))
def test_passes_preserve_meaning(graph, accepted):
    x = np.array([-0.5, 0.25, 1.5], np.float32)
    expected = evaluate(graph, a=x)
    answers = iter(accepted * 20)
    fused = fuse_elementwise(remove_dead_code(graph), lambda *_: next(answers), YES)
    fused.verify()
    for name, array in evaluate(fused, a=x).items():
        np.testing.assert_array_equal(array, expected[name])


@given(random_graphs(), st.sets(st.sampled_from(["relu", "neg", "tanh", "add", "mul", "max"])))
def test_schedule_is_a_topological_order_with_no_needless_change(graph, forced):
    placement = place(graph, lambda n: "forced" if n.operator.name in forced else None)
    ordered = schedule(graph, placement)
    ordered.verify()
    assert sorted(map(id, ordered.nodes)) == sorted(map(id, graph.nodes))
    changes = lambda g: sum(  # noqa: E731
        placement.device[x] != placement.device[y]
        for x, y in zip(g.nodes, g.nodes[1:], strict=False)
    )
    assert changes(ordered) <= changes(graph) + 1
    for node in graph.nodes:
        assert placement.on_cpu(node) == (node.operator.name in forced)
        assert placement.reason[node] == ("forced" if node.operator.name in forced else "")


def test_folding_can_not_be_fooled_by_side_outputs():
    emit = Emitter()
    parts = emit.split(emit.constant(np.arange(4, dtype=np.int32)), 2)
    graph, folded = fold_constants(graph_of(emit, {"b": parts[1]}))
    assert folded == ["split"]
    np.testing.assert_array_equal(graph.outputs["b"].data, [2, 3])
    with pytest.raises(ValueError):
        graph.outputs["b"].data[0] = 1  # shared between programs: read-only
