"""Attention is known in every usual form: scales, masks, heads and shapes in all combinations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.graph import Emitter, Graph, Node, Value
from webnn_vk.passes import FUSE_ATTENTION, Compilation, remove_dead_code, run_passes
from webnn_vk.passes.attention import takes_attention

B, H, D, E = 2, 4, 8, 6
LOWEST = {name: float(np.finfo(name).min) for name in ("float32", "float16")}

SCALES = ("none", "div", "mul", "mul [1]", "mul [1,1,1,1]", "row", "query", "query first", "both")
MASKS = (
    "none", "padding", "padding left", "subtracted", "bias", "where", "fill", "fill wide",
    "causal", "causal where", "causal triangular", "causal ranges", "causal and padding",
    "causal where, padding", "padding, causal where", "half causal",
)
HEADS = ("all", "expand", "tile", "gather", "expand first", "one")
SHAPES = ("heads", "rows", "rows, masks by heads")


@dataclass(frozen=True)
class Form:
    scale: str = "none"
    mask: str = "none"
    heads: str = "all"
    shape: str = "heads"
    turned_twice: bool = False
    data_type: str = "float32"
    wide_softmax: bool = False
    steps: tuple[int, int] = (3, 5)

    @property
    def means(self) -> bool:
        """Whether the parts go together."""
        masked_by_heads = self.mask not in ("none", "causal", "half causal")
        return (
            (self.shape == "heads" or self.heads == "all")
            and (self.shape != "rows" or not masked_by_heads)
            and (not self.wide_softmax or self.data_type == "float16")
        )


def numbered(emit: Emitter, form: Form, value: float, *shape: int) -> Value:
    return emit.constant(np.full(shape, value), form.data_type)


def scaled(emit: Emitter, form: Form, x: Value) -> Value:
    number = D**-0.5
    match form.scale:
        case "div":
            return emit.div(x, numbered(emit, form, math.sqrt(D)))
        case "mul":
            return emit.mul(numbered(emit, form, number), x)
        case "mul [1]":
            return emit.mul(x, numbered(emit, form, number, 1))
        case "mul [1,1,1,1]":
            return emit.mul(x, numbered(emit, form, number, *(1,) * len(x.shape)))
        case "row":
            return emit.mul(x, numbered(emit, form, number, x.shape[-1]))
    return x


def kept(emit: Emitter, form: Form, y: Value) -> Value:
    """Half of the scale, for each of both operands."""
    return emit.mul(y, numbered(emit, form, D**-0.25)) if form.scale == "both" else y


def split(emit: Emitter, form: Form, x: Value, heads: int, keys: bool) -> Value:
    """[batch, steps, heads · size] as [batch, all heads, steps, size], or rows of all heads; as
    [.., size, steps] for keys."""
    batch, steps, hidden = x.shape
    x = emit.reshape(x, (batch, steps, heads, hidden // heads))
    count = H // heads
    if heads != H and form.heads == "expand first":
        x = emit.reshape(x, (batch, steps, heads, 1, hidden // heads))
        x = emit.expand(x, (batch, steps, heads, count, hidden // heads))
        x = emit.reshape(x, (batch, steps, H, hidden // heads))
        heads = H
    repeated = heads != H and form.heads != "one"
    if keys and not form.turned_twice and not repeated and form.shape == "heads":
        return kept(emit, form, emit.transpose(x, permutation=(0, 2, 3, 1)))
    x = emit.transpose(x, permutation=(0, 2, 1, 3))
    size = x.shape[-1]
    if repeated and form.heads == "gather":
        x = emit.gather(x, emit.constant(np.arange(H) // count, "int32"), axis=1)
    elif repeated:
        x = emit.reshape(x, (batch, heads, 1, steps, size))
        x = emit.tile(x, (1, 1, count, 1, 1)) if form.heads == "tile" else emit.expand(
            x, (batch, heads, count, steps, size)
        )
        x = emit.reshape(x, (batch, H, steps, size))
    if form.shape != "heads":
        x = emit.reshape(x, (batch * H, steps, size))
    if keys:
        *order, rows, columns = range(len(x.shape))
        x = kept(emit, form, emit.transpose(x, permutation=(*order, columns, rows)))
    return x


def masked(emit: Emitter, form: Form, x: Value, inputs: list[Value]) -> Value:
    rows, keys = form.steps
    triangle = np.tri(rows, keys, keys - rows)
    low = LOWEST[form.data_type]

    def given(name: str, shape: tuple[int, ...], data_type: str = form.data_type) -> Value:
        inputs.append(graph_input(name, shape, data_type))
        return inputs[-1]

    def causal(x: Value, number: float = -math.inf) -> Value:
        return emit.where(emit.constant(triangle, "uint8"), x, numbered(emit, form, number))

    match form.mask:
        case "padding":
            return emit.add(x, given("m", (B, 1, 1, keys)))
        case "padding left":
            return emit.add(given("m", (B, 1, 1, keys)), x)
        case "subtracted":
            return emit.sub(x, given("m", (B, 1, 1, keys)))
        case "bias":
            return emit.add(emit.add(x, given("m", (H, rows, keys))), given("n", (B, 1, 1, keys)))
        case "where":
            return emit.where(
                given("m", (B, 1, rows, keys), "uint8"), x, numbered(emit, form, low)
            )
        case "fill":
            return emit.where(
                given("m", (B, 1, 1, keys), "uint8"), numbered(emit, form, -math.inf, 1), x
            )
        case "fill wide":
            return emit.where(
                given("m", (1, 1, rows, keys), "uint8"), numbered(emit, form, low, rows, keys), x
            )
        case "causal":
            return emit.add(x, emit.constant(np.where(triangle, 0, -math.inf), form.data_type))
        case "causal where":
            return causal(x, low)
        case "causal triangular":
            if rows != keys:
                return causal(x)
            ones = emit.expand(emit.constant(1, "float32"), (rows, keys))
            seen = emit.cast(emit.triangular(ones, upper=False), "uint8")
            return emit.where(seen, x, numbered(emit, form, -math.inf))
        case "causal ranges":
            places = emit.constant(np.arange(rows)[:, None] + keys - rows, "int32")
            later = emit.greater(emit.constant(np.arange(keys)[None], "int32"), places)
            return emit.where(later, numbered(emit, form, -math.inf), x)
        case "causal and padding":
            x = emit.add(x, emit.constant(np.where(triangle, 0, -math.inf), form.data_type))
            return emit.add(x, given("m", (B, 1, 1, keys)))
        case "causal where, padding":
            return emit.add(causal(x, low), given("m", (B, 1, 1, keys)))
        case "padding, causal where":
            return causal(emit.add(x, given("m", (B, 1, 1, keys))))
        case "half causal":
            return emit.add(x, emit.constant(np.where(triangle, 0, -2), form.data_type))
    return x


def attention(form: Form) -> Graph:
    rows, keys = form.steps
    own = {"all": H, "one": 1}.get(form.heads, 2)
    emit = Emitter("layer")
    inputs = [
        graph_input("q", (B, rows, H * D), form.data_type),
        graph_input("k", (B, keys, own * D), form.data_type),
        graph_input("v", (B, keys, own * E), form.data_type),
    ]
    q, k, v = inputs
    if form.scale == "query first":
        q = emit.mul(q, numbered(emit, form, D**-0.5))
    q = split(emit, form, q, H, keys=False)
    if form.scale == "query":
        q = emit.mul(q, numbered(emit, form, D**-0.5))
    scores = emit.matmul(kept(emit, form, q), split(emit, form, k, own, keys=True))
    scores = scaled(emit, form, scores)
    by_heads = form.shape == "rows, masks by heads"
    if by_heads:
        scores = emit.reshape(scores, (B, H, rows, keys))
    scores = masked(emit, form, scores, inputs)
    if form.wide_softmax:
        scores = emit.cast(scores, "float32")
    weights = emit.softmax(scores, len(scores.shape) - 1)
    if form.wide_softmax:
        weights = emit.cast(weights, "float16")
    if by_heads:
        weights = emit.reshape(weights, (B * H, rows, keys))
    y = emit.matmul(weights, split(emit, form, v, own, keys=False))
    y = emit.reshape(y, (B, H, rows, E))
    y = emit.reshape(emit.transpose(y, permutation=(0, 2, 1, 3)), (B, rows, H * E))
    return graph_of(emit, {"y": y}, *inputs)


def fused(form: Form) -> Node:
    """The one attention that the form becomes, with the same results."""
    graph = attention(form)
    compilation = Compilation(stored_profile("nvidia_h200"), verify=True)
    done = run_passes([FUSE_ATTENTION], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    if "m" in feeds and feeds["m"].dtype == np.uint8:
        # Every query sees its first key, by either meaning of the condition.
        feeds["m"] = feeds["m"].copy()
        feeds["m"][..., 0] = form.mask == "where"
    (expected,), (result,) = (evaluate(g, **feeds).values() for g in (graph, done))
    tolerance = 2e-5 if form.data_type == "float32" else 4e-3
    np.testing.assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )
    names = [n.operator.name for n in done.nodes]
    assert names.count("attention") == 1, names
    assert not {"softmax", "matmul", "expand", "tile", "div", "cast"} & set(names), names
    (node,) = (n for n in done.nodes if n.operator.name == "attention")
    scale = 1.0 if form.scale == "none" else D**-0.5
    assert node.arguments["scale"] == pytest.approx(scale, rel=1e-3)
    return node


@pytest.mark.parametrize("scale", SCALES)
def test_scales(scale):
    fused(Form(scale=scale))


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    node = fused(Form(mask=mask, scale="div"))
    known = mask.startswith(("causal", "padding, causal")) and mask != "causal where, padding"
    assert node.arguments["causal"] == known
    assert ("mask" in node.operands) == (mask in (
        "padding", "padding left", "subtracted", "bias", "half causal", "causal and padding",
        "causal where, padding", "padding, causal where",
    ))
    assert ("seen" in node.operands) == (mask in ("where", "fill", "fill wide"))


@pytest.mark.parametrize("heads", HEADS)
def test_heads(heads):
    node = fused(Form(heads=heads, mask="bias", scale="query"))
    own = {"all": H, "one": 1}.get(heads, 2)
    expected = (B, own, 1, 5, D) if own == 2 else (B, own, 5, D)
    assert node.operands["key"].shape == expected


@pytest.mark.parametrize("mask", ["none", "padding", "where", "bias", "causal where"])
def test_rows_of_all_heads_whose_masks_are_added_by_heads(mask):
    """As BART and CLIP are written."""
    node = fused(Form(shape="rows, masks by heads", mask=mask, scale="query first"))
    assert node.operands["query"].shape == (B, H, 3, D)


@pytest.mark.parametrize("mask", ["none", "padding", "where", "causal where"])
def test_a_softmax_of_half_precision_in_single(mask):
    """As Llama is written: the kernel computes in float32 whatever it loads and stores."""
    fused(Form(data_type="float16", wide_softmax=True, mask=mask, scale="mul"))


def test_a_large_mask_that_is_not_folded_is_looked_into():
    node = fused(Form(mask="causal triangular", steps=(4, 4)))
    assert node.arguments["causal"] and "seen" not in node.operands


def test_it_is_for_every_device_but_those_of_software():
    names = ("adreno_minimum", "amd_rdna3", "intel_arc", "nvidia_h200", "llvmpipe")
    taken = {name for name in names if takes_attention(stored_profile(name))}
    assert {"amd_rdna3", "intel_arc", "nvidia_h200"} <= taken and "llvmpipe" not in taken


FORMS = st.builds(
    Form,
    scale=st.sampled_from(SCALES),
    mask=st.sampled_from(MASKS),
    heads=st.sampled_from(HEADS),
    shape=st.sampled_from(SHAPES),
    turned_twice=st.booleans(),
    data_type=st.sampled_from(["float32", "float16"]),
    wide_softmax=st.booleans(),
    steps=st.sampled_from([(3, 5), (4, 4), (1, 6)]),
).filter(lambda form: form.means)


@given(FORMS)
def test_all_combinations(form):
    fused(form)
