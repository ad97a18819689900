"""batch_normalization with constant statistics folds into the convolution before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import (
    evaluate,
    graph_input,
    graph_of,
    random_elements,
    random_feeds,
    read,
    with_constant_tensors,
)
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.passes import FOLD_BATCH_NORM, Compilation, remove_dead_code, run_passes

HEAD = """
inputs {
  x: f32[1, 4, 5, 5]; i: f32[6]; filter: f32[6, 4, 3, 3];
  # Constant tensors.
  t: f32[6]; u: f32[6, 4, 3, 3];
}
consts {
  w: f32[6, 4, 3, 3];
  m: f32[6]; v: f32[6]; s: f32[6]; b: f32[6];
  h: f32[6] @scalar(1e38); l: f32[6] @scalar(1e-38);
}
"""
WEIGHTS = {
    "m": [1, 2, 3, 4, 5, 6], "v": [3, 8, 15, 0, 24, 3], "s": [2, 3, 4, 1, 0, -2],
    "b": [1, 1, 1, 1, 1, 1],
}


def made(nodes: str, outputs: str = "y") -> Graph:
    graph = read(HEAD, nodes, outputs, WEIGHTS)
    return with_constant_tensors(graph, *({"t", "u"} & graph.inputs.keys()))


def fold(graph: Graph, **options) -> Graph:
    compilation = Compilation(verify=True, **options)
    return run_passes([FOLD_BATCH_NORM], graph, compilation, remove_dead_code)


def test_factors_and_offsets_text_in_text_out():
    # Factors scale / √(variance + 1) are 1, 1, 1, 1, 0 and −1.
    graph = fold(made(
        'c = conv2d(x, w, padding=[1, 1, 1, 1], bias=b, label="stem"); '
        'y = batchNormalization(c, m, v, scale=s, bias=b, epsilon=1, label="bn")'
    ))
    (conv,) = graph.nodes
    w = random_elements(conv.operands["filter"].descriptor, "w")
    factors = np.array([1, 1, 1, 1, 0, -1], np.float32)
    np.testing.assert_array_equal(conv.operands["filter"].data, w * factors.reshape(6, 1, 1, 1))
    assert conv.operands["bias"].data.tolist() == [1, 0, -1, -2, 1, 6]
    lines = str(graph).splitlines()
    assert lines[1].startswith("constant %c0: float32[6, 4, 3, 3] = data(")
    assert [lines[0], *lines[2:]] == [
        "input %x: float32[1, 4, 5, 5]",
        "constant %c1: float32[6] = [1.0, 0.0, -1.0, -2.0, 1.0, 6.0]",
        "%0: float32[1, 6, 5, 5] = conv2d [stem](input=%x, filter=%c0, bias=%c1, "
        "padding=(1, 1, 1, 1), strides=(1, 1), dilations=(1, 1), groups=1, "
        'input_layout="nchw", filter_layout="oihw") '
        'from "conv2d [stem]", "batch_normalization [bn]"',
        "output y = %0",
    ]


@pytest.mark.parametrize(("text", "bias"), [
    ("c = conv2d(x, w); y = batchNormalization(c, m, v, epsilon=1)", "-m * f"),
    ("c = conv2d(x, w, bias=b); y = batchNormalization(c, m, v, epsilon=1)", "(1-m)*f"),
    ("c = conv2d(x, w); y = batchNormalization(c, m, v, bias=b, epsilon=1)", "1 - m*f"),
])
def test_bias_where_some_are_absent(text, bias):
    (conv,) = fold(made(text)).nodes
    m, f = np.arange(1, 7), 1 / np.sqrt(np.array([3, 8, 15, 0, 24, 3]) + 1)
    expected = eval(bias, {"m": m, "f": f})
    np.testing.assert_array_equal(conv.operands["bias"].data, expected.astype(np.float32))


NORM = "y = batchNormalization(c, m, v, scale=s, bias=b"


@pytest.mark.parametrize("text", [
    # Statistics, or parts of the convolution, that are not constant.
    "c = conv2d(x, w); y = batchNormalization(c, i, v)",
    "c = conv2d(x, w); y = batchNormalization(c, m, i)",
    "c = conv2d(x, w); y = batchNormalization(c, m, v, scale=i)",
    "c = conv2d(x, w); y = batchNormalization(c, m, v, bias=i)",
    "c = conv2d(x, w, bias=i); " + NORM + ")",
    # Constant tensors exist only on the device.
    "c = conv2d(x, w); y = batchNormalization(c, t, v)",
    "c = conv2d(x, w); y = batchNormalization(c, m, v, scale=t)",
    "c = conv2d(x, w, bias=t); " + NORM + ")",
    "c = conv2d(x, u); " + NORM + ")",
    "c = conv2d(x, filter); " + NORM + ")",
    # Another axis than the channels.
    "c = conv2d(x, w, padding=[2, 1, 1, 1]); " + NORM + ", axis=2)",
    # Unrepresentable numbers: 1/√0, √ of a negative number, a product beyond the type.
    "c = conv2d(x, w); " + NORM + ", epsilon=0)",
    "c = conv2d(x, w); y = batchNormalization(c, m, m, epsilon=-2)",
    "c = conv2d(x, w); y = batchNormalization(c, m, v, scale=h, bias=h, epsilon=1e-4)",
    # Every weight of a channel below the least normal number.
    "c = conv2d(x, w); y = batchNormalization(c, m, v, scale=l, epsilon=1)",
])
def test_refuses(text):
    refuses(made(text))


@pytest.mark.parametrize(("text", "outputs"), [
    # The convolution's own result is needed.
    ("c = conv2d(x, w); " + NORM + ")", "y; c"),
    ("c = conv2d(x, w); " + NORM + "); e = exp(c)", "y; e"),
    # The filter would exist twice.
    ("c = conv2d(x, w); d = conv2d(x, w); " + NORM + ")", "y; d"),
])
def test_refuses_what_others_read(text, outputs):
    refuses(made(text, outputs))


def refuses(graph):
    assert fold(graph) is graph
    # These are not folded for another reason.
    plain = made(f"c = conv2d(x, w, bias=b); {NORM})")
    assert len(fold(plain).nodes) == 1


@pytest.mark.parametrize("kept", ["conv2d", "batch_normalization"])
def test_what_is_forced_to_the_cpu_stays(kept):
    graph = made(f"c = conv2d(x, w); {NORM}, epsilon=1)")
    assert fold(graph, force_cpu=frozenset({kept})) is graph
    assert len(fold(graph, force_cpu=frozenset({"exp"})).nodes) == 1


def test_a_transposed_convolution_with_fewer_channels_than_groups_stays():
    # Its filter holds one set of weights for three groups.
    emit = Emitter()
    x = graph_input("x", (1, 1, 2, 2))
    w = emit.constant(np.ones((1, 2, 2, 2), np.float32))
    one = emit.constant(np.arange(1, 7, dtype=np.float32))
    c = emit.conv_transpose2d(x, w, groups=3)
    graph = graph_of(emit, {"y": emit.batch_normalization(c, one, one)}, x)
    assert fold(graph) is graph


@st.composite
def normalized_convolutions(draw, operator, data_type):
    """A random convolution and the normalisation of its output."""
    emit = Emitter()
    choose = lambda options: draw(st.sampled_from(options))  # noqa: E731
    layout, groups = choose(["nchw", "nhwc"]), choose([1, 2, 4])
    inputs, outputs = 4, choose([4, 8])
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = {"n": 2, "c": inputs, "h": 6, "w": 7}
    x = graph_input("x", tuple(sizes[letter] for letter in layout), data_type)
    if operator == "conv2d":
        filter_layout = choose(["oihw", "hwio", "ohwi", "ihwo"])
        taps = {"o": outputs, "i": inputs // groups, "h": rows, "w": columns}
    else:
        filter_layout = choose(["iohw", "hwoi", "ohwi"])
        taps = {"o": outputs // groups, "i": inputs, "h": rows, "w": columns}
    rng = np.random.default_rng(draw(st.integers(0, 1000)))

    def constant(shape, low=-1.0, high=1.0):
        return emit.constant(rng.uniform(low, high, shape), data_type)

    def maybe(shape):
        return constant(shape) if draw(st.booleans()) else None

    options = {"strides": [draw(st.integers(1, 2)) for _ in range(2)]}
    if operator == "conv2d":
        options["padding"] = [draw(st.integers(0, 1)) for _ in range(4)]
    conv = getattr(emit, operator)(
        x, constant([taps[letter] for letter in filter_layout]), bias=maybe([outputs]),
        groups=groups, input_layout=layout, filter_layout=filter_layout, **options,
    )
    y = emit.batch_normalization(
        conv, constant([outputs]), constant([outputs], 0.1, 2.0), scale=maybe([outputs]),
        bias=maybe([outputs]), axis=layout.index("c"),
    )
    return graph_of(emit, {"y": y}, x)


@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("operator", ["conv2d", "conv_transpose2d"])
def test_the_meaning_is_kept(operator, data_type):
    folds = 0

    @given(normalized_convolutions(operator, data_type), st.integers(0, 5))
    def check(graph, seed):
        nonlocal folds
        feeds = random_feeds(graph, seed)
        conv, norm = graph.nodes
        done = fold(graph)
        if done is graph:
            # A channel would vanish: numbers between -1 and 1 don't cause that in float32.
            assert data_type == "float16"
            return
        folds += 1
        (joined,) = done.nodes
        assert joined.origins == (operator, "batch_normalization")
        # The bound: a few roundings of the sum, with all terms taken positive.
        statistics = {
            n: v.data.astype(np.float64) for n, v in norm.operands.items() if n != "input"
        }
        factor = np.abs(statistics.get("scale", 1.0) / np.sqrt(statistics["variance"] + 1e-5))
        offset = np.abs(statistics["mean"]) + (
            np.abs(conv.operands["bias"].data) if "bias" in conv.operands else 0
        )
        bias = factor * offset + np.abs(statistics.get("bias", 0.0))
        operands = {
            "input": np.abs(feeds["x"]).astype(np.float32),
            "filter": np.abs(joined.operands["filter"].data).astype(np.float32),
            "bias": bias.astype(np.float32),
        }
        (terms,) = joined.operator.evaluate(
            [type(joined.output.descriptor)("float32", joined.output.shape)], operands,
            joined.arguments,
        )
        bound = 4 * np.finfo(data_type).eps * (terms + 1e-3)
        before = evaluate(graph, **feeds)["y"].astype(np.float64)
        after = evaluate(done, **feeds)["y"].astype(np.float64)
        assert (np.abs(before - after) <= bound).all()

    check()
    assert folds > 5
