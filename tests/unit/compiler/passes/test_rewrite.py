"""Patterns and rewrites."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graph_text import parse
from tests.support.graphs import assert_text, evaluate, graph_input, graph_of
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.passes import Compilation, remove_dead_code, run_passes
from webnn_vk.compiler.passes.patterns import Anything, Constant, Maybe, Op
from webnn_vk.compiler.passes.rewrite import Substitution, apply_rewrites, rewrite, rewrite_pass

HEAD = "input %a: float32[2, 2]\ninput %b: float32[2, 2]\n"


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


def rewritten(text: str, *rules, **options) -> Graph:
    graph = apply_rewrites(parse(HEAD + text), rules or RULES, **options)
    graph.verify()
    return graph


def fits(pattern: Op, text: str) -> int:
    """The number of matches of the pattern in a graph."""
    count = 0

    def build(match, emit):
        nonlocal count
        count += 1

    graph = parse(HEAD + text)
    assert apply_rewrites(graph, [rewrite(pattern)(build)]) is graph
    return count


def test_a_rewrite_text_in_text_out():
    graph = rewritten(
        "%t = transpose [turn](%b)\n%p = matmul [qk](%a, %t)\n%n = neg(%p)\n%m = neg(%n)\n"
        "%o = add(%m, %a)\noutput y = %o"
    )
    assert_text(
        graph,
        HEAD + '%p = gemm [qk](%a, %b, b_transpose=True) from "transpose [turn]", "matmul [qk]"\n'
        "%o = add(%p, %a)\noutput y = %o",
    )


def test_what_is_built_is_looked_at_again():
    chain = "".join(f"%{i + 1} = neg(%{i})\n" for i in range(6, 106))
    graph = rewritten(f"%6 = exp(%a)\n{chain}output y = %106")
    assert [n.operator.name for n in graph.nodes] == ["exp"]
    # The first rewrite's node is the root of the next match: a − (−b) is matched once it exists.
    minus = rewrite(Op("sub", a="x", b=Op("neg", input="y")))(
        lambda match, emit: emit.add(match["x"], match["y"])
    )
    graph = rewritten(
        "%n = neg(%b)\n%m = neg [m](%n)\n%o = add(%m, %a)\noutput y = %o", difference, minus
    )
    assert [n.operator.name for n in graph.nodes] == ["add"]
    assert graph.nodes[0].origins == ("neg", "neg [m]", "add")


def test_origins_are_joined_and_device_and_reason_stay():
    placed = 'on cpu because "slow" from "gru [g]", "linear"'
    graph = rewritten(f"%n = neg [m](%b) {placed}\n%o = add [s](%a, %n) {placed}\noutput y = %o")
    (node,) = graph.nodes
    assert (node.operator.name, node.label) == ("sub", "s")
    assert (node.device, node.reason) == ("cpu", "slow")
    assert node.origins == ("gru [g]", "linear")
    # Nothing is matched across devices.
    graph = rewritten("%n = neg(%b) on cpu\n%o = add(%a, %n) on vulkan\noutput y = %o")
    assert [n.operator.name for n in graph.nodes] == ["neg", "add"]


def test_operators_to_keep_are_neither_root_nor_part():
    text = "%n = neg(%b)\n%o = add(%a, %n)\noutput y = %o"
    for kept in ("neg", "add"):
        graph = parse(HEAD + text)
        assert apply_rewrites(graph, RULES, kept=frozenset({kept})) is graph
    assert len(rewritten(text, kept=frozenset({"sub"})).nodes) == 1


def test_commutative_operands_fit_in_either_order():
    for operands, expected in (("%a, %n", "%a, %b"), ("%n, %a", "%a, %b")):
        graph = rewritten(f"%n = neg(%b)\n%o = add({operands})\noutput y = %o")
        expected = f'{HEAD}%o = sub({expected}) from "neg", "add"\noutput y = %o'
        assert_text(graph, expected)
    one = Op("sub", a="x", b=Op("neg"))
    assert fits(one, "%n = neg(%a)\n%o = sub(%n, %b)\noutput y = %o") == 0
    with pytest.raises(ValueError, match="add: two operands are needed to exchange them"):
        Op("add", a="x", commutative=True)


def test_alternatives_are_tried_until_one_builds():
    seen = []

    @rewrite(Op("add", a=Op("neg", bind="n"), b="x", commutative=True))
    def second(match, emit):
        seen.append(match["n"].label)
        return match["x"] if match["n"].label == "right" else None

    text = "%m = neg [left](%a)\n%n = neg [right](%b)\n%o = add(%m, %n)\noutput y = %o"
    graph = rewritten(text, second)
    assert seen == ["left", "right"]
    assert graph.outputs["y"] is graph.nodes[0].output and graph.nodes[0].label == "left"


def test_one_word_stands_for_one_value():
    square = Op("mul", a="x", b="x")
    assert fits(square, "%o = mul(%a, %a)\noutput y = %o") == 1
    assert fits(square, "%o = mul(%a, %b)\noutput y = %o") == 0
    same = Op("mul", a=Op("exp", bind="e"), b=Op("exp", bind="e"))
    assert fits(same, "%e = exp(%a)\n%o = mul(%e, %e)\noutput y = %o") == 1
    assert fits(same, "%e = exp(%a)\n%f = exp(%a)\n%o = mul(%e, %f)\noutput y = %o") == 0
    # Words chosen below are also fixed here: every combination is tried.
    crossed = Op(
        "add",
        a=Op("mul", a="x", b="y", commutative=True),
        b=Op("sub", a="x"),
    )
    assert fits(crossed, "%m = mul(%a, %b)\n%s = sub(%b, %a)\n%o = add(%m, %s)\noutput y = %o") == 1


@pytest.mark.parametrize(("pattern", "text", "count"), [
    (Op("gemm", c=None), "%o = gemm(%a, %b)", 1),
    (Op("gemm", c=None), "%o = gemm(%a, %b, c=%a)", 0),
    (Op("gemm", c="c"), "%o = gemm(%a, %b)", 0),
    (Op("gemm", c="c"), "%o = gemm(%a, %b, c=%a)", 1),
    (Op("gemm", c=Maybe("c")), "%o = gemm(%a, %b)", 1),
    (Op("gemm", c=Maybe(Op("neg"))), "%o = gemm(%a, %b)", 1),
    (Op("gemm", c=Maybe(Op("neg"))), "%o = gemm(%a, %b, c=%a)", 0),
    (Op("gemm", alpha=2.0, b_transpose=False), "%o = gemm(%a, %b, alpha=2)", 1),
    (Op("gemm", alpha=lambda a: a > 2), "%o = gemm(%a, %b, alpha=2)", 0),
    (Op("add", "sub", a="a"), "%o = sub(%a, %b)", 1),
    (Op("add", "sub", a="a"), "%o = mul(%a, %b)", 0),
    (Op("relu", where=lambda n: n.label == "x"), "%o = relu [x](%a)", 1),
    (Op("relu", where=lambda n: n.label == "x"), "%o = relu(%a)", 0),
    (Op("relu", input=Anything("v", lambda v: v.name == "a")), "%o = relu(%a)", 1),
    (Op("relu", input=Anything("v", lambda v: v.name == "a")), "%o = relu(%b)", 0),
    (Op("concat", inputs=["x", Op("neg")]), "%n = neg(%b)\n%o = concat([%a, %n], axis=0)", 1),
    (Op("concat", inputs=["x", Op("neg")]), "%n = neg(%b)\n%o = concat([%n, %a], axis=0)", 0),
    (Op("concat", inputs=["x"]), "%o = concat([%a, %a], axis=0)", 0),
    # A pattern doesn't look through nodes with several results.
    (Op("relu", input=Op("split")), "%o, %p = split(%a, splits=2)\n%q = relu(%p)", 0),
    (Op("relu", input=Op("neg", single_use=True)), "%n = neg(%a)\n%o = relu(%n)", 1),
    (Op("relu", input=Op("neg", single_use=True)), "%n = neg(%a)\n%m = exp(%n)\n%o = relu(%n)", 0),
    (Op("relu", input=Op("neg", single_use=True)), "%o = neg(%a)\n%r = relu(%o)", 0),
    (Op("mul", a=Op("neg", single_use=True)), "%n = neg(%a)\n%o = mul(%n, %n)", 0),
])
def test_what_fits(pattern, text, count):
    assert fits(pattern, text + "\noutput y = %o") == count


@pytest.mark.parametrize(("constant", "count"), [
    ("constant %c: float32[2] = [1, 2]\n%o = add(%a, %c)", 1),
    # Constant only on the device.
    ("constant %c: float32[2] = tensor(0)\n%o = add(%a, %c)", 0),
    ("%o = add(%a, %b)", 0),
    ("constant %c: float32[2] = [1, 2]\n%d = sub(%b, %c)\n%o = add(%a, %c)", 1),
])
def test_constants(constant, count):
    text = constant + "\noutput y = %o"
    assert fits(Op("add", b=Constant("c")), text) == count
    alone = count and "sub" not in constant
    assert fits(Op("add", b=Constant("c", single_use=True)), text) == alone
    assert fits(Op("add", b=Constant("c", where=lambda v: v.data[0] == 2)), text) == 0


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
        rewritten("%o = transpose(%a)\noutput y = %o", other_shape)

    @rewrite(Op("transpose"))
    def itself(match, emit):
        return match.root.output

    with pytest.raises(ValueError, match="itself puts transpose in its own place"):
        rewritten("%o = transpose(%a)\noutput y = %o", itself)


def test_rewrites_that_undo_each_other_are_named():
    @rewrite(Op("add"))
    def swapped(match, emit):
        return emit.add(match.root.operands["b"], match.root.operands["a"])

    with pytest.raises(RuntimeError, match="rewrites go on without end, at last swapped"):
        rewritten("%o = add(%a, %b)\noutput y = %o", swapped)


def test_several_results_are_replaced():
    @rewrite(Op("split", where=lambda n: len(n.outputs) == 2))
    def by_slices(match, emit):
        value = match.root.operands["input"]
        return [emit.slice(value, (i, 0), (1, 2)) for i in range(2)]

    graph = rewritten(
        "%p, %q = split(%a, splits=2)\n%o = sub(%q, %p)\noutput y = %o\noutput q = %q", by_slices
    )
    assert [n.operator.name for n in graph.nodes] == ["slice", "slice", "sub"]
    a = np.array([[1, 2], [5, 7]], np.float32)
    assert evaluate(graph, a=a, b=a)["y"].tolist() == [[4, 5]]
    assert evaluate(graph, a=a, b=a)["q"].tolist() == [[5, 7]]


def test_a_later_round_sees_what_a_rewrite_set_free():
    # The neg is read once only after the relu further down is gone.
    text = "%n = neg(%b)\n%s = add(%a, %n)\n%m = neg(%n)\n%o = mul(%s, %m)\noutput y = %o"
    once = rewritten(text)
    assert "neg" in {n.operator.name for n in once.nodes}
    compilation = Compilation(verify=True)
    step = rewrite_pass("simplify", *RULES)
    graph = run_passes([step], parse(HEAD + text), compilation, remove_dead_code)
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
