"""Movements absorbed by the kernels that read or write the moved elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential.graphs import graphs
from tests.support.cases.movements import MOVES, PERMUTATIONS, moving_graphs
from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from tests.support.running import plan
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelGraph, KernelNode, family_of
from webnn_vk.compiler.kernels.absorb import absorb, remove_dead
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.ops.lowering import Move, View
from webnn_vk.compiler.types.data_types import FLOAT_TYPES

PROFILE = stored_profile()


def absorbed(graph: Graph, *apart: str, fused: bool = True) -> KernelGraph:
    """The graph fused and absorbed, except the operators ``apart``; it still computes the same."""
    alone = frozenset(node for node in graph.nodes if node.operator.name in apart)
    plain = kernelize(graph, alone)
    done = absorb(fuse(plain, PROFILE) if fused else plain)
    assert_same_outputs(graph, done)
    return done


def assert_same_outputs(graph: Graph, done: KernelGraph) -> None:
    done.verify()
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        assert array.shape == expected[name].shape
        # NumPy sums in another order where an operand's memory belongs to another value.
        assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5, equal_nan=True)


def lines(graph: KernelGraph) -> list[str]:
    """The text form without inputs and outputs."""
    return [line for line in str(graph).splitlines() if line.startswith("%")]


def copies(graph: KernelGraph) -> list[str]:
    return [n.title for n in graph.nodes if isinstance(n, KernelNode)
            and isinstance(n.lowering, Move)]


# -- readers
def test_an_addend_that_lies_apart_is_copied_where_one_kernel_adds_all():
    emit = Emitter()
    a, b, c = graph_input("a", (3, 4)), graph_input("b", (4, 6)), graph_input("c", (6, 12))
    addend = emit.slice(c, (0, 0), (6, 12), strides=(2, 2))
    graph = graph_of(emit, {"y": emit.add(emit.matmul(a, b), addend)}, a, b, c)
    fused = fuse(kernelize(graph), PROFILE)
    for merges in (True, False):
        done = absorb(fused, merges=merges)
        assert_same_outputs(graph, done)
        assert copies(done) == ["slice"] * merges


def test_a_product_reads_through_a_transpose():
    emit = Emitter()
    a, b = graph_input("a", (2, 5, 4)), graph_input("b", (2, 6, 4))
    y = emit.matmul(a, emit.transpose(b, permutation=[0, 2, 1]))
    done = absorbed(graph_of(emit, {"y": y}, a, b))
    assert lines(done) == [
        "%0: float32[2, 5, 6] = matmul(a=%a, b=%b[2, 4, 6]:[24, 1, 4])"
    ]
    (node,) = done.nodes
    assert family_of(node).problem(node).b_transposed


def test_a_product_reads_heads_of_an_attention():
    emit = Emitter()
    x = graph_input("x", (2, 8, 32))
    heads = emit.transpose(emit.reshape(x, (2, 8, 4, 8)), permutation=[0, 2, 1, 3])
    turned = emit.transpose(heads, permutation=[0, 1, 3, 2])
    done = absorbed(graph_of(emit, {"y": emit.matmul(heads, turned)}, x))
    assert lines(done) == [
        "%0: float32[2, 4, 8, 8] = matmul(a=%x[2, 4, 8, 8]:[256, 8, 32, 1], "
        "b=%x[2, 4, 8, 8]:[256, 8, 1, 32])"
    ]


def test_a_product_reads_slices_splits_and_expansions():
    emit = Emitter()
    a, b, c = graph_input("a", (6, 8)), graph_input("b", (4, 10)), graph_input("c", (1, 4, 3))
    rows = emit.slice(a, [1, 2], [4, 4])
    y = emit.matmul(rows, emit.split(b, 2, axis=1)[1])
    z = emit.matmul(emit.reshape(rows, (1, 4, 4)), emit.expand(c, (5, 4, 3)))
    done = absorbed(graph_of(emit, {"y": y, "z": z}, a, b, c))
    assert lines(done) == [
        "%0: float32[4, 5] = matmul(a=%a+10[4, 4]:[8, 1], b=%b+5[4, 5]:[10, 1])",
        "%1: float32[5, 4, 3] = matmul(a=%a+10[1, 4, 4]:[0, 8, 1], b=%c[5, 4, 3]:[0, 3, 1])",
    ]


def test_what_a_product_can_not_read_stays_a_copy():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (6, 4))
    backwards = emit.reverse(a, axes=[1])
    apart = emit.slice(b, [0, 0], [6, 4], strides=[1, 2])
    y, z = emit.matmul(backwards, b), emit.matmul(a, emit.expand(apart, (6, 2)))
    done = absorbed(graph_of(emit, {"y": y, "z": z}, a, b))
    # Columns two elements apart, rows four: neither is contiguous. The expansion, which changes
    # nothing, reads through the slice.
    assert copies(done) == ["reverse", "expand"]
    assert "expand(input=%b[6, 2]:[4, 2]" in str(done)


def test_movements_behind_each_other_become_one():
    emit = Emitter()
    a = graph_input("a", (2, 3, 4))
    y = emit.transpose(emit.reverse(emit.slice(a, [0, 1, 0], [2, 2, 4]), axes=[2]))
    done = absorbed(graph_of(emit, {"y": y}, a))
    assert lines(done) == ["%0: float32[4, 2, 2] = transpose(input=%a+7[2, 2, 4]:[12, 4, -1], "
                           "permutation=(2, 1, 0))"]


def test_a_reader_of_its_own_needs_no_copy_for_another_one():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (4, 5))
    turned = emit.transpose(a)
    graph = graph_of(emit, {"y": emit.matmul(turned, b), "z": emit.softmax(turned, 1)}, a, b)
    done = absorbed(graph)
    # The product reads through it, softmax does not: only softmax needs the copy.
    assert copies(done) == ["transpose"]
    (product,) = (n for n in done.nodes if n.title == "matmul")
    assert product.operands["a"].value is a
    (copy,) = (n for n in done.nodes if n.title == "transpose")
    assert [n.title for n in done.readers[copy.output.value]] == ["softmax"]


def test_an_output_is_computed_and_read_through_all_the_same():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (4, 5))
    turned = emit.transpose(a)
    done = absorbed(graph_of(emit, {"y": emit.matmul(turned, b), "turned": turned}, a, b))
    assert copies(done) == ["transpose"]
    (product,) = (n for n in done.nodes if n.title == "matmul")
    assert product.operands["a"].value is a


def test_element_wise_operators_read_repeated_rows():
    emit = Emitter()
    a, b = graph_input("a", (4, 1)), graph_input("b", (4, 6))
    y = emit.add(emit.expand(a, (4, 6)), b)
    z = emit.sqrt(emit.expand(a, (4, 6)))
    done = absorbed(graph_of(emit, {"y": y, "z": z}, a, b))
    assert copies(done) == []
    (total,) = (n for n in done.nodes if n.title == "add")
    assert (total.operands["a"].value, total.operands["a"].strides) == (a, (1, 0))


def test_element_wise_operators_read_what_is_split_turned_and_sliced():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (5, 9))
    left, right = emit.split(a, 2, axis=1)
    turned = emit.transpose(emit.slice(b, [1, 2], [3, 4]))
    y = emit.sub(emit.mul(emit.sigmoid(left), right), turned)
    done = absorbed(graph_of(emit, {"y": y}, a, b))
    (node,) = done.nodes
    assert node.titles == ("sigmoid", "mul", "sub")
    accesses = [node.operands["input"], *node.side_inputs]
    assert [(x.value, x.strides, x.offset) for x in accesses] == [
        (a, (6, 1), 0), (a, (6, 1), 3), (b, (1, 9), 11)
    ]


def test_element_wise_operators_leave_in_place_what_can_lie_there():
    """A part that begins where the device can bind it is read without address arithmetic."""
    emit = Emitter()
    a = graph_input("a", (4, 64))
    first, second = emit.split(a, 2, axis=0)
    done = absorbed(graph_of(emit, {"y": emit.add(first, second)}, a))
    assert copies(done) == ["split"]
    # Reversed rows are not read this way, rows in reverse order are.
    back = emit.reverse(a)
    done = absorbed(graph_of(emit, {"y": emit.exp(back)}, a))
    assert copies(done) == ["reverse"]
    upward = emit.reverse(a, axes=(0,))
    done = absorbed(graph_of(emit, {"y": emit.exp(upward)}, a))
    assert copies(done) == []


def test_fused_steps_read_through_movements():
    emit = Emitter()
    a, b, c = graph_input("a", (4, 6)), graph_input("b", (6, 5)), graph_input("c", (5, 4))
    y = emit.relu(emit.add(emit.matmul(a, b), emit.transpose(c)))
    graph = graph_of(emit, {"y": y}, a, b, c)
    (node,) = absorbed(graph).nodes
    assert [(x.value, x.strides) for x in node.side_inputs] == [(c, (1, 4))]
    # A part that can't be bound whole is copied.
    small = absorb(fuse(kernelize(graph), PROFILE), limit=c.descriptor.byte_length - 4)
    assert copies(small) == ["transpose"]


def test_readers_apart_read_what_is_copied():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (4, 5))
    graph = graph_of(emit, {"y": emit.matmul(emit.transpose(a), b)}, a, b)
    assert copies(absorbed(graph)) == []
    assert copies(absorbed(graph, "matmul")) == ["transpose"]
    assert copies(absorbed(graph, "transpose")) == ["transpose"]


def test_what_the_cpu_moves_or_reads_is_not_absorbed():
    emit = Emitter()
    a, b = graph_input("a", (4, 6)), graph_input("b", (4, 5))
    turned = emit.transpose(a)
    y, z = emit.matmul(turned, b), emit.softmax(turned, 1)
    graph = graph_of(emit, {"y": y, "z": z}, a, b)
    for on_cpu in ("transpose", "softmax"):
        nodes = tuple(
            replace(n, device="cpu" if n.operator.name == on_cpu else "vulkan")
            for n in graph.nodes
        )
        done = absorb(kernelize(Graph(graph.inputs, graph.outputs, nodes)))
        done.verify()
        (product,) = (n for n in done.nodes if n.title == "matmul")
        assert (product.operands["a"].value is a) == (on_cpu == "softmax")
        assert "transpose" in [n.title for n in done.nodes]


# -- writers
def test_a_product_stores_where_its_transpose_would():
    emit = Emitter()
    a, b, bias = graph_input("a", (2, 3, 5, 4)), graph_input("b", (4, 6)), graph_input("bias", (6,))
    total = emit.add(emit.matmul(a, b), bias)
    y = emit.transpose(total, permutation=[0, 2, 1, 3])
    graph = graph_of(emit, {"y": y}, a, b, bias)
    done = absorbed(graph)
    assert lines(done) == [
        "%0[2, 3, 5, 6]:[90, 6, 18, 1]: float32[2, 5, 3, 6] = matmul(a=%a, b=%b) |> add(%bias)"
    ]
    (node,) = done.nodes
    assert node.sources == graph.nodes
    # Without fusion the addition is between them, and its kernel stores row by row.
    assert copies(absorbed(graph, fused=False)) == ["transpose"]


def test_writers_store_only_what_their_family_can():
    for turned, permutation in ((True, [1, 0, 2]), (False, [0, 2, 1])):
        emit = Emitter()
        a, b = graph_input("a", (3, 5, 4)), graph_input("b", (4, 6))
        y = emit.transpose(emit.matmul(a, b), permutation=permutation)
        done = absorbed(graph_of(emit, {"y": y}, a, b))
        # A product's columns have to be contiguous.
        assert (copies(done) == []) == turned
    emit = Emitter()
    a = graph_input("a", (3, 5, 4))
    y = emit.transpose(emit.softmax(a, 2), permutation=[1, 0, 2])
    assert copies(absorbed(graph_of(emit, {"y": y}, a))) == ["transpose"]


def test_what_is_an_output_is_never_moved_away():
    emit = Emitter()
    a, b = graph_input("a", (3, 5, 4)), graph_input("b", (4, 6))
    product = emit.matmul(a, b)
    y = emit.transpose(product, permutation=[1, 0, 2])
    done = absorbed(graph_of(emit, {"y": y, "product": product}, a, b))
    assert copies(done) == ["transpose"]
    # Nor if there is one, under another shape.
    emit = Emitter()
    product = emit.matmul(a, b)
    flat = emit.reshape(product, (15, 6))
    y = emit.transpose(emit.reshape(flat, (3, 5, 6)), permutation=[1, 0, 2])
    done = absorbed(graph_of(emit, {"y": y, "flat": flat}, a, b))
    assert copies(done) == ["transpose"]


def test_what_others_read_is_never_moved_away():
    emit = Emitter()
    a, b = graph_input("a", (3, 5, 4)), graph_input("b", (4, 6))
    product = emit.matmul(a, b)
    y = emit.transpose(product, permutation=[1, 0, 2])
    z = emit.softmax(product, 2)
    done = absorbed(graph_of(emit, {"y": y, "z": z}, a, b))
    assert copies(done) == ["transpose"]


def test_writers_apart_store_row_by_row():
    emit = Emitter()
    a, b = graph_input("a", (3, 5, 4)), graph_input("b", (4, 6))
    y = emit.transpose(emit.matmul(a, b), permutation=[1, 0, 2])
    graph = graph_of(emit, {"y": y}, a, b)
    assert copies(absorbed(graph)) == []
    assert copies(absorbed(graph, "matmul")) == ["transpose"]
    assert copies(absorbed(graph, "transpose")) == ["transpose"]


def test_a_part_of_a_result_is_no_reason_to_store_elsewhere():
    emit = Emitter()
    a, b = graph_input("a", (3, 5, 4)), graph_input("b", (4, 6))
    product = emit.matmul(a, b)
    done = absorbed(graph_of(emit, {"y": emit.slice(product, [1, 0, 0], [2, 5, 6])}, a, b))
    assert copies(done) == ["slice"]
    emit = Emitter()
    done = absorbed(
        graph_of(emit, {"y": emit.split(emit.matmul(a, b), 3, axis=0)[1]}, a, b)
    )
    assert copies(done) == ["split"]


def test_two_movements_that_do_not_compose_are_both_stored_through():
    """The second one's dimensions cross the first one's, but the product's are finer than both."""
    emit = Emitter()
    a, b = graph_input("a", (2, 2, 2, 2, 3)), graph_input("b", (3, 5))
    product = emit.matmul(a, b)
    once = emit.transpose(emit.reshape(product, (4, 4, 5)), permutation=[1, 0, 2])
    twice = emit.transpose(emit.reshape(once, (2, 8, 5)), permutation=[1, 0, 2])
    done = absorbed(graph_of(emit, {"y": twice}, a, b))
    assert copies(done) == []
    (node,) = (n for n in done.nodes if isinstance(n, KernelNode))
    assert node.output.value is twice and node.output.strides == (20, 10, 5, 40, 1)


# -- whole graphs
def attention(data_type: str) -> Graph:
    """Attention of 4 heads with a residual connection, as users of the builder write it."""
    emit = Emitter()
    x = graph_input("x", (2, 8, 32), data_type)
    rng = np.random.default_rng(0)

    def linear(value: Value) -> Value:
        weight = emit.constant(rng.uniform(-0.2, 0.2, (32, 32)).astype(data_type))
        return emit.add(emit.matmul(value, weight), emit.constant(np.ones(32, data_type)))

    def heads(value: Value) -> Value:
        return emit.transpose(emit.reshape(value, (2, 8, 4, 8)), permutation=[0, 2, 1, 3])

    q, k, v = heads(linear(x)), heads(linear(x)), heads(linear(x))
    scores = emit.matmul(q, emit.transpose(k, permutation=[0, 1, 3, 2]))
    scores = emit.softmax(emit.mul(scores, emit.constant(0.35, data_type)), 3)
    context = emit.transpose(emit.matmul(scores, v), permutation=[0, 2, 1, 3])
    y = emit.relu(emit.add(linear(emit.reshape(context, (2, 8, 32))), x))
    return graph_of(emit, {"y": y}, x)


def test_a_transformer_layer_has_no_copy_left():
    graph = attention("float32")
    assert sum(node.operator.name == "transpose" for node in graph.nodes) == 5
    done = absorbed(graph)
    kernels = [node.title for node in done.nodes if isinstance(node, KernelNode)]
    assert kernels == [
        "matmul + add", "matmul + add", "matmul + add", "matmul + mul", "softmax", "matmul",
        "matmul + add + add + relu",
    ]


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("profile", ["nvidia_ampere", "adreno_minimum", "llvmpipe"])
def test_what_is_absorbed_is_planned(profile: str, data_type: str):
    device = stored_profile(profile)
    done = absorb(fuse(kernelize(attention(data_type)), device))
    kernels = [node for node in done.nodes if isinstance(node, KernelNode)]
    assert len(kernels) > 1
    for node in kernels:
        (dispatch,) = plan(node, device)
        bound = {b.value for b in dispatch.bindings}
        assert bound == {*node.reads, *node.writes}


def check_random(graph: Graph, apart: frozenset) -> KernelGraph:
    plain = kernelize(graph, apart)
    fused = fuse(plain, PROFILE)
    done = absorb(fused)
    assert_same_outputs(graph, done)
    outputs = set(graph.outputs.values())
    stored = {v for n in done.nodes for v in (n.writes if isinstance(n, KernelNode) else n.outputs)}
    assert all(v in stored or v in graph.inputs.values() or v.is_constant for v in outputs)
    for node in done.nodes:
        if not isinstance(node, KernelNode):
            assert isinstance(node.operator.lowering, View)
            continue
        family = family_of(node)
        assert family.stores(node)
        assert all(family.takes(node, name) for name in node.operands)
        assert len(node.sources) == 1 or apart.isdisjoint(node.sources)
        (first, *_) = node.sources
        if first in apart:
            for access, value in zip(node.operands.values(), first.inputs, strict=True):
                assert access.value is value and access.is_dense
        plan(node, PROFILE)
    return done


@pytest.mark.parametrize("kinds", [MOVES, PERMUTATIONS], ids=["all", "permutations"])
def test_the_meaning_stays(kinds):
    fewer = 0

    @settings(max_examples=max(200, settings.default.max_examples))
    @given(moving_graphs(kinds), st.sets(st.integers(0, 11), max_size=3))
    def check(made, alone):
        nonlocal fewer
        graph = made.graph
        live = remove_dead(kernelize(graph))
        apart = frozenset(graph.nodes[i] for i in alone if i < len(graph.nodes))
        done = check_random(graph, apart)
        fewer += len(copies(done)) < len(copies(live))

    check()
    assert fewer > 20


@settings(max_examples=60)
@given(graphs())
def test_the_meaning_of_random_graphs_stays(made):
    check_random(made.graph(), frozenset())


def test_dead_code_is_removed_and_a_graph_without_stays():
    emit = Emitter()
    a = graph_input("a", (4,))
    y = emit.neg(a)
    emit.exp(y)
    graph = kernelize(graph_of(emit, {"y": y}, a))
    alive = remove_dead(graph)
    assert [node.title for node in alive.nodes] == ["neg"]
    assert remove_dead(alive) is alive
