"""SVG: its text for a small graph, invariants of every drawing, and users' names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.unit.profiler.pictures.graphs import chain, small
from webnn_vk.profiler.pictures import Box, Picture, fragment, page, svg
from webnn_vk.profiler.pictures.picture import of_graph
from webnn_vk.profiler.pictures.scene import CHARACTERS, GAP, WIDTH, cut, scene
from webnn_vk.profiler.pictures.svg import resource

pytest.importorskip("fast_sugiyama")
NAMESPACE = "{http://www.w3.org/2000/svg}"
LAYER = ["matmul", "softmax", "matmul", "add", "norm", "gemm", "gelu", "gemm", "add", "norm"]


def levels(level):
    yield level
    for item in level.items:
        if item.inner is not None:
            yield from levels(item.inner)


def test_a_small_graph(golden):
    text = svg(of_graph(small(), "as built"))
    assert text == svg(of_graph(small(), "as built"))
    # Style and script have their own tests.
    bare = re.sub(r"<style>.*?</style>|<script>.*?</script>\n", "", text, flags=re.DOTALL)
    golden("small.svg", bare)


@pytest.mark.parametrize("fold", [True, False])
def test_nothing_overlaps(fold):
    picture = chain(["gather", "add", "mul", "sub", "norm", *LAYER * 20], residual=5, shared=True)
    for level in levels(scene(picture, fold)):
        for row in range(len(level.tops)):
            items = sorted((i for i in level.items if i.row == row), key=lambda i: i.x)
            for a, b in zip(items, items[1:], strict=False):
                assert a.x + WIDTH < b.x
            assert all(i.whole <= level.heights[row] for i in items)
            assert all(WIDTH / 2 <= i.x <= level.width - WIDTH / 2 for i in items)
        tops = zip(level.tops, level.heights, level.tops[1:], strict=False)
        assert all(top + height + GAP == after for top, height, after in tops)
        for edge in level.edges:
            rows = [level.items[edge.source].row, *(row for _, row in edge.bends),
                    level.items[edge.target].row]
            assert rows == list(range(rows[0], rows[-1] + 1))


def test_it_is_xml_with_every_box_and_edge():
    picture = chain(["<b>", "a & b", '"q"', "]]>"])
    root = ElementTree.fromstring(svg(picture))
    items = [e for e in root.iter(f"{NAMESPACE}g") if "item" in e.get("class", "").split()]
    edges = [e for e in root.iter(f"{NAMESPACE}path") if e.get("class") == "edge"]
    assert len(items) == len(picture.boxes) and len(edges) == len(list(picture.edges()))
    texts = [e.text for e in root.iter(f"{NAMESPACE}text")]
    assert {"<b>", "a & b", '"q"', "]]>", "float32[4]"} <= set(texts)
    # In a page no user's name can end the script.
    text = page("</script>", "<!--", [(picture, picture)])
    assert text.count("</script>") == 1 and "<!--" not in text.replace("<!doctype", "")


def test_groups_hold_all_of_their_boxes():
    picture = chain(LAYER * 20)
    named = f'<svg xmlns="{NAMESPACE[1:-1]}" '
    root = ElementTree.fromstring(fragment(picture).replace("<svg ", named))
    kinds = [e.get("class").split()[1] for e in root.iter(f"{NAMESPACE}g")
             if "item" in e.get("class", "").split()]
    assert kinds.count("node") == 200 and kinds.count("group") >= 10
    assert kinds.count("from") >= 10 <= kinds.count("to")
    unfolded = svg(picture, fold=False)
    assert unfolded.count('"item node"') == 200 and 'class="item group' not in unfolded


def test_marks_placement_and_shares():
    boxes = (
        Box("kernel", "matmul", ("matmul [a]", "relu"), "vulkan", (), (1,), mark="new", seconds=3),
        Box("copy", "copy arena to CPU", device="vulkan", reads=(1,), writes=(2,)),
        Box("node", "sort", device="cpu", reads=(2,), mark="gone"),
    )
    text = svg(Picture("p", boxes, {1: "float32[2]", 2: "float32[2]"}, seconds=4))
    for classes in ("kernel vulkan new", "copy vulkan", "node cpu gone"):
        assert f'class="item {classes}"' in text
    assert "matmul  75.0%" in text and 'class="share"' in text
    for meaning in ("one kernel", "on the device", "on the CPU", "made", "taken away"):
        assert f">{meaning}</text>" in text
    assert "click to open" not in text


def test_many_lines_are_cut():
    assert cut("a" * CHARACTERS) == "a" * CHARACTERS
    assert len(cut("encoder.layer.0.attention.query")) == CHARACTERS
    assert re.fullmatch(r"encoder.+….+query", cut("encoder.layer.0.attention.query"))
    box = Box("kernel", "elementwise", tuple(f"add [{n}]" for n in range(30)), writes=(1,))
    (item,) = scene(Picture("", (box,))).items
    assert item.texts[-1] == "and 25 more" and len(item.texts) == 7


def test_the_script_uses_the_same_measures():
    from webnn_vk.profiler.pictures import scene as measures

    (line,) = re.findall(r"const (WIDTH = .+);", resource("pictures/open.js"))
    measured = re.findall(r"(\w+) = (\d+)", line)
    assert len(measured) > 1
    for name, number in measured:
        assert getattr(measures, name) == int(number)
