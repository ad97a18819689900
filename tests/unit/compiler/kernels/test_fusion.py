"""Element-wise fusion of kernel graphs: structure, and the same outputs as before."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential.graphs import assert_equal, graphs
from tests.support.cases.random_chains import random_graphs
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from tests.support.running import plan
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.kernels import KernelGraph, KernelNode
from webnn_vk.compiler.kernels.absorb import absorb
from webnn_vk.compiler.kernels.fusion import MAX_STEPS, fuse
from webnn_vk.compiler.kernels.lower import kernelize

PROFILE = stored_profile()


def fused(graph: Graph, *apart: str) -> KernelGraph:
    """The graph fused, except the operators ``apart``, which keep their own kernels."""
    alone = frozenset(node for node in graph.nodes if node.operator.name in apart)
    done = fuse(kernelize(graph, alone), PROFILE)
    done.verify()
    return done


def titles(graph: KernelGraph) -> list[str]:
    return [node.title for node in graph.nodes]


def test_a_chain_joins_its_producer():
    emit = Emitter()
    a, b = graph_input("a", (4, 8)), graph_input("b", (8, 4))
    bias, residual = graph_input("bias", (4,)), graph_input("residual", (4, 4))
    y = emit.relu(emit.add(residual, emit.add(emit.matmul(a, b), bias), label="join"))
    graph = graph_of(emit, {"y": y}, a, b, bias, residual)
    done = fused(graph)
    assert str(done).splitlines()[4:] == [
        "%0: float32[4, 4] = matmul(a=%a, b=%b) |> add(%bias) |> add [join](%residual) |> relu()",
        "output y = %0",
    ]
    (node,) = done.nodes
    assert node.titles == ("matmul", "add", "add [join]", "relu")
    assert node.sources == graph.nodes
    assert list(node.operands) == ["a", "b"]
    assert [access.value for access in node.side_inputs] == [bias, residual]
    # The result so far is the second operand of the second addition.
    assert [name for name, access in node.epilogue[1].operands.items() if access is None] == ["b"]
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(evaluate(done, **feeds)["y"], evaluate(graph, **feeds)["y"])


def test_a_chain_binds_each_tensor_once():
    """(x + y) + x + y reads two tensors, whichever of the three additions needs them."""
    emit = Emitter()
    x, y = graph_input("x", (4, 8)), graph_input("y", (4, 8))
    graph = graph_of(emit, {"z": emit.add(emit.add(emit.add(x, y), x), y)}, x, y)
    (node,) = fused(graph).nodes
    (dispatch,) = plan(node, PROFILE)
    assert [binding.value.name for binding in dispatch.bindings[:-1]] == ["x", "y"]


def test_the_graph_stays_as_it_is_and_so_does_what_is_fused():
    emit = Emitter()
    a, b, bias = (graph_input(n, (4, 4)) for n in ("a", "b", "bias"))
    y = emit.relu(emit.add(emit.matmul(a, b), emit.mul(bias, bias)))
    graph = graph_of(emit, {"y": y}, a, b, bias)
    plain = kernelize(graph)
    text, readers = str(plain), {v: list(nodes) for v, nodes in plain.readers.items()}
    # Joining the product saves a pass over the larger kernel's output.
    assert titles(fuse(plain, PROFILE)) == ["mul", "matmul + add + relu"]
    assert str(plain) == text and plain.readers == readers
    done = fused(graph, "matmul")
    assert titles(done) == ["matmul", "mul + add + relu"]
    again = fuse(KernelGraph(done.inputs, done.outputs, done.nodes), PROFILE)
    again.verify()
    assert again.nodes == done.nodes
    feeds = {n: np.arange(16, dtype=np.float32).reshape(4, 4) - 6 for n in ("a", "b", "bias")}
    np.testing.assert_array_equal(evaluate(again, **feeds)["y"], evaluate(graph, **feeds)["y"])


def test_a_single_reader_and_no_output():
    emit = Emitter()
    a = graph_input("a", (4,))
    twice = emit.exp(a)
    x, y = emit.relu(twice), emit.neg(twice)
    seen = emit.sqrt(x)
    z = emit.add(seen, y)
    done = fused(graph_of(emit, {"seen": seen, "z": z}, a))
    # The first of two readers is fused; the value for the other is stored on the way, before the
    # square root.
    assert titles(done) == ["exp + relu", "sqrt", "neg + add"]
    assert list(done.nodes[0].extra_outputs) == [0] and len(done.nodes[0].writes) == 2


def test_nodes_apart_stay_apart():
    emit = Emitter()
    a = graph_input("a", (4,))
    graph = graph_of(emit, {"y": emit.neg(emit.relu(emit.exp(a)))}, a)
    assert titles(fused(graph)) == ["exp + relu + neg"]
    assert titles(fused(graph, "exp")) == ["exp", "relu + neg"]
    assert titles(fused(graph, "relu")) == ["exp", "relu", "neg"]


def test_one_value_used_for_both_operands():
    emit = Emitter()
    a = graph_input("a", (4,))
    e = emit.exp(a)
    graph = graph_of(emit, {"y": emit.mul(e, e)}, a)
    done = fused(graph)
    assert titles(done) == ["exp + mul"]
    x = np.array([0, 1, 2, -1], np.float32)
    np.testing.assert_array_equal(evaluate(done, a=x)["y"], evaluate(graph, a=x)["y"])


def test_what_reads_the_result_broadcast_too_stays():
    emit = Emitter()
    a = graph_input("a", (4, 1))
    e = emit.exp(a)
    graph = graph_of(emit, {"y": emit.add(e, emit.reshape(e, (1, 4)))}, a)
    assert titles(fused(graph)) == ["exp", "reshape", "add"]
    emit = Emitter()
    row = emit.exp(a)
    graph = graph_of(emit, {"y": emit.add(row, emit.constant(np.ones((4, 4), np.float32)))}, a)
    # The addition could store 16 elements only if the exponential has its own kernel.
    assert titles(fused(graph)) == ["exp", "add"]


def test_chains_that_meet_become_one():
    """The cell of an LSTM: one kernel that stores the state and the output."""
    emit = Emitter()
    i, f, g, o, before = (graph_input(n, (4, 6)) for n in ("i", "f", "g", "o", "before"))
    cell = emit.add(
        emit.mul(emit.sigmoid(f), before), emit.mul(emit.sigmoid(i), emit.tanh(g))
    )
    out = emit.mul(emit.sigmoid(o), emit.tanh(cell))
    graph = graph_of(emit, {"cell": cell, "out": out}, i, f, g, o, before)
    done = fused(graph)
    (node,) = done.nodes
    assert len(node.epilogue) == len(graph.nodes) - 1 and len(node.writes) == 2
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        np.testing.assert_array_equal(array, expected[name])


def test_what_earlier_steps_read_is_computed_before_them():
    """The `where` and the sum after it, which become one kernel, read the same tanh."""
    emit = Emitter()
    x, i = graph_input("x", (4, 8)), graph_input("i", (4, 8), "int32")
    t, g = emit.tanh(x), emit.greater(i, i)
    chosen = emit.where(g, t, x)
    graph = graph_of(emit, {"g": g, "chosen": chosen, "y": emit.add(t, chosen)}, x, i)
    done = fused(graph)
    assert titles(done) == ["tanh", "greater + where + add"]
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        np.testing.assert_array_equal(array, expected[name])


def test_what_is_read_in_between_is_not_moved_behind_that():
    emit = Emitter()
    a = graph_input("a", (4, 4))
    e = emit.exp(a)
    total = emit.reduce_sum(e, axes=[1], keep_dimensions=True)
    graph = graph_of(emit, {"y": emit.div(e, total)}, a)
    assert titles(fused(graph)) == ["exp", "reduce_sum", "div"]


def test_products_store_results_on_the_way_for_gpus_alone():
    emit = Emitter()
    a, b = (graph_input(n, (4, 4)) for n in "ab")
    x = emit.add(a, emit.matmul(a, b))
    graph = graph_of(emit, {"x": x, "y": emit.relu(x)}, a, b)
    assert titles(fused(graph)) == ["matmul + add", "relu"]
    gpu = fuse(kernelize(graph), stored_profile("nvidia_ampere"))
    assert titles(gpu) == ["matmul + add + relu"] and list(gpu.nodes[0].extra_outputs) == [1]
    assert "stored after 1" in str(gpu)
    few = stored_profile("nvidia_ampere").replace(max_storage_buffers_per_set=5)
    assert titles(fuse(kernelize(graph), few)) == ["matmul + add", "relu"]


def test_chains_end():
    emit = Emitter()
    value = a = graph_input("a", (4,))
    for _ in range(MAX_STEPS + 3):
        value = emit.neg(value)
    done = fused(graph_of(emit, {"y": value}, a))
    assert [len(node.epilogue) for node in done.nodes] == [MAX_STEPS, 1]


def test_a_side_operand_is_computed_before_it_is_read():
    emit = Emitter()
    a = graph_input("a", (4,))
    early = emit.exp(a)
    late = emit.reduce_sum(emit.reshape(a, (1, 4)), axes=[1], keep_dimensions=True)
    graph = graph_of(emit, {"y": emit.add(early, emit.reshape(late, (1,)))}, a)
    done = fused(graph)
    assert titles(done) == ["reshape", "reduce_sum", "reshape", "exp + add"]


def through(*shapes: tuple[int, ...], side: tuple[int, ...]) -> tuple[Graph, KernelGraph]:
    """A product of 12 x 8, reshaped to each of the shapes with an operator after each."""
    emit = Emitter()
    a, b, c = graph_input("a", (12, 5)), graph_input("b", (5, 8)), graph_input("c", side)
    y = emit.matmul(a, b)
    for shape in shapes:
        y = emit.relu(emit.add(emit.reshape(y, shape), c))
    graph = graph_of(emit, {"y": y}, a, b, c)
    done = fused(graph)
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(evaluate(done, **feeds)["y"], evaluate(graph, **feeds)["y"])
    return graph, done


def test_steps_behind_reshapes_join():
    graph, done = through((2, 6, 8), side=(8,))
    (node,) = done.nodes
    assert node.title == "matmul + add + relu"
    assert (node.output.value, node.output.shape) == (graph.outputs["y"], (12, 8))
    assert node.epilogue[0].output.shape == (2, 6, 8)
    # A side in a shape that differs from the product's, and one shape after another.
    assert titles(through((3, 4, 2, 4), side=(4, 1, 1))[1]) == ["matmul + add + relu"]
    # An access that would be read in two shapes is read in one.
    _, done = through((2, 6, 8), (4, 3, 8), side=(1, 1, 8))
    assert titles(done) == ["matmul + add + relu", "reshape", "add + relu"]


def test_reshapes_that_others_read_stay():
    emit = Emitter()
    a, b = graph_input("a", (12, 5)), graph_input("b", (5, 8))
    product = emit.matmul(a, b)
    seen = emit.reshape(product, (2, 6, 8))
    graph = graph_of(emit, {"y": emit.relu(seen), "z": emit.exp(seen)}, a, b)
    assert titles(fused(graph)) == ["matmul", "reshape", "relu", "exp"]
    again = graph_of(emit, {"y": graph.outputs["y"], "seen": seen}, a, b)
    assert titles(fused(again))[:3] == ["matmul", "reshape", "relu"]


def test_what_was_reshaped_within_is_not_stored_elsewhere():
    """A transpose after operators of another shape stays: their elements are in another order."""
    emit = Emitter()
    a, b, c = graph_input("a", (12, 5)), graph_input("b", (5, 8)), graph_input("c", (6, 1))
    y = emit.transpose(emit.mul(emit.reshape(emit.matmul(a, b), (2, 6, 8)), c))
    graph = graph_of(emit, {"y": y}, a, b, c)
    done = absorb(fused(graph))
    assert titles(done) == ["matmul + mul", "transpose"]
    feeds = random_feeds(graph)
    np.testing.assert_array_equal(evaluate(done, **feeds)["y"], evaluate(graph, **feeds)["y"])


@given(random_graphs(), st.sets(st.integers(0, 11)))
def test_the_meaning_stays(graph, alone):
    x = np.array([-0.5, 0.25, 1.5], np.float32)
    expected = evaluate(graph, a=x)
    apart = frozenset(graph.nodes[i] for i in alone if i < len(graph.nodes))
    done = fuse(kernelize(graph, apart), PROFILE)
    done.verify()
    for name, array in evaluate(done, a=x).items():
        np.testing.assert_array_equal(array, expected[name])
    for node in done.nodes:
        assert len(node.sources) == 1 or apart.isdisjoint(node.sources)
    assert {source for node in done.nodes for source in node.sources} == set(graph.nodes)


def test_random_graphs_of_all_kinds():
    shorter = 0

    @settings(max_examples=60)
    @given(graphs())
    def check(made):
        nonlocal shorter
        graph = made.graph()
        feeds = {name: made.sources[int(name[1:])] for name in graph.inputs}
        done = fuse(kernelize(graph), PROFILE)
        done.verify()
        assert_equal(evaluate(done, **feeds), evaluate(graph, **feeds))
        for node in done.nodes:
            if isinstance(node, KernelNode) and node.epilogue:
                assert all(access.is_dense for access in node.operands.values())
        shorter += len(done.nodes) < len(graph.nodes)

    check()
    assert shorter > 10
