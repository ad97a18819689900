'""pad before conv2d, l2_pool2d and max_pool2d: folded where both mean the same, and only there.""'

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.graphs import (
    evaluate,
    graph_input,
    graph_of,
    random_feeds,
    read,
    with_origins,
)
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.passes import FOLD_PAD, Compilation, remove_dead_code, run_passes

HEAD = """
inputs { x: f32[1, 4, 6, 7]; }
consts {
  w: f32[2, 4, 3, 3];
  w1: f32[2, 4, 1, 1];
  wt: f32[4, 2, 3, 3];
  last: f32[2, 7, 3, 3];
}
"""


def folded(text: str) -> Graph:
    graph = read(HEAD, text)
    before = evaluate(graph, **random_feeds(graph))
    compilation = Compilation(verify=True)
    done = run_passes([FOLD_PAD], graph, compilation, remove_dead_code)
    for name, array in evaluate(done, **random_feeds(graph)).items():
        np.testing.assert_array_equal(array, before[name])
    assert len(compilation.notes.of("fold_pad")) == (done is not graph)
    return done


@pytest.mark.parametrize(("before", "after", "origins"), [
    (
        'p = pad(x, beginningPadding=[0, 0, 1, 2], endingPadding=[0, 0, 3, 4], label="p"); '
        'y = conv2d(p, w, label="c")',
        'y = conv2d(x, w, padding=[1, 3, 2, 4], label="c")',
        ("pad [p]", "conv2d [c]"),
    ),
    (
        "p = pad(x, beginningPadding=[0, 0, 1, 0], endingPadding=[0, 0, 0, 2]); "
        "y = conv2d(p, w, padding=[1, 2, 3, 4], strides=[2, 1], dilations=[1, 2])",
        "y = conv2d(x, w, padding=[2, 2, 3, 6], strides=[2, 1], dilations=[1, 2])",
        ("pad", "conv2d"),
    ),
    (
        # [batches, height, width, channels]
        "p = pad(x, beginningPadding=[0, 1, 2, 0], endingPadding=[0, 3, 4, 0]); "
        'y = conv2d(p, last, inputLayout="nhwc")',
        'y = conv2d(x, last, padding=[1, 3, 2, 4], inputLayout="nhwc")',
        ("pad", "conv2d"),
    ),
    (
        "p = pad(x, beginningPadding=[0, 0, 1, 2], endingPadding=[0, 0, 1, 2]); "
        "y = conv2d(p, w1, strides=[2, 2])",
        "y = conv2d(x, w1, padding=[1, 1, 2, 2], strides=[2, 2])",
        ("pad", "conv2d"),
    ),
    (
        "p = pad(x, beginningPadding=[0, 0, 2, 2], endingPadding=[0, 0, 2, 2]); "
        "y = l2Pool2d(p, windowDimensions=[2, 2])",
        "y = l2Pool2d(x, windowDimensions=[2, 2], padding=[2, 2, 2, 2])",
        ("pad", "l2_pool2d"),
    ),
    (
        # The window covers the padded input, as it did before.
        "p = pad(x, beginningPadding=[0, 0, 1, 1], endingPadding=[0, 0, 1, 1], value=-0.0); "
        "y = l2Pool2d(p)",
        "y = l2Pool2d(x, windowDimensions=[8, 9], padding=[1, 1, 1, 1])",
        ("pad", "l2_pool2d"),
    ),
    (
        'p = pad(x, beginningPadding=[0, 0, 1, 1], endingPadding=[0, 0, 1, 1], value="-Infinity"); '
        'y = maxPool2d(p, windowDimensions=[3, 3], strides=[2, 3], '
        'outputShapeRounding="ceil")',
        "y = maxPool2d(x, windowDimensions=[3, 3], strides=[2, 3], padding=[1, 1, 1, 1], "
        'outputShapeRounding="ceil", outputSizes=[4, 3])',
        ("pad", "max_pool2d"),
    ),
    (
        'i = cast(x, dataType="int8"); '
        "p = pad(i, beginningPadding=[0, 1, 1, 0], endingPadding=[0, 1, 0, 0], value=-128); "
        'y = maxPool2d(p, windowDimensions=[3, 3], layout="nhwc")',
        'i = cast(x, dataType="int8"); '
        'y = maxPool2d(i, windowDimensions=[3, 3], padding=[1, 1, 1, 0], layout="nhwc")',
        ("pad", "max_pool2d"),
    ),
])
def test_folds(before, after, origins):
    assert str(folded(before)) == str(with_origins(read(HEAD, after), *origins))


PAD = "p = pad(x, beginningPadding=[0, 0, 1, 1], endingPadding=[0, 0, 1, 1]"


@pytest.mark.parametrize("text", [
    # A mean counts zeros in its input, but not its own padding.
    PAD + "); y = averagePool2d(p, windowDimensions=[2, 2])",
    # Elements below the value would be lost.
    PAD + "); y = maxPool2d(p, windowDimensions=[2, 2])",
    PAD + ", value=-3.4028234663852886e+38); y = maxPool2d(p, windowDimensions=[3, 3])",
    # A window of padding alone gives 0, of −inf alone −inf.
    PAD + ', value="-Infinity"); y = maxPool2d(p, windowDimensions=[1, 1])',
    PAD + ', value="-Infinity"); y = maxPool2d(p, windowDimensions=[2, 2], dilations=[7, 8])',
    PAD + ", value=1); y = l2Pool2d(p, windowDimensions=[2, 2])",
    PAD + ", value=1); y = conv2d(p, w)",
    PAD + ", value=-0.0); y = conv2d(p, w)",
    PAD + ', mode="edge"); y = conv2d(p, w)',
    PAD + ', mode="reflection"); y = conv2d(p, w)',
    PAD + ', mode="reflection"); y = l2Pool2d(p, windowDimensions=[2, 2])',
    # The padding of a transposed convolution crops its output.
    PAD + "); y = convTranspose2d(p, wt)",
    # A product, which runs faster than a convolution that checks for the border.
    PAD + "); y = conv2d(p, w1)",
    # Only height and width can be padded.
    "p = pad(x, beginningPadding=[1, 0, 1, 1], endingPadding=[0, 0, 1, 1]); "
    "y = conv2d(p, w)",
    "p = pad(x, beginningPadding=[0, 0, 1, 1], endingPadding=[0, 4, 1, 1]); "
    "y = conv2d(p, w, groups=2)",
    "p = pad(x, beginningPadding=[0, 1, 0, 0], endingPadding=[0, 0, 0, 0]); "
    "y = l2Pool2d(p, windowDimensions=[2, 2])",
    PAD + '); y = l2Pool2d(p, windowDimensions=[2, 2], layout="nhwc")',
    # The padded tensor is the filter, not the input.
    "u = slice(x, starts=[0, 0, 0, 0], sizes=[1, 4, 2, 2]); "
    "p = pad(u, beginningPadding=[0, 0, 1, 0], endingPadding=[0, 0, 0, 1]); "
    "y = conv2d(x, p)",
])
def test_refuses(text):
    before = read(HEAD, text)
    assert str(folded(text)) == str(before)


def test_integers_next_to_the_lowest_are_no_padding():
    text = (
        'i = cast(x, dataType="int8"); p = pad(i, beginningPadding=[0, 0, 1, 1], '
        "endingPadding=[0, 0, 1, 1], value=-127); y = maxPool2d(p, windowDimensions=[3, 3])"
    )
    assert len(folded(text).nodes) == 3


def test_several_readers_fold_and_one_that_can_not_keeps_the_pad():
    graph = read(
        HEAD,
        PAD + "); c = conv2d(p, w); d = conv2d(p, w); "
        "e = averagePool2d(p, windowDimensions=[3, 3])",
        "c; d; e",
    )
    graph = run_passes([FOLD_PAD], graph, Compilation(verify=True), remove_dead_code)
    assert [n.operator.name for n in graph.nodes] == ["pad", "conv2d", "conv2d", "average_pool2d"]
    assert [n.operands["input"].name for n in graph.nodes[1:3]] == ["x", "x"]


@st.composite
def padded_windows(draw, kind):
    """A random pad before a random convolution or pooling."""
    emit = Emitter()
    layout = draw(st.sampled_from(["nchw", "nhwc"]))
    sizes = dict(zip("nchw", (draw(st.integers(1, 2)), 4, *draw(_pair(5, 8))), strict=True))
    types = ["float32", "float16"] + (["int32", "uint8"] if kind == "max_pool2d" else [])
    data_type = draw(st.sampled_from(types))
    x = graph_input("x", tuple(sizes[letter] for letter in layout), data_type)
    # Little padding too, so that every window of some poolings contains an element.
    most = draw(st.integers(1, 3))
    edges = [
        [draw(st.integers(0, most)) if letter in "hw" else 0 for letter in layout] for _ in range(2)
    ]
    if draw(st.integers(0, 9)) == 0:
        edges[0][layout.index("c")] = 4
    lowest = -math.inf if kind == "max_pool2d" else 0
    value = draw(st.sampled_from([lowest, lowest, lowest, 0, 1]))
    p = emit.pad(x, *edges, value=value, label="pad")
    window = draw(_pair(2 if kind == "max_pool2d" else 1, 3))
    options = {
        "padding": [draw(st.integers(0, most - 1)) for _ in range(4)],
        "strides": draw(_pair(1, 3)),
        "dilations": draw(_pair(1, 2)),
    }
    try:
        if kind == "conv2d":
            channels = p.shape[layout.index("c")]
            groups = draw(st.sampled_from([1, 2, 4]))
            w = emit.constant(
                np.arange(4 * channels // groups * window[0] * window[1], dtype=data_type).reshape(
                    4, channels // groups, *window
                ) % 5 - 2
            )
            y = emit.conv2d(p, w, groups=groups, input_layout=layout, **options)
        else:
            rounding = draw(st.sampled_from(["floor", "ceil"]))
            y = getattr(emit, kind)(
                p, window_dimensions=window, layout=layout, output_shape_rounding=rounding,
                **options,
            )
    except TypeError:
        assume(False)
    return graph_of(emit, {"y": y}, x)


def _pair(low: int, high: int):
    return st.tuples(st.integers(low, high), st.integers(low, high))


@pytest.mark.parametrize("kind", ["conv2d", "l2_pool2d", "max_pool2d", "average_pool2d"])
def test_the_meaning_is_kept(kind):
    folds = 0

    # With fewer examples, the pass might find too few to fold.
    @settings(max_examples=max(100, settings.default.max_examples))
    @given(padded_windows(kind), st.integers(0, 5))
    def check(graph, seed):
        nonlocal folds
        feeds = random_feeds(graph, seed)
        expected = evaluate(graph, **feeds)
        done = run_passes([FOLD_PAD], graph, Compilation(verify=True), remove_dead_code)
        folds += len(done.nodes) == 1
        for name, array in evaluate(done, **feeds).items():
            np.testing.assert_array_equal(array, expected[name])

    check()
    assert folds == 0 if kind == "average_pool2d" else folds > 5
