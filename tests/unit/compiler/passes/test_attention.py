"""Products with a softmax between them become `attention`, in the forms of real exports, and only
where the meaning is the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.passes import FUSE_ATTENTION, Compilation, remove_dead_code, run_passes

GPU = stored_profile("nvidia_ampere")
B, H, S, T, D, E = 2, 4, 3, 5, 8, 6
LOWEST = float(np.finfo(np.float32).min)


def fused(graph: Graph, **options) -> Graph:
    """The graph after the pass, which changes none of its results."""
    compilation = Compilation(**{"profile": GPU, "verify": True} | options)
    done = run_passes([FUSE_ATTENTION], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(done, **feeds).items():
        assert_allclose(array, expected[name], rtol=1e-5, atol=1e-6)
    assert len(compilation.notes.of("fuse_attention")) == (done is not graph)
    return done


def names(graph: Graph) -> list[str]:
    return [node.operator.name for node in graph.nodes]


def operands() -> tuple[Value, Value, Value]:
    return (
        graph_input("q", (B, S, H * D)), graph_input("k", (B, T, H * D)),
        graph_input("v", (B, T, H * E)),
    )


def heads(emit: Emitter, x: Value, *order: int) -> Value:
    batch, steps, hidden = x.shape
    return emit.transpose(
        emit.reshape(x, (batch, steps, H, hidden // H)), permutation=order or (0, 2, 1, 3)
    )


def joined(emit: Emitter, x: Value) -> Value:
    batch, _, steps, size = x.shape
    return emit.reshape(emit.transpose(x, permutation=(0, 2, 1, 3)), (batch, steps, H * size))


def number(emit: Emitter, value: float) -> Value:
    return emit.constant(value, "float32")


def attended(shape=None, change=lambda emit, scores: scores, **more: Value) -> Graph:
    """The encoder of our example: keys are transposed at once; ``change`` modifies the scores."""
    emit = Emitter("layer")
    q, k, v = operands()
    scores = emit.matmul(heads(emit, q), heads(emit, k, 0, 2, 3, 1))
    y = joined(emit, emit.matmul(emit.softmax(change(emit, scores), 3), heads(emit, v)))
    return graph_of(emit, {"y": y}, q, k, v, *more.values())


def test_plain():
    done = fused(attended())
    (node,) = [n for n in done.nodes if n.operator.name == "attention"]
    assert node.arguments == {
        "scale": 1.0, "unseen": -math.inf, "causal": False, "softcap": 0.0,
    }
    assert node.label == "layer" and "softmax [layer]" in node.origins
    # Only the splitting and joining of heads is left.
    assert sorted(names(done)) == sorted(["attention", *["reshape", "transpose"] * 4])


def test_scale_and_a_padding_mask_as_in_minilm_and_bert():
    m = graph_input("m", (B, 1, 1, T))

    def change(emit, scores):
        return emit.add(emit.mul(scores, number(emit, D**-0.5)), m)

    (node,) = [n for n in fused(attended(change=change, m=m)).nodes
               if n.operator.name == "attention"]
    assert node.arguments["scale"] == pytest.approx(D**-0.5) and node.operands["mask"] is m


def test_a_quotient_and_a_mask_on_the_left_as_in_older_berts():
    m = graph_input("m", (B, 1, S, T))

    def change(emit, scores):
        return emit.add(m, emit.div(scores, number(emit, 4.0)))

    done = fused(attended(change=change, m=m))
    (node,) = [n for n in done.nodes if n.operator.name == "attention"]
    assert node.arguments["scale"] == 0.25 and node.operands["mask"] is m


def test_scaled_operands_as_pytorch_exports_them():
    """Both are multiplied by the square root of the scale, the keys before or after their
    transpose."""
    for after in (False, True):
        emit = Emitter()
        q, k, v = operands()
        root = number(emit, D**-0.25)
        keys = heads(emit, k)
        if after:
            turned = emit.mul(emit.transpose(keys, permutation=(0, 1, 3, 2)), root)
        else:
            turned = emit.transpose(emit.mul(keys, root), permutation=(0, 1, 3, 2))
        weights = emit.softmax(emit.matmul(emit.mul(heads(emit, q), root), turned), 3)
        y = joined(emit, emit.matmul(weights, heads(emit, v)))
        done = fused(graph_of(emit, {"y": y}, q, k, v))
        (node,) = [n for n in done.nodes if n.operator.name == "attention"]
        assert node.arguments["scale"] == pytest.approx(D**-0.5)
        assert "mul" not in names(done) and "softmax" not in names(done)


@pytest.mark.parametrize("low", [-math.inf, LOWEST])
@pytest.mark.parametrize("form", ["add", "where", "fill"])
def test_causal_masks_are_known(form, low):
    triangle = np.tri(S, T, T - S)

    def change(emit, scores):
        if form == "add":
            return emit.add(scores, emit.constant(np.where(triangle, 0, low), "float32"))
        if form == "where":
            return emit.where(
                emit.constant(triangle[None, None], "uint8"), scores, number(emit, low)
            )
        return emit.where(emit.constant(1 - triangle, "uint8"), number(emit, low), scores)

    (node,) = [n for n in fused(attended(change=change)).nodes
               if n.operator.name == "attention"]
    assert node.arguments["causal"]
    assert not {"mask", "seen"} & node.operands.keys()


def test_a_finite_number_for_the_future_counts_where_a_mask_hides_the_past():
    """Padding on the left: the first queries see only masked keys."""
    m = graph_input("m", (B, 1, 1, T))

    def change(emit, scores):
        return emit.where(
            emit.constant(np.tri(S, T, T - S), "uint8"), emit.add(scores, m), number(emit, LOWEST)
        )

    graph = attended(change=change, m=m)
    done = fused(graph)
    (node,) = [n for n in done.nodes if n.operator.name == "attention"]
    assert not node.arguments["causal"] and node.arguments["unseen"] == LOWEST
    feeds = random_feeds(graph)
    feeds["m"] = np.where(np.arange(T) < T - S + 1, -np.inf, feeds["m"]).astype(np.float32)
    (one,), (other,) = (evaluate(g, **feeds).values() for g in (graph, done))
    assert np.isfinite(one).all()
    assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_such_a_mask_and_infinity_are_causal():
    m = graph_input("m", (B, 1, 1, T))

    def change(emit, scores):
        triangle = emit.constant(np.tri(S, T, T - S), "uint8")
        return emit.where(triangle, emit.add(scores, m), number(emit, -math.inf))

    (node,) = [n for n in fused(attended(change=change, m=m)).nodes
               if n.operator.name == "attention"]
    assert node.arguments["causal"] and node.operands["mask"] is m


@pytest.mark.parametrize("hidden", [False, True])
def test_scores_that_are_replaced(hidden):
    """A finite number for masked keys matters if a query sees nothing."""
    seen = graph_input("seen", (B, 1, S, T), "uint8")

    def change(emit, scores):
        scores = emit.mul(scores, number(emit, 0.5))
        given = (number(emit, -2.0), scores) if hidden else (scores, number(emit, -2.0))
        return emit.where(seen, *given)

    (node,) = [n for n in fused(attended(change=change, seen=seen)).nodes
               if n.operator.name == "attention"]
    assert node.arguments["unseen"] == -2 and "seen" in node.operands


def test_a_window_stays_a_mask():
    band = np.tri(S, T, T - S, dtype=bool) & ~np.tri(S, T, T - S - 2, dtype=bool)

    def change(emit, scores):
        return emit.where(emit.constant(band, "uint8"), scores, number(emit, -math.inf))

    (node,) = [n for n in fused(attended(change=change)).nodes
               if n.operator.name == "attention"]
    assert not node.arguments["causal"] and "seen" in node.operands


def test_several_masks_are_added_up():
    m, n = graph_input("m", (B, 1, 1, T)), graph_input("n", (H, S, T))
    done = fused(attended(change=lambda e, s: e.add(e.add(s, m), n), m=m, n=n))
    assert names(done).count("add") == 1 and "attention" in names(done)


def repeated(emit: Emitter, x: Value, count: int) -> Value:
    batch, own, steps, size = x.shape
    many = emit.expand(
        emit.reshape(x, (batch, own, 1, steps, size)), (batch, own, count, steps, size)
    )
    return emit.reshape(many, (batch, own * count, steps, size))


def test_grouped_heads_are_not_repeated():
    emit = Emitter()
    q = graph_input("q", (B, H, S, D))
    k, v = graph_input("k", (B, 2, T, D)), graph_input("v", (B, 2, T, E))
    m = graph_input("m", (B, 1, S, T))
    turned = emit.transpose(repeated(emit, k, 2), permutation=(0, 1, 3, 2))
    scores = emit.add(emit.matmul(q, turned), m)
    y = emit.matmul(emit.softmax(scores, 3), repeated(emit, v, 2))
    done = fused(graph_of(emit, {"y": y}, q, k, v, m))
    (node,) = [n for n in done.nodes if n.operator.name == "attention"]
    assert "expand" not in names(done)
    assert node.operands["query"].shape == (B, 2, 2, S, D)
    assert node.operands["key"].shape == (B, 2, 1, T, D)
    assert node.output.shape == (B, 2, 2, S, E)


# -- where it does not apply ---------------------------------------------------------------------
def refused(change, **more: Value) -> None:
    graph = attended(change=change, **more)
    assert fused(graph) is graph


def test_refuses():
    m = graph_input("m", (B, 1, 1, T))
    # A factor after the mask multiplies the mask too.
    refused(lambda e, s: e.mul(e.add(s, m), number(e, 0.5)), m=m)
    # An addition after the selection.
    tri = np.tri(S, T, dtype=np.uint8)
    refused(lambda e, s: e.add(e.where(e.constant(tri), s, number(e, -9.0)), m), m=m)
    refused(lambda e, s: e.tanh(s))
    refused(lambda e, s: e.softmax(s, 2))
    refused(lambda e, s: e.div(number(e, 3.0), s))
    # A factor of several numbers.
    refused(lambda e, s: e.mul(s, e.constant(np.arange(T), "float32")))
    # A mask that enlarges the scores.
    wide = graph_input("wide", (3, B, H, S, T))
    emit = Emitter()
    q, k, v = operands()
    scores = emit.add(emit.matmul(heads(emit, q), heads(emit, k, 0, 2, 3, 1)), wide)
    y = emit.matmul(emit.softmax(scores, 4), heads(emit, v))
    graph = graph_of(emit, {"y": y}, q, k, v, wide)
    assert fused(graph) is graph


@pytest.mark.parametrize("what", ["scores", "weights"])
def test_what_others_read_is_kept(what):
    emit = Emitter()
    q, k, v = operands()
    scores = emit.matmul(heads(emit, q), heads(emit, k, 0, 2, 3, 1))
    weights = emit.softmax(scores, 3)
    y = emit.matmul(weights, heads(emit, v))
    other = scores if what == "scores" else weights
    graph = graph_of(emit, {"y": y, "other": other}, q, k, v)
    assert fused(graph) is graph


@pytest.mark.parametrize("options", [
    {"profile": stored_profile("llvmpipe")},
    {"profile": GPU.replace(max_storage_buffers_per_set=6)},
    {"force_cpu": frozenset({"softmax"})},
    {"force_cpu": frozenset({"matmul"})},
])
def test_devices_and_operators_that_it_leaves_alone(options):
    graph = attended()
    assert fused(graph, **options) is graph


@st.composite
def chains(draw) -> Graph:
    """Scores with some of the operators that exporters put between product and softmax, in any
    order."""
    m, seen = graph_input("m", (B, 1, S, T)), graph_input("seen", (S, T), "uint8")

    def change(emit, scores):
        for kind in draw(st.lists(st.sampled_from(["mul", "div", "add", "where", "fill"]),
                                  max_size=4)):
            match kind:
                case "mul" | "div":
                    scores = getattr(emit, kind)(scores, number(emit, draw(
                        st.sampled_from([0.5, 2.0, -1.0]))))
                case "add":
                    pair = (scores, m) if draw(st.booleans()) else (m, scores)
                    scores = emit.add(*pair)
                case _:
                    low = number(emit, draw(st.sampled_from([-3.0, 0.0, LOWEST])))
                    pair = (scores, low) if kind == "where" else (low, scores)
                    scores = emit.where(seen, *pair)
        return scores

    return attended(change=change, m=m, seen=seen)


def test_the_meaning_is_kept():
    hits = 0

    @given(chains())
    def check(graph):
        nonlocal hits
        hits += "attention" in names(fused(graph))

    check()
    assert hits > 5
