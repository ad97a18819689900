"""Activations and layer normalisations in the forms that exporters write."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, graph_input, graph_of, random_feeds
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.passes import (
    FUSE_ACTIVATIONS,
    FUSE_NORMS,
    Compilation,
    remove_dead_code,
    run_passes,
)
from webnn_vk.compiler.program import Target, compile_program

SHAPE = (2, 3, 8)


def drawn(build, data_type="float32", shape=SHAPE) -> Graph:
    emit = Emitter()
    x = graph_input("x", shape, data_type)

    def number(value):
        return emit.constant(value, data_type)

    return graph_of(emit, {"y": build(emit, x, number)}, x)


def fused(graph: Graph, tolerance=2e-6) -> list[str]:
    """The operators after the passes, which change no result."""
    compilation = Compilation(verify=True)
    done = run_passes([FUSE_NORMS, FUSE_ACTIVATIONS], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    (expected,) = evaluate(graph, **feeds).values()
    (result,) = evaluate(done, **feeds).values()
    assert_allclose(
        result.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
    )
    return [n.operator.name for n in done.nodes]


def erf_part(e, x, n, form):
    scaled = e.div(x, n(math.sqrt(2))) if form % 2 else e.mul(x, n(1 / math.sqrt(2)))
    return e.add(e.erf(scaled), n(1.0))


def tanh_part(e, x, n, form):
    cube = e.pow(x, n(3.0)) if form % 2 else e.mul(e.mul(x, x), x)
    inner = e.mul(e.add(x, e.mul(cube, n(0.044715))), n(math.sqrt(2 / math.pi)))
    return e.add(n(1.0), e.tanh(inner))


ROOT = math.sqrt(2 / math.pi)
#: √(2 / π) · (x + 0.044715 x³) in other orders.
CUBICS = (
    lambda e, x, n: e.mul(e.add(x, e.mul(e.mul(n(0.044715), x), e.mul(x, x))), n(ROOT)),
    lambda e, x, n: e.mul(e.add(x, e.mul(e.mul(e.mul(n(0.044715), x), x), x)), n(ROOT)),
    lambda e, x, n: e.mul(
        e.mul(x, n(ROOT)), e.add(n(1.0), e.mul(e.mul(n(0.044715), x), x))),
    lambda e, x, n: e.mul(
        x, e.mul(n(ROOT), e.add(e.mul(n(0.044715), e.pow(x, n(2.0))), n(1.0)))),
    lambda e, x, n: e.mul(
        n(ROOT), e.mul(x, e.add(e.mul(n(0.044715), e.mul(x, x)), n(1.0)))),
)


@pytest.mark.parametrize("cubic", CUBICS)
def test_gelu_of_other_cubics(cubic):
    def build(e, x, n):
        return e.mul(e.mul(n(0.5), x), e.add(e.tanh(cubic(e, x, n)), n(1.0)))

    assert fused(drawn(build)) == ["gelu_tanh"]


@pytest.mark.parametrize("build", [
    lambda e, x, n: e.mul(x, e.add(e.mul(e.erf(e.div(x, n(math.sqrt(2)))), n(0.5)), n(0.5))),
    lambda e, x, n: e.mul(e.div(erf_part(e, x, n, 0), n(2.0)), x),
    lambda e, x, n: e.mul(e.div(x, n(2.0)), erf_part(e, x, n, 1)),
])
def test_gelu_in_other_orders(build):
    assert fused(drawn(build)) == ["gelu"]


@pytest.mark.parametrize("form", range(8))
@pytest.mark.parametrize(("part", "name"), [(erf_part, "gelu"), (tanh_part, "gelu_tanh")])
def test_gelu(part, name, form):
    def build(e, x, n):
        y = part(e, x, n, form)
        match form // 2:
            case 0:
                return e.mul(e.mul(x, n(0.5)), y)
            case 1:
                return e.mul(e.mul(x, y), n(0.5))
            case 2:
                return e.mul(x, e.mul(n(0.5), y))
        return e.div(e.mul(y, x), n(2.0))

    assert fused(drawn(build)) == [name]
    assert fused(drawn(build, "float16"), 4e-3) == [name]


@pytest.mark.parametrize(("build", "name"), [
    (lambda e, x, n: e.mul(x, e.sigmoid(x)), "swish"),
    (lambda e, x, n: e.mul(e.sigmoid(x), x), "swish"),
    (lambda e, x, n: e.mul(x, e.sigmoid(e.mul(x, n(1.702)))), "swish"),
    (lambda e, x, n: e.mul(x, e.hard_sigmoid(x, alpha=1 / 6, beta=0.5)), "hard_swish"),
    (lambda e, x, n: e.div(
        e.mul(x, e.clamp(e.add(x, n(3.0)), min_value=0, max_value=6)), n(6.0)), "hard_swish"),
    (lambda e, x, n: e.mul(
        x, e.div(e.clamp(e.add(n(3.0), x), min_value=0, max_value=6), n(6.0))), "hard_swish"),
    (lambda e, x, n: e.mul(
        n(1 / 6), e.mul(e.clamp(e.add(n(3.0), x), min_value=0, max_value=6), x)), "hard_swish"),
    (lambda e, x, n: e.mul(x, e.clamp(
        e.add(e.div(x, n(6.0)), n(0.5)), min_value=0, max_value=1)), "hard_swish"),
    (lambda e, x, n: e.mul(x, e.min(n(1.0), e.relu(
        e.linear(x, alpha=1 / 6, beta=0.5)))), "hard_swish"),
    (lambda e, x, n: e.div(e.mul(
        x, e.min(e.relu(e.add(x, n(3.0))), n(6.0))), n(6.0)), "hard_swish"),
    (lambda e, x, n: e.mul(e.mul(x, n(1 / 6)), e.min(
        e.max(e.add(x, n(3.0)), n(0.0)), n(6.0))), "hard_swish"),
    (lambda e, x, n: e.div(x, e.add(e.exp(e.neg(x)), n(1.0))), "swish"),
    (lambda e, x, n: e.mul(x, e.reciprocal(e.add(n(1.0), e.exp(e.neg(x))))), "swish"),
    (lambda e, x, n: e.div(n(1.0), e.add(n(1.0), e.exp(e.neg(x)))), "sigmoid"),
])
def test_swish(build, name):
    assert fused(drawn(build)) == [name]


def norm(e, x, n, square="pow", divide="div", axes=(2,), others=None, keep=True):
    centred = e.sub(x, e.reduce_mean(x, axes=axes, keep_dimensions=keep))
    squared = e.pow(centred, n(2.0)) if square == "pow" else e.mul(centred, centred)
    variance = e.reduce_mean(squared, axes=others or axes, keep_dimensions=True)
    deviation = e.sqrt(e.add(variance, n(1e-5)))
    if divide == "div":
        return e.div(centred, deviation)
    return e.mul(e.reciprocal(deviation), centred)


@pytest.mark.parametrize("square", ["pow", "mul"])
@pytest.mark.parametrize("divide", ["div", "reciprocal"])
@pytest.mark.parametrize("axes", [(2,), (1, 2), (0,)])
def test_layer_normalization(square, divide, axes):
    def build(e, x, n):
        y = norm(e, x, n, square, divide, axes)
        return e.add(e.mul(y, e.constant(np.arange(8), "float32")), n(0.25))

    assert fused(drawn(build), 1e-5) == ["layer_normalization", "mul", "add"]


@pytest.mark.parametrize("centred", [False, True])
def test_what_the_result_is_scaled_by_may_be_multiplied_first(centred):
    def build(e, x, n):
        y = e.sub(x, e.reduce_mean(x, axes=[2], keep_dimensions=True)) if centred else x
        variance = e.reduce_mean(e.mul(y, y), axes=[2], keep_dimensions=True)
        inverse = e.reciprocal(e.sqrt(e.add(variance, n(1e-5))))
        return e.mul(y, e.mul(inverse, e.constant(np.arange(8), "float32")))

    name = "layer_normalization" if centred else "rms_normalization"
    assert fused(drawn(build), 1e-5) == [name, "mul"]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_instance_normalization_is_one_kernel(layout):
    """Over height and width it is a layer normalisation; its scale and bias follow, in its kernel.
    """
    axes, channels = ((2, 3), (6, 1, 1)) if layout == "nchw" else ((1, 2), (6,))
    shape = (2, 6, 5, 4) if layout == "nchw" else (2, 5, 4, 6)

    def build(e, x, n):
        row = e.constant(np.arange(6).reshape(channels), "float32")
        return e.add(e.mul(norm(e, x, n, axes=axes), row), row)

    graph = drawn(build, shape=shape)
    assert fused(graph, 1e-5) == ["layer_normalization", "mul", "add"]
    program, _ = compile_program(graph, Target(stored_profile()))
    assert [s.operators for s in program.report.steps] == [("layer_normalization", "mul", "add")]


def test_layer_normalization_takes_casts_to_float32_in():
    def build(e, x, n):
        wide = e.cast(x, data_type="float32")
        number = lambda value: e.constant(value, "float32")  # noqa: E731
        return e.mul(e.cast(norm(e, wide, number), data_type="float16"), n(0.5))

    assert fused(drawn(build, "float16"), 2e-3) == ["layer_normalization", "mul"]


@pytest.mark.parametrize("form", range(8))
@pytest.mark.parametrize("axes", [(2,), (0, 2)])
def test_rms_normalization(form, axes):
    def build(e, x, n):
        square = e.mul(x, x) if form % 2 else e.pow(x, n(2.0))
        variance = e.reduce_mean(square, axes=axes, keep_dimensions=True)
        variance = e.add(n(1e-6), variance) if form % 3 else e.add(variance, n(1e-6))
        match form // 2:
            case 0:
                y = e.div(x, e.sqrt(variance))
            case 1:
                y = e.mul(x, e.reciprocal(e.sqrt(variance)))
            case 2:
                y = e.mul(e.div(n(1.0), e.sqrt(variance)), x)
            case _:
                y = e.mul(x, e.pow(variance, n(-0.5)))
        return e.mul(y, e.constant(np.arange(8), "float32"))

    assert fused(drawn(build), 1e-5) == ["rms_normalization", "mul"]


def test_rms_normalization_takes_casts_to_float32_in():
    def build(e, x, n):
        wide = e.cast(x, data_type="float32")
        square = e.reduce_mean(e.mul(wide, wide), axes=[2], keep_dimensions=True)
        root = e.sqrt(e.add(square, e.constant(1e-5, "float32")))
        return e.mul(e.cast(e.div(wide, root), data_type="float16"), n(0.5))

    assert fused(drawn(build, "float16"), 2e-3) == ["rms_normalization", "mul"]


def test_what_is_left_of_another_norm_is_one_by_the_root_mean_square():
    graph = drawn(lambda e, x, n: norm(e, x, n, others=(1,)))
    assert fused(graph, 1e-5) == ["reduce_mean", "sub", "rms_normalization"]


@pytest.mark.parametrize("build", [
    lambda e, x, n: e.div(x, e.sqrt(e.add(
        e.reduce_mean(e.pow(x, n(3.0)), axes=[2], keep_dimensions=True), n(1e-5)))),
    lambda e, x, n: e.div(x, e.sqrt(e.add(
        e.reduce_mean(e.mul(x, e.neg(x)), axes=[2], keep_dimensions=True), n(30.0)))),
    lambda e, x, n: e.div(x, e.sqrt(e.add(
        e.reduce_mean(e.mul(x, x), axes=[2], keep_dimensions=True), n(-1e-5)))),
    lambda e, x, n: e.mul(x, e.sigmoid(e.neg(x))),
    lambda e, x, n: e.mul(x, e.sigmoid(e.mul(x, e.constant(np.arange(8), "float32")))),
    lambda e, x, n: e.mul(x, e.hard_sigmoid(x)),
    lambda e, x, n: e.div(e.mul(x, e.clamp(e.add(x, n(3.0)), max_value=6)), n(6.0)),
    lambda e, x, n: e.mul(e.mul(x, n(0.5)), e.add(e.erf(x), n(1.0))),
    lambda e, x, n: e.mul(e.mul(x, n(0.25)), erf_part(e, x, n, 0)),
    lambda e, x, n: e.mul(e.mul(e.neg(x), n(0.5)), erf_part(e, x, n, 0)),
    # No precision rounds 1, 1/2, 3 or 6 to these.
    lambda e, x, n: e.div(n(1.0005), e.add(e.exp(e.neg(x)), n(1.0))),
    lambda e, x, n: e.mul(e.mul(x, n(0.5004)), erf_part(e, x, n, 0)),
    lambda e, x, n: e.div(
        e.mul(x, e.clamp(e.add(x, n(3.002)), min_value=0, max_value=6)), n(6.0)),
    lambda e, x, n: e.mul(x, e.min(e.relu(e.add(e.div(x, n(6.004)), n(0.5))), n(1.0))),
    # Operands of higher rank raise the result's rank too.
    lambda e, x, n: e.mul(e.mul(x, e.constant([[[[0.5]]]], "float32")), erf_part(e, x, n, 0)),
])
def test_refuses(build):
    graph = drawn(build)
    assert fused(graph) == [n.operator.name for n in graph.nodes]


@st.composite
def mixtures(draw):
    """Chains of activations, written out or not, with other operators between them."""
    def build(e, x, n):
        for kind in draw(st.lists(st.integers(0, 6), min_size=1, max_size=4)):
            match kind:
                case 0:
                    x = e.mul(e.mul(x, n(0.5)), erf_part(e, x, n, draw(st.integers(0, 1))))
                case 1:
                    x = e.mul(x, e.mul(tanh_part(e, x, n, draw(st.integers(0, 1))), n(0.5)))
                case 2:
                    x = e.mul(x, e.sigmoid(x))
                case 3:
                    # Of two or three equal numbers little more than rounding errors would be left.
                    x = norm(e, x, n, axes=draw(st.sampled_from([(2,), (1, 2)])))
                case 4:
                    x = e.add(x, e.neg(x)) if draw(st.booleans()) else e.neg(x)
                case _:
                    x = e.mul(e.sigmoid(x), e.tanh(x))
        return x

    return drawn(build)


def test_the_meaning_is_kept():
    hits = 0

    @given(mixtures())
    def check(graph):
        nonlocal hits
        hits += len(fused(graph, 1e-4)) < len(graph.nodes)

    check()
    assert hits > 5
