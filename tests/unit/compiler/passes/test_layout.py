"""Layouts of whole regions: what is rewritten, what stays, and that the results are equal."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds, read
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.passes import LAYOUT, Compilation, remove_dead_code, run_passes

HEAD = """
inputs { x: f32[2, 6, 5, 4]; last: f32[2, 6, 5, 4]; }
consts {
  w: f32[4, 4, 3, 3]; first: f32[6, 6, 3, 3]; deep: f32[4, 1, 3, 3];
  one: f32[4]; six: f32[6]; pos: f32[4];
  p: f32[4, 1, 1]; m: f32[6, 5]; square: f32[5, 5];
}
"""
LAST, FIRST = "[0, 2, 3, 1]", "[0, 3, 1, 2]"


def assigned(
    graph: Graph, kept: frozenset[str] = frozenset(), software: bool = False
) -> Graph:
    profile = stored_profile("llvmpipe") if software else None
    return LAYOUT.run(graph, Compilation(profile, force_cpu=kept))


def laid_out(nodes: str, outputs: str = "y", **settings: bool) -> tuple[Graph, list[str]]:
    """The graph after the pass, which computes the same, and the names of its operators."""
    graph = read(HEAD, nodes, outputs)
    done = remove_dead_code(assigned(graph, **settings))
    assert_same_results(graph, done)
    return done, [node.operator.name for node in done.nodes]


def assert_same_results(graph: Graph, done: Graph) -> None:
    done.verify()
    before = evaluate(graph, **random_feeds(graph))
    for name, array in evaluate(done, **random_feeds(graph)).items():
        # Sums may be taken in another order.
        assert_allclose(array, before[name], rtol=2e-4, atol=2e-4, err_msg=name)


def test_a_region_between_transposes_is_computed_without_them():
    done, names = laid_out(f"""
a = transpose(x, permutation={FIRST}, label="in");
b = conv2d(a, w, bias=one, padding=[1, 1, 1, 1], label="c");
c = relu(b);
y = transpose(c, permutation={LAST});
""")
    assert names == ["conv2d", "relu"]
    assert done.nodes[0].arguments["input_layout"] == "nhwc"
    assert done.nodes[0].title == "conv2d [c]" and done.nodes[0].origins == ("conv2d [c]",)


def test_islands_of_the_other_layout_join_the_region():
    """Only the transpose of the input stays: the input's layout is given."""
    _, names = laid_out(f"""
a = conv2d(x, first);
b = transpose(a, permutation={LAST});
c = mul(b, six);
d = transpose(c, permutation={FIRST});
e = maxPool2d(d, windowDimensions=[2, 2]);
f = add(e, e);
g = transpose(f, permutation={LAST});
y = reduceMean(g, axes=[1, 2], keepDimensions=false);
""")
    assert names == ["conv2d", "mul", "max_pool2d", "add", "reduce_mean"]


@pytest.mark.parametrize(("nodes", "expected"), [
    # No gain: the convolution needs the input in this layout, the output is transposed.
    (f"y = transpose(a, permutation={LAST})", ["conv2d", "transpose"]),
    # A reshape needs its operand in this layout.
    (
        f"t = transpose(a, permutation={LAST}); r = reshape(t, newShape=[12, 6]); y = relu(r)",
        ["conv2d", "transpose", "reshape", "relu"],
    ),
])
def test_what_is_transposed_once_anyway_stays_as_it_is(nodes, expected):
    graph = read(HEAD, "a = conv2d(x, first); " + nodes)
    done = assigned(graph)
    # The larger tensor is the input: transposing it instead would gain nothing.
    assert done is graph
    assert [node.operator.name for node in done.nodes] == expected


def test_a_tensor_transposed_for_several_is_transposed_once():
    done, names = laid_out(f"""
a = transpose(x, permutation={FIRST});
b = transpose(last, permutation={FIRST});
c = conv2d(a, w, padding=[1, 1, 1, 1]);
d = conv2d(b, w, padding=[1, 1, 1, 1]);
e = add(c, d);
y = transpose(e, permutation={LAST});
z = relu(e);
""", "y; z")
    assert Counter(names)["transpose"] == 1
    assert done.outputs["z"].shape == (2, 4, 6, 5)


def test_pixels_alone_are_a_view():
    """A tensor of one pixel has its elements in the same order in both layouts."""
    _, names = laid_out(f"""
a = transpose(x, permutation={FIRST});
b = conv2d(a, w, padding=[1, 1, 1, 1]);
c = averagePool2d(b);
y = reshape(c, newShape=[2, 4]);
""")
    assert "transpose" not in names


@pytest.mark.parametrize("operator", [
    "c = concat([b, a], axis=1)",
    "[s.0, s.1] = split(b, splits=2, axis=1); c = sub(s.0, s.1)",
    "c = slice(b, starts=[0, 1, 2, 0], sizes=[1, 2, 3, 5], strides=[1, 1, 2, 3])",
    'c = pad(b, beginningPadding=[0, 1, 2, 3], endingPadding=[1, 0, 1, 2], mode="edge")',
    "c = tile(b, repetitions=[1, 2, 3, 1])",
    "c = reverse(b, axes=[1, 3])",
    "c = softmax(b, axis=1)",
    "c = batchNormalization(b, one, pos, scale=one, axis=1)",
    "c = instanceNormalization(b, scale=one, bias=one)",
    'c = resample2d(b, mode="linear", scales=[2, 2], axes=[2, 3])',
    "c = l2Pool2d(b, windowDimensions=[2, 3], strides=[2, 1], padding=[0, 1, 1, 2])",
    "c = convTranspose2d(b, w, strides=[2, 3], outputPadding=[1, 2], bias=one)",
    "c = reduceSum(b, axes=[1, 3], keepDimensions=true)",
    "c = prelu(b, p)",
    "g = greater(b, m); c = where(g, b, m)",
    "c = clamp(b, maxValue=0.5)",
    "c = identity(b)",
], ids=lambda text: text.split(" = ")[-1].split("(")[0])
def test_what_computes_in_either_layout(operator):
    graph = read(HEAD, f"""
a = transpose(x, permutation={FIRST});
b = conv2d(a, w, padding=[1, 1, 1, 1]);
{operator};
d = relu(c);
y = transpose(d, permutation={LAST});
""", weights={"pos": [1, 2, 3, 4]})
    done = remove_dead_code(assigned(graph))
    assert_same_results(graph, done)
    rank4 = [n for n in done.nodes if n.operator.name == "transpose" and n.output.shape != (5, 6)]
    assert not rank4


@pytest.mark.parametrize("operator", [
    # An operator with one layout: its operand is transposed back, and the region ends.
    "c = cumulativeSum(b, axis=1)",
    "c = triangular(b)",
    "c = reduceSum(b, axes=[2], keepDimensions=false)",
    "c = layerNormalization(b, axes=[1, 2, 3])",
    "c = matmul(b, square)",
    "n = reduceMean(b, axes=[0, 1], keepDimensions=false); c = sub(b, n)",
])
def test_what_does_not(operator):
    laid_out(f"""
a = transpose(x, permutation={FIRST});
b = conv2d(a, w, padding=[1, 1, 1, 1]);
{operator};
y = relu(c);
z = transpose(b, permutation={LAST});
""", "y; z")


def test_parts_of_a_concat_lie_in_place_where_channels_are_first():
    """Channels of one image are joined without a copy: this decides if transposes don't."""
    graph = read("inputs { x: f32[1, 8, 8, 4]; } consts { w: f32[4, 4, 3, 3]; }", f"""
t = transpose(x, permutation={FIRST});
a = conv2d(t, w);
b = conv2d(t, w);
c = concat([a, b], axis=1);
y = reduceMax(c, axes=[2, 3], keepDimensions=false);
""")
    assert assigned(graph) is graph


def test_single_channels_last_are_dear_on_software():
    text = f"""
a = transpose(last, permutation={FIRST});
b = conv2d(a, deep, groups=4, padding=[1, 1, 1, 1]);
c = conv2d(b, deep, groups=4, padding=[1, 1, 1, 1]);
y = reduceMax(c, axes=[2, 3], keepDimensions=false);
"""
    assert "transpose" not in laid_out(text)[1]
    assert "transpose" in laid_out(text, software=True)[1]


def test_operators_that_are_kept_end_a_region():
    graph = read(HEAD, f"""
a = transpose(x, permutation={FIRST});
b = relu(a);
y = transpose(b, permutation={LAST});
""")
    assert assigned(graph, frozenset({"relu"})) is graph
    compilation = Compilation(verify=True)
    done = run_passes([LAYOUT], graph, compilation, remove_dead_code)
    assert [node.operator.name for node in done.nodes] == ["relu"]
    assert compilation.notes.of("layout") == ("1 operators as nhwc, 1920 bytes not transposed",)


# -- random regions --------------------------------------------------------------------------------
@st.composite
def regions(draw: st.DrawFn) -> Graph:
    """Nodes of both layouts with transposes of all kinds between them."""
    emit, random = Emitter(), np.random.default_rng(draw(st.integers(0, 99)))
    values = [graph_input("a", (1, 2, 3, 2)), graph_input("b", (1, 2, 2, 3))]
    inputs = tuple(values)

    def one_of(shape: tuple[int, ...] | None = None) -> Value:
        return draw(st.sampled_from([v for v in values if shape in (None, v.shape)]))

    for _ in range(draw(st.integers(2, 9))):
        x = one_of()
        kind = draw(st.sampled_from(
            ("turn", "turn", "turn", "swap", "conv", "add", "side", "relu", "concat", "pool", "sum")
        ))
        if kind == "turn":
            x = emit.transpose(x, permutation=draw(st.sampled_from([(0, 2, 3, 1), (0, 3, 1, 2)])))
        elif kind == "swap":
            x = emit.transpose(x, permutation=draw(st.permutations(range(4))))
        elif kind == "conv":
            last = draw(st.booleans())
            channels = x.shape[3 if last else 1]
            weights = emit.constant(
                random.standard_normal((channels, channels, 1, 1)).astype(np.float32)
            )
            x = emit.conv2d(x, weights, input_layout="nhwc" if last else "nchw")
        elif kind == "add":
            x = emit.add(x, one_of(x.shape))
        elif kind == "side":
            rank = draw(st.integers(0, 4))
            sizes = [draw(st.sampled_from([1, d])) for d in x.shape[4 - rank:]]
            x = emit.mul(x, emit.constant(random.standard_normal(sizes).astype(np.float32)))
        elif kind == "relu":
            x = emit.relu(x)
        elif kind == "concat":
            axis = draw(st.integers(0, 3))
            x = emit.concat([x, x], axis)
            x = emit.slice(x, [0] * 4, [max(1, d // 2) for d in x.shape])
        elif kind == "pool":
            x = emit.max_pool2d(
                x, window_dimensions=(1, 1), layout=draw(st.sampled_from(["nchw", "nhwc"]))
            )
        else:
            axes = draw(st.sets(st.integers(0, 3), min_size=1, max_size=3))
            x = emit.add(x, emit.reduce_sum(x, axes=sorted(axes), keep_dimensions=True))
        values.append(x)
    outputs = {"y": values[-1], "z": one_of()}
    return graph_of(emit, outputs, *inputs)


def moved_bytes(graph: Graph) -> int:
    return sum(
        node.output.descriptor.byte_length for node in graph.nodes
        if node.operator.name == "transpose"
    )


@settings(deadline=None)
@given(regions(), st.booleans())
def test_random_regions_keep_their_meaning(graph, software):
    done = remove_dead_code(assigned(graph, software=software))
    assert_same_results(graph, done)
    if not any(node.operator.name in ("concat", "conv2d") for node in graph.nodes):
        assert moved_bytes(done) <= moved_bytes(remove_dead_code(graph))
