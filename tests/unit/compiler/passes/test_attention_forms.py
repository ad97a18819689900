"""Attention is recognised in every usual form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.attention_forms import (
    HEADS,
    MASKS,
    SCALES,
    SHAPES,
    B,
    D,
    Form,
    H,
    describe,
    masks_that_show,
)
from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Node, Value
from webnn_vk.compiler.passes import FUSE_ATTENTION, Compilation, remove_dead_code, run_passes
from webnn_vk.compiler.passes.attention import takes_attention


def attention(form: Form) -> Graph:
    emit = Emitter("layer")
    inputs: list[Value] = []

    def make_input(name: str, shape: tuple[int, ...], data_type: str) -> Value:
        inputs.append(graph_input(name, shape, data_type))
        return inputs[-1]

    y = describe(emit, form, make_input)
    return graph_of(emit, {"y": y}, *inputs)


def fused(form: Form) -> Node:
    """The single attention that the form becomes, with the same results."""
    graph = attention(form)
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    done = run_passes([FUSE_ATTENTION], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    masks_that_show(form, feeds)
    (expected,), (result,) = (evaluate(g, **feeds).values() for g in (graph, done))
    tolerance = 2e-5 if form.data_type == "float32" else 4e-3
    assert_allclose(
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
    """As in BART and CLIP."""
    node = fused(Form(shape="rows, masks by heads", mask=mask, scale="query first"))
    assert node.operands["query"].shape == (B, H, 3, D)


@pytest.mark.parametrize("mask", ["none", "padding", "where", "causal where"])
def test_a_softmax_of_half_precision_in_single(mask):
    """As in Llama: the kernel computes in float32 whatever it loads and stores."""
    fused(Form(data_type="float16", wide_softmax=True, mask=mask, scale="mul"))


def test_a_large_mask_that_is_not_folded_is_looked_into():
    node = fused(Form(mask="causal triangular", steps=(4, 4)))
    assert node.arguments["causal"] and "seen" not in node.operands


def test_it_is_for_every_device_but_those_of_software():
    names = ("adreno_minimum", "amd_navi31", "intel_dg2", "nvidia_ampere", "llvmpipe")
    taken = {name for name in names if takes_attention(Compilation(stored_profile(name)))}
    assert {"amd_navi31", "intel_dg2", "nvidia_ampere"} <= taken and "llvmpipe" not in taken


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
