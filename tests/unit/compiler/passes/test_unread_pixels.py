"""Strides of pointwise convolutions move before what computes their inputs."""

from __future__ import annotations

import pytest

from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, random_feeds, read
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.passes import UNREAD_PIXELS, Compilation, remove_dead_code, run_passes

# The end of a stage of ResNet's first version, and the beginning of the next one.
STAGES = """
inputs { x: f32[1, 4, 7, 6]; r: f32[1, 8, 7, 6]; }
consts { a: f32[8, 4, 1, 1]; b: f32[5, 8, 1, 1]; c: f32[3, 8, 1, 1]; v: f32[8, 1, 1]; }
nodes {
  h = relu(x);
  p = conv2d(h, a);
  q = add(p, v);
  s = add(q, r);
  t = relu(s);
  y = conv2d(t, b, strides=[2, 3]);
  z = conv2d(t, c, strides=[2, 3]);
}
outputs { y; z; }
"""


def done(text: str, profile: str = "llvmpipe", **options) -> Graph:
    """The graph after the pass; it computes the same, and a second run changes nothing."""
    graph = read(text)
    compilation = Compilation(profile=stored_profile(profile), verify=True, **options)
    changed = run_passes([UNREAD_PIXELS], graph, compilation, remove_dead_code)
    feeds = random_feeds(graph)
    expected = evaluate(graph, **feeds)
    for name, array in evaluate(changed, **feeds).items():
        assert_allclose(array, expected[name], rtol=1e-6, atol=1e-6)
    assert run_passes([UNREAD_PIXELS], changed, compilation, remove_dead_code) is changed
    assert bool(compilation.notes.of("unread_pixels")) == (changed is not graph)
    return changed


def shapes(graph: Graph) -> list[tuple[str, tuple[int, ...]]]:
    return [(n.operator.name, n.output.shape) for n in graph.nodes]


def test_only_the_pixels_that_are_read_are_computed():
    changed = done(STAGES)
    assert shapes(changed) == [
        # Before the convolution nothing is saved.
        ("relu", (1, 4, 7, 6)), ("slice", (1, 4, 4, 2)), ("conv2d", (1, 8, 4, 2)),
        ("add", (1, 8, 4, 2)), ("slice", (1, 8, 4, 2)), ("add", (1, 8, 4, 2)),
        ("relu", (1, 8, 4, 2)), ("conv2d", (1, 5, 4, 2)), ("conv2d", (1, 3, 4, 2)),
    ]
    assert all(node.arguments["strides"] == (1, 1)
               for node in changed.nodes if node.operator.name == "conv2d")


def test_channels_may_come_last():
    text = """
inputs { x: f32[2, 6, 6, 4]; }
consts { a: f32[8, 1, 1, 4]; b: f32[4, 1, 1, 8]; }
nodes {
  p = conv2d(x, a, inputLayout="nhwc", filterLayout="ohwi");
  q = sigmoid(p);
  y = conv2d(q, b, strides=[2, 2], inputLayout="nhwc", filterLayout="ohwi");
}
outputs { y; }
"""
    assert shapes(done(text)) == [
        ("slice", (2, 3, 3, 4)), ("conv2d", (2, 3, 3, 8)), ("sigmoid", (2, 3, 3, 8)),
        ("conv2d", (2, 3, 3, 4)),
    ]


def test_strides_may_be_larger_than_the_image():
    changed = done(STAGES.replace("strides=[2, 3]", "strides=[9, 3]"))
    assert shapes(changed)[1:3] == [("slice", (1, 4, 1, 2)), ("conv2d", (1, 8, 1, 2))]


def test_values_with_several_readers_are_visited_once():
    blocks = 60  # 2^60 ways lead back through them
    lines = ["y0 = conv2d(x, w);"]
    for n in range(blocks):
        lines += [f"g{n} = sigmoid(y{n});", f"y{n + 1} = max(y{n}, g{n});"]
    text = "\n".join([
        "inputs { x: f32[1, 4, 4, 4]; } consts { w: f32[4, 4, 1, 1]; } nodes {", *lines,
        f"z = conv2d(y{blocks}, w, strides=[2, 2]); }} outputs {{ z; }}",
    ])
    assert shapes(done(text))[1] == ("conv2d", (1, 4, 2, 2))


@pytest.mark.parametrize(("old", "new"), [
    # Another reader needs all pixels, or others.
    ("outputs {", "outputs { t;"),
    ("outputs {", "nodes { u = sigmoid(t); } outputs { u;"),
    ("c, strides=[2, 3]", "c, strides=[3, 2]"),
    ("outputs {", "outputs { p;"),
    # The last nodes mix pixels.
    ("c, strides=[2, 3]", "c, strides=[2, 3], padding=[1, 1, 1, 1]"),
    ("t = relu(s)", "t = averagePool2d(s, windowDimensions=[1, 1])"),
    # Each pixel has a summand of its own.
    ("v: f32[8, 1, 1]", "v: f32[7, 1]"),
    # Without strides, or without a convolution before.
    ("strides=[2, 3]", "strides=[1, 1]"),
    ("p = conv2d(h, a)", "p = concat([h, h], axis=1)"),
])
def test_where_it_does_not_apply(old: str, new: str):
    assert old in STAGES
    text = STAGES.replace(old, new)
    assert shapes(done(text)) == shapes(read(text))


def test_on_software_devices_and_where_the_operators_are_not_forced():
    for profile in ("nvidia_ampere", "amd_navi31"):
        assert shapes(done(STAGES, profile)) == shapes(read(STAGES))
    for name in ("slice", "conv2d"):
        assert shapes(done(STAGES, force_cpu=frozenset({name}))) == shapes(read(STAGES))
