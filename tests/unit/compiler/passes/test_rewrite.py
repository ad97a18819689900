"""Patterns and rewrites."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import (
    evaluate,
    graph_input,
    graph_of,
    read,
    with_constant_tensors,
    with_origins,
)
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.passes import Compilation, remove_dead_code, run_passes
from webnn_vk.compiler.passes.patterns import Anything, Constant, Maybe, Op
from webnn_vk.compiler.passes.rewrite import Substitution, apply_rewrites, rewrite, rewrite_pass

HEAD = "inputs { a: f32[2, 2]; b: f32[2, 2]; }"


@rewrite(Op("neg", input=Op("neg", input="x")))
def negated_twice(match, emit):
    return match["x"]


@rewrite(Op("relu", bind="outer", input=Op("relu", bind="inner")))
def relu_twice(match, emit):
    return match["inner"].output


@rewrite(Op("add", a="x", b=Op("neg", input="y", single_use=True), commutative=True))
def difference(match, emit):
    return emit.sub(match["x"], match["y"])


@rewrite(Op("matmul", a="a", b=Op("transpose", input="b", permutation=(1, 0))))
def product(match, emit):
    return emit.gemm(match["a"], match["b"], b_transpose=True)


RULES = (negated_twice, relu_twice, difference, product)


def rewritten(nodes: str, *rules, outputs: str = "y", **options) -> Graph:
    graph = apply_rewrites(read(HEAD, nodes, outputs), rules or RULES, **options)
    graph.verify()
    return graph


def fits(pattern: Op, graph: Graph | str) -> int:
    """The number of matches of the pattern in a graph, or in that of some nodes."""
    count = 0

    def build(match, emit):
        nonlocal count
        count += 1

    if isinstance(graph, str):
        graph = read(HEAD, graph)
    assert apply_rewrites(graph, [rewrite(pattern)(build)]) is graph
    return count


def test_a_rewrite_text_in_text_out():
    graph = rewritten(
        'b.t = transpose(b, label="turn"); p = matmul(a, b.t, label="qk"); n = neg(p); m = neg(n); '
        "y = add(m, a)"
    )
    expected = read(HEAD, 'p = gemm(a, b, bTranspose=true, label="qk"); y = add(p, a)')
    product, total = expected.nodes
    product = replace(product, origins=("transpose [turn]", "matmul [qk]"))
    assert str(graph) == str(replace(expected, nodes=(product, total)))


def test_what_is_built_is_looked_at_again():
    chain = "; ".join(f"v{i + 1} = neg(v{i})" for i in range(100))
    graph = rewritten(f"v0 = exp(a); {chain}", outputs="v100")
    assert [n.operator.name for n in graph.nodes] == ["exp"]
    # The first rewrite's node is the root of the next match: a − (−b) is matched once it exists.
    minus = rewrite(Op("sub", a="x", b=Op("neg", input="y")))(
        lambda match, emit: emit.add(match["x"], match["y"])
    )
    graph = rewritten('n = neg(b); m = neg(n, label="m"); y = add(m, a)', difference, minus)
    assert [n.operator.name for n in graph.nodes] == ["add"]
    assert graph.nodes[0].origins == ("neg", "neg [m]", "add")


def test_origins_are_joined_and_device_and_reason_stay():
    graph = read(HEAD, 'n = neg(b, label="m"); y = add(a, n, label="s")')

    def placed(devices: list[str], **changes) -> Graph:
        nodes = (replace(n, device=d, **changes) for n, d in zip(graph.nodes, devices, strict=True))
        return apply_rewrites(replace(graph, nodes=tuple(nodes)), RULES)

    (node,) = placed(["cpu", "cpu"], reason="slow", origins=("gru [g]", "linear")).nodes
    assert (node.operator.name, node.label) == ("sub", "s")
    assert (node.device, node.reason) == ("cpu", "slow")
    assert node.origins == ("gru [g]", "linear")
    # Nothing is matched across devices.
    assert [n.operator.name for n in placed(["cpu", "vulkan"]).nodes] == ["neg", "add"]


def test_operators_to_keep_are_neither_root_nor_part():
    nodes = "n = neg(b); y = add(a, n)"
    for kept in ("neg", "add"):
        graph = read(HEAD, nodes)
        assert apply_rewrites(graph, RULES, kept=frozenset({kept})) is graph
    assert len(rewritten(nodes, kept=frozenset({"sub"})).nodes) == 1


def test_commutative_operands_fit_in_either_order():
    expected = with_origins(read(HEAD, "y = sub(a, b)"), "neg", "add")
    for operands in ("a, n", "n, a"):
        assert str(rewritten(f"n = neg(b); y = add({operands})")) == str(expected)
    one = Op("sub", a="x", b=Op("neg"))
    assert fits(one, "n = neg(a); y = sub(n, b)") == 0
    with pytest.raises(ValueError, match="add: two operands are needed to exchange them"):
        Op("add", a="x", commutative=True)


def test_alternatives_are_tried_until_one_builds():
    seen = []

    @rewrite(Op("add", a=Op("neg", bind="n"), b="x", commutative=True))
    def second(match, emit):
        seen.append(match["n"].label)
        return match["x"] if match["n"].label == "right" else None

    nodes = 'm = neg(a, label="left"); n = neg(b, label="right"); y = add(m, n)'
    graph = rewritten(nodes, second)
    assert seen == ["left", "right"]
    assert graph.outputs["y"] is graph.nodes[0].output and graph.nodes[0].label == "left"


def test_one_word_stands_for_one_value():
    square = Op("mul", a="x", b="x")
    assert fits(square, "y = mul(a, a)") == 1
    assert fits(square, "y = mul(a, b)") == 0
    same = Op("mul", a=Op("exp", bind="e"), b=Op("exp", bind="e"))
    assert fits(same, "e = exp(a); y = mul(e, e)") == 1
    assert fits(same, "e = exp(a); f = exp(a); y = mul(e, f)") == 0
    # Words chosen below are also fixed here: every combination is tried.
    crossed = Op(
        "add",
        a=Op("mul", a="x", b="y", commutative=True),
        b=Op("sub", a="x"),
    )
    assert fits(crossed, "m = mul(a, b); s = sub(b, a); y = add(m, s)") == 1


@pytest.mark.parametrize(("pattern", "nodes", "count"), [
    (Op("gemm", c=None), "y = gemm(a, b)", 1),
    (Op("gemm", c=None), "y = gemm(a, b, c=a)", 0),
    (Op("gemm", c="c"), "y = gemm(a, b)", 0),
    (Op("gemm", c="c"), "y = gemm(a, b, c=a)", 1),
    (Op("gemm", c=Maybe("c")), "y = gemm(a, b)", 1),
    (Op("gemm", c=Maybe(Op("neg"))), "y = gemm(a, b)", 1),
    (Op("gemm", c=Maybe(Op("neg"))), "y = gemm(a, b, c=a)", 0),
    (Op("gemm", alpha=2.0, b_transpose=False), "y = gemm(a, b, alpha=2)", 1),
    (Op("gemm", alpha=lambda a: a > 2), "y = gemm(a, b, alpha=2)", 0),
    (Op("add", "sub", a="a"), "y = sub(a, b)", 1),
    (Op("add", "sub", a="a"), "y = mul(a, b)", 0),
    (Op("relu", where=lambda n: n.label == "x"), 'y = relu(a, label="x")', 1),
    (Op("relu", where=lambda n: n.label == "x"), "y = relu(a)", 0),
    (Op("relu", input=Anything("v", lambda v: v.name == "a")), "y = relu(a)", 1),
    (Op("relu", input=Anything("v", lambda v: v.name == "a")), "y = relu(b)", 0),
    (Op("concat", inputs=["x", Op("neg")]), "n = neg(b); y = concat([a, n], axis=0)", 1),
    (Op("concat", inputs=["x", Op("neg")]), "n = neg(b); y = concat([n, a], axis=0)", 0),
    (Op("concat", inputs=["x"]), "y = concat([a, a], axis=0)", 0),
    # A pattern doesn't look through nodes with several results.
    (Op("relu", input=Op("split")), "[o, p] = split(a, splits=2); y = relu(p)", 0),
    (Op("relu", input=Op("neg", single_use=True)), "n = neg(a); y = relu(n)", 1),
    (Op("mul", a=Op("neg", single_use=True)), "n = neg(a); y = mul(n, n)", 0),
])
def test_what_fits(pattern, nodes, count):
    assert fits(pattern, nodes) == count


@pytest.mark.parametrize("outputs", ["y; m", "y; n"])
def test_a_value_that_others_need_is_not_of_single_use(outputs):
    graph = read(HEAD, "n = neg(a); m = exp(n); y = relu(n)", outputs)
    assert fits(Op("relu", input=Op("neg", single_use=True)), graph) == 0
    assert fits(Op("relu", input=Op("neg")), graph) == 1


CONSTANT = " consts { c: f32[2]; }"


@pytest.mark.parametrize(("head", "nodes", "outputs", "count"), [
    (HEAD + CONSTANT, "y = add(a, c)", "y", 1),
    # Constant only on the device.
    (HEAD + " inputs { tensor: f32[2]; }", "y = add(a, tensor)", "y", 0),
    (HEAD, "y = add(a, b)", "y", 0),
    (HEAD + CONSTANT, "d = sub(b, c); y = add(a, c)", "y; d", 1),
])
def test_constants(head, nodes, outputs, count):
    graph = read(head, nodes, outputs, {"c": [1, 2]})
    graph = with_constant_tensors(graph, *({"tensor"} & graph.inputs.keys()))
    assert fits(Op("add", b=Constant("c")), graph) == count
    alone = count and outputs == "y"
    assert fits(Op("add", b=Constant("c", single_use=True)), graph) == alone
    assert fits(Op("add", b=Constant("c", where=lambda v: v.data[0] == 2)), graph) == 0


def test_patterns_are_checked_where_they_are_written():
    with pytest.raises(ValueError, match="relu has no axis, x"):
        Op("relu", x="y", axis=1)
    with pytest.raises(ValueError, match="relu has no axis"):
        Op("softmax", "relu", axis=1)
    with pytest.raises(KeyError, match="frobnicate"):
        Op("frobnicate")


def test_replacements_are_checked():
    @rewrite(Op("transpose"))
    def other_shape(match, emit):
        return emit.reshape(match.root.operands["input"], (4,))

    with pytest.raises(ValueError, match=r"other_shape puts float32\[4\] in the place of trans"):
        rewritten("y = transpose(a)", other_shape)

    @rewrite(Op("transpose"))
    def itself(match, emit):
        return match.root.output

    with pytest.raises(ValueError, match="itself puts transpose in its own place"):
        rewritten("y = transpose(a)", itself)


def test_rewrites_that_undo_each_other_are_named():
    @rewrite(Op("add"))
    def swapped(match, emit):
        return emit.add(match.root.operands["b"], match.root.operands["a"])

    with pytest.raises(RuntimeError, match="rewrites go on without end, at last swapped"):
        rewritten("y = add(a, b)", swapped)


def test_several_results_are_replaced():
    @rewrite(Op("split", where=lambda n: len(n.outputs) == 2))
    def by_slices(match, emit):
        value = match.root.operands["input"]
        return [emit.slice(value, (i, 0), (1, 2)) for i in range(2)]

    graph = rewritten(
        "[p, q] = split(a, splits=2); y = sub(q, p)", by_slices, outputs="y; q"
    )
    assert [n.operator.name for n in graph.nodes] == ["slice", "slice", "sub"]
    a = np.array([[1, 2], [5, 7]], np.float32)
    assert evaluate(graph, a=a)["y"].tolist() == [[4, 5]]
    assert evaluate(graph, a=a)["q"].tolist() == [[5, 7]]


def test_a_later_round_sees_what_a_rewrite_set_free():
    # The neg is read once only after the relu further down is gone.
    nodes = "n = neg(b); s = add(a, n); m = neg(n); y = mul(s, m)"
    once = rewritten(nodes)
    assert "neg" in {n.operator.name for n in once.nodes}
    compilation = Compilation(verify=True)
    step = rewrite_pass("simplify", *RULES)
    graph = run_passes([step], read(HEAD, nodes), compilation, remove_dead_code)
    assert [n.operator.name for n in graph.nodes] == ["sub", "mul"]
    assert compilation.notes.of("simplify") == ("neg + neg", "neg + add")


def test_the_work_does_not_grow_with_the_readers_of_a_value():
    def looked_at(readers: int) -> int:
        count = 0

        def where(item) -> bool:
            nonlocal count
            count += 1
            return True

        @rewrite(
            Op("add", a=Op("neg", where=where, input=Anything("x", where)), b="y", where=where,
               commutative=True)
        )
        def never(match, emit):
            return None

        emit = Emitter()
        a, b = graph_input("a", (2,)), graph_input("b", (2,))
        shared = emit.neg(a)
        outputs = {f"y{i}": emit.add(shared, b) for i in range(readers)}
        graph = graph_of(emit, outputs, a, b)
        reads = Counting()
        apply_rewrites(
            replace(graph, nodes=tuple(replace(n, operands=reads.of(n)) for n in graph.nodes)),
            [never],
        )
        return count + reads.count

    few, many = looked_at(60), looked_at(6000)
    assert many <= 101 * few
    assert many < 6000 * 25


class Counting:
    """Counts lookups of operands in all mappings that it returns."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, node):
        counting = self

        class Operands(dict):
            def get(self, *key):
                counting.count += 1
                return super().get(*key)

            def values(self):
                counting.count += len(self)
                return super().values()

        return Operands(node.operands)


def test_replacing_a_value_with_many_readers_is_linear_too():
    emit = Emitter()
    a = graph_input("a", (2,))
    value: Value = a
    for _ in range(3000):
        value = emit.neg(emit.neg(value))
    outputs = {f"y{i}": emit.exp(value) for i in range(3000)}
    graph = graph_of(emit, outputs, a)
    lines = []
    done = apply_rewrites(graph, RULES, applied=lines.append)
    assert len(lines) == 3000 and len(done.nodes) == 3000
    assert all(n.inputs == (a,) for n in done.nodes)


def test_a_value_replaced_many_times_is_found_in_one_step():
    steps = 0

    class Counted(Substitution):
        def __getitem__(self, value):
            nonlocal steps
            steps += 1
            return super().__getitem__(value)

    values = [graph_input(str(i), (1,)) for i in range(1001)]
    known = Counted(zip(values, values[1:], strict=False))
    for _ in range(1000):
        assert known.get(values[0]) is values[-1] and known.get(values[500]) is values[-1]
    assert steps < 4000


@st.composite
def random_graphs(draw):
    """Random graphs of the rules' operators, on two square inputs; numbers stay small integers, so
    that every order of summing is exact."""
    emit = Emitter()
    a, b = graph_input("a", (2, 2)), graph_input("b", (2, 2))
    values = [a, b, emit.constant(np.array([[1, -2], [3, 4]], np.float32))]
    for _ in range(draw(st.integers(1, 14))):
        # Recent values more often: the test needs chains.
        pick = st.integers(max(0, len(values) - 4), len(values) - 1)
        x, y = values[draw(pick)], values[draw(pick)]
        kind = draw(st.sampled_from(["neg", "relu", "transpose", "add", "matmul"]))
        if kind in ("add", "matmul"):
            values.append(emit.clamp(getattr(emit, kind)(x, y), min_value=-4, max_value=4))
        else:
            values.append(getattr(emit, kind)(x))
    chosen = draw(st.sets(st.integers(3, len(values) - 1), min_size=1, max_size=3))
    return graph_of(emit, {f"y{i}": values[i] for i in sorted(chosen)}, a, b)


def test_rewrites_keep_the_meaning():
    count = 0

    @given(random_graphs())
    def check(graph):
        nonlocal count
        a = np.array([[1, -2], [0, 3]], np.float32)
        arrays = {"a": a, "b": 1 - a}
        expected = evaluate(graph, **arrays)
        compilation = Compilation(verify=True)
        step = rewrite_pass("simplify", *RULES)
        done = run_passes([step], graph, compilation, remove_dead_code)
        count += done is not graph
        for name, array in evaluate(done, **arrays).items():
            np.testing.assert_array_equal(array, expected[name])

    check()
    assert count > 5
