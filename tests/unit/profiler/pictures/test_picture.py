"""Pictures of graphs, kernels and programs: boxes, values, edges, and the changes of a pass."""

from __future__ import annotations

import numpy as np
import pytest

import webnn_vk
from tests.support.graphs import read
from tests.support.profiles import stored_profile
from tests.unit.profiler.pictures.graphs import small
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.profiler.pictures import Box, PassPictures, Picture, of_program
from webnn_vk.profiler.pictures.picture import compared, of_graph


def edges(picture: Picture) -> list[tuple[str, str, str]]:
    return [(picture.boxes[a].label, picture.boxes[b].label, picture.values[v])
            for a, b, v in picture.edges()]


def test_a_graph_of_the_builder():
    picture = of_graph(small(), "as built")
    assert [(b.kind, b.title, b.device) for b in picture.boxes] == [
        ("input", "x", ""), ("node", "matmul [<q> & k]", ""), ("node", "relu", ""),
        ("node", "sigmoid", ""), ("node", "add", ""), ("output", "y", ""),
    ]
    shape = "float32[2, 3]"
    assert edges(picture) == [
        ("x", "matmul [<q> & k]", shape), ("matmul [<q> & k]", "relu", shape),
        ("matmul [<q> & k]", "sigmoid", shape), ("relu", "add", shape), ("sigmoid", "add", shape),
        ("add", "y", shape),
    ]
    assert picture.boxes[1].about == ("b: constant float32[3, 3]",)
    assert picture.boxes[1].names == ("matmul",)


def test_what_a_pass_changed_is_marked():
    a, b, c = (Box("node", name, reads=(n,), writes=(n + 1,)) for n, name in enumerate("abc"))
    fused = Box("kernel", "kernel", ("b", "c"), reads=(1,), writes=(3,))
    before, after = compared(Picture("", (a, b, c)), Picture("", (a, fused)))
    assert [box.mark for box in before.boxes] == ["", "gone", "gone"]
    assert [box.mark for box in after.boxes] == ["", "new"]
    # Only the colour shows placement.
    placed = Box("node", "a", device="vulkan", reads=(0,), writes=(1,))
    assert {box.mark for picture in compared(Picture("", (a,)), Picture("", (placed,)))
            for box in picture.boxes} == {""}


@pytest.fixture
def watched():
    """The passes of a compilation for a device, and the program."""
    seen = PassPictures(context_state_like())
    with seen:
        watch = seen.state.after_pass
        target = Target(stored_profile("nvidia_ampere"), after_pass=watch)
        program, _ = compile_program(small(), target)
    return seen, program


class context_state_like:
    """The observed part of a context."""

    watch = None


def test_passes_are_seen(watched):
    seen, _ = watched
    assert seen.passes == ("input", "place", "kernels", "fuse", "absorb")
    before, after = seen.around("fuse")
    kinds = [(b.kind, b.operators, b.mark) for b in after.boxes if b.kind == "kernel"]
    assert [mark for *_, mark in kinds].count("new") >= 1
    assert any(operators[0] == "matmul [<q> & k]" for _, operators, _ in kinds)
    assert sum(b.mark == "gone" for b in before.boxes) > sum(b.mark == "new" for b in after.boxes)
    first, same = seen.all()[0]
    assert first is same and first.title == "as built"
    assert len(seen.all()) == len(seen.passes)
    with pytest.raises(KeyError):
        seen.around("fold")


def test_a_program_has_a_box_for_each_kernel(watched):
    _, program = watched
    picture = of_program(program, "kernels", seconds={0: 3.0, 1: 1.0}, total=4.0)
    kernels = [b for b in picture.boxes if b.kind == "kernel"]
    assert len(kernels) == len(program.report.steps)
    assert [b.operators for b in kernels] == [s.operators for s in program.report.steps]
    assert {b.device for b in kernels} == {"vulkan"} and kernels[0].seconds == 3.0
    ends = {(a, b) for a, b, _ in edges(picture)}
    assert ("x", kernels[0].label) in ends and (kernels[-1].label, "y") in ends
    assert set(picture.values.values()) == {"float32[2, 3]"}


def test_steps_of_the_cpu_and_copies():
    settings = webnn_vk.Settings(device="cpu", cpu_engine="numpy")
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        builder = webnn_vk.MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [4]})
        with PassPictures(context._state) as seen:
            graph = builder.build({"y": builder.neg(x), "z": builder.abs(x)}).result()
        assert context._state.after_pass is None
        program = executable_of(graph).program
    assert [b.device for b in seen.around("place")[1].boxes if b.kind == "node"] == ["cpu"] * 2
    picture = of_program(program, "steps")
    assert [(b.kind, b.title, b.device) for b in picture.boxes] == [
        ("input", "x", ""), ("node", "neg", "cpu"), ("node", "abs", "cpu"), ("output", "y", ""),
        ("output", "z", ""),
    ]
    assert ("x", "abs", "float32[4]") in edges(picture)


def test_names_are_made_fit_to_be_read():
    graph = read("inputs { x: f32[2]; }", 'y = relu(x, label="a\u202eb");')
    assert of_graph(graph, "").boxes[1].title == "relu [a\\u202eb]"


def test_parts_of_a_value_that_lead_to_another_part_have_no_edge_of_their_own():
    """A concat that grows in place, as in DenseNet: a chain, not an edge for each pair of boxes."""
    boxes = [
        Box("kernel", "a", writes=(0,)), Box("kernel", "b", writes=(0,)),
        Box("kernel", "c", reads=(0,), writes=(1,)), Box("kernel", "d", reads=(1,), writes=(0,)),
        Box("kernel", "e", reads=(0,)),
    ]
    edges = [(0, 2, 0), (1, 2, 0), (2, 3, 1), (3, 4, 0)]
    assert list(Picture("", tuple(boxes)).edges()) == edges


def test_several_writers_of_one_value():
    boxes = (Box("node", "a", writes=(1,)), Box("node", "b", writes=(1,)),
             Box("node", "c", reads=(1,)), Box("node", "d", writes=(1,)))
    assert list(Picture("", boxes).edges()) == [(0, 2, 1), (1, 2, 1)]
    assert np.all([box.label == box.title for box in boxes])
