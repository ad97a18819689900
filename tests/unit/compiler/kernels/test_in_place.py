"""Parts of a tensor that are computed in its memory: which ones, where, and which keep their copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelGraph, lower_graph
from webnn_vk.compiler.kernels.absorb import absorb
from webnn_vk.compiler.kernels.in_place import lie_in_place
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.passes import PLACE, Compilation, run_passes
from webnn_vk.compiler.program import Program, Target, compile_program
from webnn_vk.compiler.program.verify import verify

PROFILE = stored_profile("nvidia_ampere")  # bindings begin at multiples of 256 bytes


def parts(graph: Graph, *cpu: str, profile: Any = PROFILE, apart: str = "") -> KernelGraph:
    placed = run_passes((PLACE,), graph, Compilation(profile, force_cpu=frozenset(cpu)))
    alone = frozenset(n for n in placed.nodes if n.operator.name == apart)
    done = lie_in_place(absorb(kernelize(placed, alone)), profile)
    done.verify()
    return done


def lines(graph: KernelGraph) -> list[str]:
    return [line for line in str(graph).splitlines() if line.startswith("part ")]


def copies(graph: Graph, **options: Any) -> int:
    program, _ = compile_program(graph, Target(PROFILE, **options))
    verify(program)
    return sum(step.kernel == "copy" for step in program.dispatches)


def joined(widths: Sequence[int], axis: int = 0, rows: int = 1) -> tuple[Emitter, Value, Value]:
    """A concat of kernels' results, read by another kernel."""
    emit = Emitter()
    x = graph_input("x", (rows, 64))
    shapes = [(w, 64) if axis == 0 else (rows, w) for w in widths]
    made = [emit.sin(emit.expand(emit.reduce_mean(x), shape)) for shape in shapes]
    made = [emit.softmax(value, 1) for value in made]
    return emit, x, emit.concat(made, axis)


def test_what_is_joined_is_written_in_place() -> None:
    emit, x, whole = joined((2, 3, 1))
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)
    placed = parts(graph)
    assert [p.offset for p in placed.parts.values()] == [0, 512, 1280]
    assert {p.whole for p in placed.parts.values()} == {whole}
    assert copies(graph) == copies(graph, skip=("in_place",)) - 3


def test_the_result_may_be_an_output() -> None:
    emit, x, whole = joined((2, 3))
    graph = graph_of(emit, {"y": whole}, x)
    program, _ = compile_program(graph, Target(PROFILE))
    written = {
        (program.slots[place.slot].kind, place.offset, place.size)
        for step in program.dispatches for place, _, write in step.accesses() if write
    }
    assert {("output", 0, 512), ("output", 512, 768)} <= written


def test_along_an_axis_with_something_before_it_nothing_lies_in_place() -> None:
    emit, x, whole = joined((64, 128), axis=1, rows=2)
    assert not parts(graph_of(emit, {"y": emit.softmax(whole, 0)}, x)).parts
    emit, x, whole = joined((64, 128), axis=1, rows=1)
    assert len(parts(graph_of(emit, {"y": emit.softmax(whole, 0)}, x)).parts) == 2


def test_what_begins_where_no_binding_can_is_copied() -> None:
    emit = Emitter()
    x = graph_input("x", (4, 5))
    made = [emit.softmax(x, 1), emit.softmax(x, 0), emit.log(x)]
    graph = graph_of(emit, {"y": emit.softmax(emit.concat(made, 0), 0)}, x)
    # 80 bytes each: the end of the first is not an aligned start for the second, and its last
    # vector is whole.
    far = PROFILE.replace(min_storage_buffer_offset_alignment=64)
    assert lines(parts(graph, profile=far)) == ["part %0 = %3 from byte 0 on"]
    assert len(parts(graph).parts) == 3


def test_a_last_vector_that_is_not_whole_reaches_into_no_neighbour() -> None:
    emit = Emitter()
    x = graph_input("x", (1, 3))
    first, last = emit.softmax(x, 1), emit.log(x)
    graph = graph_of(emit, {"y": emit.softmax(emit.concat([first, last], 0), 0)}, x)
    assert not parts(graph, profile=PROFILE.replace(
        min_storage_buffer_offset_alignment=4, min_texel_buffer_offset_alignment=4
    )).parts


def test_what_is_needed_as_it_is_is_copied() -> None:
    emit = Emitter()
    x = graph_input("x", (1, 64))
    kept, host, twice, shared = (emit.softmax(x, 1) for _ in range(4))
    emit_host = emit.tanh(host)
    ones = emit.constant(np.ones((1, 64), np.float32))
    one = emit.concat([kept, host, twice, twice, x, ones, shared], 0)
    two = emit.concat([shared, emit.neg(x)], 0)
    graph = graph_of(emit, {
        "kept": kept, "host": emit_host, "one": emit.softmax(one, 0), "two": emit.softmax(two, 0),
    }, x)
    placed = parts(graph, "tanh")
    # An output, a value that the CPU reads, one that is elsewhere already, inputs and constants.
    assert [(p.offset, p.whole) for v, p in placed.parts.items() if v in (twice, shared)] == [
        (512, one), (1536, one)
    ]
    assert len(placed.parts) == 3 and kept not in placed.parts and host not in placed.parts


def test_a_view_lies_where_its_source_is_written() -> None:
    emit = Emitter()
    x = graph_input("x", (8, 32))
    flat = emit.reshape(emit.softmax(x, 1), (4, 64))
    other = emit.reshape(emit.softmax(x, 0), (4, 64))
    graph = graph_of(emit, {"y": emit.softmax(emit.concat([flat, other], 0), 0)}, x)
    assert [(v.shape, p.offset) for v, p in parts(graph).parts.items()] == [
        ((8, 32), 0), ((8, 32), 1024)
    ]


def test_parts_of_parts() -> None:
    emit, x, inner = joined((1, 1))
    whole = emit.concat([emit.log(emit.expand(x, (2, 64))), inner], 0)
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)
    program, _ = compile_program(graph, Target(PROFILE))
    verify(program)
    slot = next(n for n, s in enumerate(program.slots) if s.size == 4 * 256)
    starts = {
        place.offset for step in program.dispatches for place, _, write in step.accesses()
        if write and place.slot == slot
    }
    assert starts == {0, 512, 768}


@pytest.mark.parametrize("from_input", (False, True))
def test_a_split_is_read_where_it_is(from_input: bool) -> None:
    emit = Emitter()
    x = graph_input("x", (6, 64))
    source = x if from_input else emit.softmax(x, 1)
    low, high = emit.split(source, (2, 4), axis=0)
    middle = emit.slice(source, (1, 0), (2, 64))
    graph = graph_of(emit, {"y": emit.softmax(low, 0), "z": emit.softmax(high, 0),
                            "m": emit.softmax(middle, 0)}, x)
    placed = parts(graph)
    assert [(p.whole, p.offset) for p in placed.parts.values()] == [
        (source, 0), (source, 512), (source, 256)
    ]
    assert copies(graph) == 0 and copies(graph, skip=("in_place",)) == 3


def test_a_part_that_is_an_output_is_copied() -> None:
    emit = Emitter()
    x = graph_input("x", (4, 64))
    low, high = emit.split(x, 2, axis=0)
    graph = graph_of(emit, {"low": low, "high": emit.softmax(high, 0)}, x)
    assert list(parts(graph).parts) == [high] and copies(graph) == 1


def test_constants_packed_or_not_are_no_place() -> None:
    emit = Emitter()
    x = graph_input("x", (2, 64))
    weights = Value(x.descriptor, source=object())
    low, high = emit.split(weights, 2, axis=0)
    graph = graph_of(emit, {"y": emit.add(emit.softmax(low, 0), emit.softmax(high, 0)), "x": x}, x)
    assert not parts(graph).parts


def test_a_node_that_stays_apart_is_left_alone() -> None:
    emit, x, whole = joined((2, 3))
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)
    assert not parts(graph, apart="concat").parts


def test_drivers_that_bind_whole_memory_get_copies() -> None:
    emit, x, whole = joined((2, 3))
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)
    assert not parts(graph, profile=PROFILE.replace(whole_bindings=True)).parts


def test_an_output_can_not_be_a_part() -> None:
    emit, x, whole = joined((2, 3))
    graph = parts(graph_of(emit, {"y": emit.softmax(whole, 0)}, x))
    part = next(iter(graph.parts))
    with pytest.raises(ValueError, match="output 'p' lies in another value"):
        replace(graph, outputs={**graph.outputs, "p": part}).verify()


def test_the_memory_of_the_parts_is_that_of_the_whole() -> None:
    emit = Emitter()
    x = graph_input("x", (64, 64))
    whole = emit.concat([emit.softmax(x, 0), emit.softmax(x, 1)], 0)
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)

    def arena(**options: Any) -> int:
        program: Program = compile_program(graph, Target(PROFILE, **options))[0]
        return program.report.arena_bytes

    assert (arena(), arena(skip=("in_place",))) == (2 * 64 * 256, 4 * 64 * 256)


def test_the_pass_belongs_to_the_lowering() -> None:
    emit, x, whole = joined((2, 3))
    graph = graph_of(emit, {"y": emit.softmax(whole, 0)}, x)
    compilation = Compilation(PROFILE, verify=True)
    placed = run_passes((PLACE,), graph, compilation)
    assert "in_place" not in compilation.notes.seconds
    lower_graph(placed, compilation)
    assert "in_place" in compilation.notes.seconds
