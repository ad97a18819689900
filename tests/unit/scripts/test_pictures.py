"""The data behind the documentation's pictures. (That they are current: test_generated.)"""

import re
from xml.etree import ElementTree

from scripts.generate.pictures import FOLDER, compiler, drawing, modules, timeline
from webnn_vk.compiler.kernels.lower import KERNEL_PASSES
from webnn_vk.compiler.passes import DEVICE_PASSES


def test_every_import_leads_down():
    graph = modules.packages()
    level = {name: n for n, row in enumerate(modules.rows(graph)) for name in row}
    assert level.keys() == graph.keys() and {"kernels", "vulkan", "tools"} <= graph.keys()
    assert all(level[name] > level[target] for name in graph for target in graph[name])


def test_rows_of_layers():
    graph = {"a": frozenset("bcd"), "b": frozenset("c"), "c": frozenset("d"), "d": frozenset()}
    assert modules.rows(graph) == [["d"], ["c"], ["b"], ["a"]]
    joined = {"a": frozenset("bd"), "b": frozenset("d"), "d": frozenset()}
    assert modules.joined(graph, {"c": "b"}) == joined


def test_every_folder_is_drawn_above_what_it_imports():
    graph = modules.packages()
    lines, inner = modules.layers()
    drawn = [name for line in lines for name in line]
    place = drawn.index("compiler")
    drawn[place : place + 1] = inner
    assert {*drawn, *modules._DRIVERS, *modules._MODULES} == graph.keys()
    for number, name in enumerate(drawn):
        below = {*drawn[:number], *(modules._DRIVERS if "driver" in drawn[:number] else ())}
        assert graph[name] <= below | {*modules._MODULES}, name
    neighbours = [line for line in lines if len(line) > 1]
    assert neighbours and not any(graph[a] & {*line} for line in neighbours for a in line)


def test_every_pass_is_shown():
    """In the order of declaration; each pass has an effect that is described below."""
    lists, program = compiler.passes()
    first, _, kernels = ([name for name, _ in entries[1:]] for entries in lists)
    assert first == [step.name for step in DEVICE_PASSES]
    assert kernels == [step.name for step in KERNEL_PASSES]
    nodes = dict(lists[0])
    for name, before in (("fuse_norms", "fold_batch_norm"), ("fuse_activations", "fuse_norms"),
                         ("fuse_attention", "fuse_activations")):
        assert nodes[name] < nodes[before]
    assert program.setup and not program.report.summary.startswith("0 steps")


def test_batches():
    assert timeline.batches() == [([0, 1], False), ([2], True), ([3, 4, 6], False), ([5], False)]


def test_pictures_are_well_formed_and_nothing_sticks_out():
    for name in ("modules", "compiler", "timeline"):
        picture = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        root = ElementTree.fromstring(picture)
        *_, width, height = map(float, root.attrib["viewBox"].split())
        assert width == drawing.WIDTH
        for element in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
        for element in root.iter("{http://www.w3.org/2000/svg}text"):
            size = 5.2 if "small" in element.attrib["class"] else 6.3
            length, x = size * len(element.text), float(element.attrib["x"])
            left = x - length * {"start": 0, "middle": 0.5, "end": 1}[element.attrib["text-anchor"]]
            assert 0 <= left and left + length <= width, element.text
        assert "prefers-color-scheme: dark" in picture
        assert not re.search(r"https?://(?!www\.w3\.org/)", picture)
