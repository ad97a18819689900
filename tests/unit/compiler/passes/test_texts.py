"""The passes that every graph goes through: text in, text out, and equal results before and after
on random graphs."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.graphs import graphs
from tests.support.graph_text import parse
from tests.support.graphs import assert_text, evaluate
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.ops.lowering import Decompose
from webnn_vk.compiler.passes import (
    DEAD_CODE,
    DECOMPOSE,
    FOLD,
    ORDER,
    PLACE,
    Compilation,
    run_passes,
)

pytestmark = pytest.mark.sample(0.5)

DEVICE = Compilation(stored_profile(), verify=True, force_cpu=frozenset({"tanh", "add"}))
COMPOSITE = sorted(n for n, o in ALL_OPERATORS.items() if isinstance(o.lowering, Decompose))

DEAD_CODE_BEFORE = """
input %a: float32[2]
input %unused: int8[3]
constant %c: float32[2] = [1, 2]
%b = neg(%a)
%d = add(%b, %c)
%p, %q = split(%b, splits=2)
%r = neg(%d)
output q = %q
"""
DEAD_CODE_AFTER = """
input %a: float32[2]
input %unused: int8[3]
%b = neg(%a)
%p, %q = split(%b, splits=2)
output q = %q
"""
FOLD_BEFORE = """
input %a: float32[2, 2]
constant %c: float32[2, 2] = [1, 2, 3, 4]
constant %t: float32[2, 2] = tensor(t)
constant %one: float32[] = 1
%d = transpose [d](%c)
%e = add(%d, %one)
%f = mul(%a, %e)
%g = mul(%f, %t)
%h = neg(%t)
%large = expand(%one, new_shape=(1024, 1024))
output g = %g
output h = %h
output e = %e
output large = %large
"""
FOLD_AFTER = """
input %a: float32[2, 2]
constant %e: float32[2, 2] = [2, 4, 3, 5]
constant %t: float32[2, 2] = tensor(t)
constant %one: float32[] = 1
%f = mul(%a, %e)
%g = mul(%f, %t)
%h = neg(%t)
%large = expand(%one, new_shape=(1024, 1024))
output g = %g
output h = %h
output e = %e
output large = %large
"""
GRU_CELL = """
input %x: float32[2, 3]
input %w: float32[6, 3]
input %r: float32[6, 2]
input %h: float32[2, 2]
%y = gru_cell [g](%x, %w, %r, %h, hidden_size=2)
output y = %y
"""
GRU_CELL_AFTER = """
input %x: float32[2, 3]
input %w: float32[6, 3]
input %r: float32[6, 2]
input %h: float32[2, 2]
constant %one: float32[] = 1
%i = gemm [g](%x, %w, b_transpose=True) from "gru_cell [g]"
%izr, %in = split [g](%i, splits=(4, 2), axis=1) from "gru_cell [g]"
%k = gemm [g](%h, %r, b_transpose=True) from "gru_cell [g]"
%kzr, %kn = split [g](%k, splits=(4, 2), axis=1) from "gru_cell [g]"
%zr = add [g](%izr, %kzr) from "gru_cell [g]"
%gates = sigmoid [g](%zr) from "gru_cell [g]"
%z, %reset = split [g](%gates, splits=(2, 2), axis=1) from "gru_cell [g]"
%rk = mul [g](%reset, %kn) from "gru_cell [g]"
%sum = add [g](%in, %rk) from "gru_cell [g]"
%new = tanh [g](%sum) from "gru_cell [g]"
%rest = sub [g](%one, %z) from "gru_cell [g]"
%old = mul [g](%z, %h) from "gru_cell [g]"
%part = mul [g](%new, %rest) from "gru_cell [g]"
%y = add [g](%old, %part) from "gru_cell [g]"
output y = %y
"""
PLACE_BEFORE = """
input %a: float32[2]
%b = neg [n](%a)
%c = tanh(%b)
%d = exp(%a)
%e = add(%c, %d)
output e = %e
"""
PLACE_AFTER = """
input %a: float32[2]
%b = neg [n](%a) on vulkan
%c = tanh(%b) on cpu because "forced to the CPU"
%d = exp(%a) on vulkan
%e = add(%c, %d) on cpu because "forced to the CPU"
output e = %e
"""
ORDER_AFTER = """
input %a: float32[2]
%b = neg [n](%a) on vulkan
%d = exp(%a) on vulkan
%c = tanh(%b) on cpu because "forced to the CPU"
%e = add(%c, %d) on cpu because "forced to the CPU"
output e = %e
"""


@pytest.mark.parametrize(("step", "before", "after"), [
    (DEAD_CODE, DEAD_CODE_BEFORE, DEAD_CODE_AFTER),
    (FOLD, FOLD_BEFORE, FOLD_AFTER),
    (DECOMPOSE, GRU_CELL, GRU_CELL_AFTER),
    (PLACE, PLACE_BEFORE, PLACE_AFTER),
    (ORDER, PLACE_AFTER, ORDER_AFTER),
])
def test_text_in_text_out(step, before, after):
    graph = parse(before)
    assert_text(run_passes([step], graph, DEVICE), after)
    assert_text(graph, before)
    # Nothing is left to do, and only placement repeats its result.
    done = parse(after)
    again = step.run(done, DEVICE)
    assert again is done or step in (PLACE, ORDER) and str(again) == str(done)


@pytest.mark.parametrize("step", [DEAD_CODE, FOLD, DECOMPOSE, PLACE, ORDER])
def test_the_meaning_is_kept(step):
    changes = 0

    # Few random graphs give a pass anything to do.
    @settings(max_examples=max(200, settings.default.max_examples))
    @given(graphs())
    def check(random_graph):
        nonlocal changes
        graph = random_graph.graph()
        if step is ORDER:
            graph = PLACE.run(graph, DEVICE)
        if step is DEAD_CODE:
            # Nodes that only the other outputs need become dead.
            name = min(graph.outputs)
            graph = type(graph)(graph.inputs, {name: graph.outputs[name]}, graph.nodes)
        feeds = {n: random_graph.sources[int(n[1:])] for n in graph.inputs}
        expected = evaluate(graph, **feeds)
        done = run_passes([step], graph, DEVICE)
        changes += str(done) != str(graph)
        for name, array in evaluate(done, **feeds).items():
            np.testing.assert_array_equal(array, expected[name])

    check()
    assert changes > 5 or step is DECOMPOSE


@pytest.mark.parametrize("name", COMPOSITE)
def test_decomposition_keeps_the_meaning(name):
    @settings(max_examples=20)
    # In float16 the parts round where the whole does not.
    @given(examples(name, flavours=("ordinary",), types={"input": "float32"}))
    def check(example):
        graph = example.graph()
        done = run_passes([DECOMPOSE], graph, DEVICE)
        assert not {n.operator.name for n in done.nodes} & set(COMPOSITE)
        assert {o for n in done.nodes for o in n.origins} == {name}
        feeds = {n: a for n, a in example.operands.items() if n in graph.inputs}
        expected = evaluate(graph, **feeds)
        for output, array in evaluate(done, **feeds).items():
            np.testing.assert_allclose(array, expected[output], rtol=2e-4, atol=2e-4)

    check()
