"""The passes that every graph goes through: graph in, text out, and equal results before and after
on random graphs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.graphs import graphs
from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, read, with_constant_tensors
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

DEVICE = Compilation(stored_profile(), verify=True, force_cpu=frozenset({"tanh", "add"}))
COMPOSITE = sorted(n for n, o in ALL_OPERATORS.items() if isinstance(o.lowering, Decompose))


def dead_code():
    graph = read(
        "inputs { a: f32[2]; unused: i8[3]; } consts { c: f32[2]; }",
        "b = neg(a); d = add(b, c); [p, q] = split(b, splits=2); r = neg(d); s = neg(unused);",
        "q; r; s",
    )
    return replace(graph, outputs={"q": graph.outputs["q"]})


DEAD_CODE_AFTER = """\
input %a: float32[2]
input %unused: int8[3]
%0: float32[2] = neg(input=%a)
%1.0: float32[1], %1.1: float32[1] = split(input=%0, splits=(1, 1), axis=0)
output q = %1.1"""


def foldable():
    graph = read(
        "inputs { a: f32[2, 2]; t: f32[2, 2]; } consts { c: f32[2, 2]; one: f32[] @scalar(1); }",
        """
d = transpose(c, label="d"); e = add(d, one); f = mul(a, e); g = mul(f, t);
h = neg(t);
large = expand(one, newShape=[1024, 1024]);
""",
        "g; h; e; large", {"c": [[1, 2], [3, 4]]},
    )
    return with_constant_tensors(graph, "t")


FOLD_AFTER = """\
input %a: float32[2, 2]
constant %c0: float32[2, 2] = [2.0, 4.0, 3.0, 5.0]
constant %c1: float32[2, 2] = tensor(0)
constant %c2: float32[] = 1.0
%0: float32[2, 2] = mul(a=%a, b=%c0)
%1: float32[2, 2] = mul(a=%0, b=%c1)
%2: float32[2, 2] = neg(input=%c1)
%3: float32[1024, 1024] = expand(input=%c2, new_shape=(1024, 1024))
output g = %1
output h = %2
output e = %c0
output large = %3"""


def gru_cell():
    return read(
        "inputs { x: f32[2, 3]; w: f32[6, 3]; r: f32[6, 2]; h: f32[2, 2]; }",
        'y = gruCell(x, w, r, h, hiddenSize=2, label="g")',
    )


GRU_CELL_PARTS = """
i = gemm(x, w, bTranspose=true, label="g");
[izr, in] = split(i, splits=[4, 2], axis=1, label="g");
k = gemm(h, r, bTranspose=true, label="g");
[kzr, kn] = split(k, splits=[4, 2], axis=1, label="g");
zr = add(izr, kzr, label="g");
gates = sigmoid(zr, label="g");
[z, reset] = split(gates, splits=[2, 2], axis=1, label="g");
rk = mul(reset, kn, label="g");
sum = add(in, rk, label="g");
new = tanh(sum, label="g");
rest = sub(one, z, label="g");
old = mul(z, h, label="g");
part = mul(new, rest, label="g");
y = add(old, part, label="g");
"""


def gru_cell_after():
    graph = read(
        "inputs { x: f32[2, 3]; w: f32[6, 3]; r: f32[6, 2]; h: f32[2, 2]; } "
        "consts { one: f32[] @scalar(1); }", GRU_CELL_PARTS,
    )
    nodes = (replace(node, origins=("gru_cell [g]",)) for node in graph.nodes)
    return str(replace(graph, nodes=tuple(nodes)))


def placeable():
    return read(
        "inputs { a: f32[2]; }", 'b = neg(a, label="n"); c = tanh(b); d = exp(a); e = add(c, d);',
        "e",
    )


PLACE_AFTER = """\
input %a: float32[2]
%0: float32[2] = neg [n](input=%a) on vulkan
%1: float32[2] = tanh(input=%0) on cpu because "forced to the CPU"
%2: float32[2] = exp(input=%a) on vulkan
%3: float32[2] = add(a=%1, b=%2) on cpu because "forced to the CPU"
output e = %3"""
ORDER_AFTER = """\
input %a: float32[2]
%0: float32[2] = neg [n](input=%a) on vulkan
%1: float32[2] = exp(input=%a) on vulkan
%2: float32[2] = tanh(input=%0) on cpu because "forced to the CPU"
%3: float32[2] = add(a=%2, b=%1) on cpu because "forced to the CPU"
output e = %3"""


@pytest.mark.parametrize(("step", "graph", "after"), [
    (DEAD_CODE, dead_code(), DEAD_CODE_AFTER),
    (FOLD, foldable(), FOLD_AFTER),
    (DECOMPOSE, gru_cell(), gru_cell_after()),
    (PLACE, placeable(), PLACE_AFTER),
    (ORDER, PLACE.run(placeable(), DEVICE), ORDER_AFTER),
], ids=["dead_code", "fold", "decompose", "place", "order"])
def test_graph_in_text_out(step, graph, after):
    before = str(graph)
    done = run_passes([step], graph, DEVICE)
    assert str(done) == after
    assert str(graph) == before
    # Nothing is left to do, and only placement repeats its result.
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
            assert_allclose(array, expected[output], rtol=2e-4, atol=2e-4)

    check()
