"""The graph that a program was compiled from, in the form of the program's file."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.graphs import graphs
from tests.support.graphs import assert_same, constant_arrays, graph_input, graph_of
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.program import Program
from webnn_vk.compiler.program.compiled_from import compiled_graph, graph_text
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def program_of(graph: Graph, constants: int = 0) -> Program:
    """A program that has only what concerns the graph that it was compiled from."""
    return Program(
        {name: v.descriptor for name, v in graph.inputs.items()},
        {name: v.descriptor for name, v in graph.outputs.items()}, (), (),
        constants=(MLOperandDescriptor("float32", (2,)),) * constants, compiled=graph,
    )


def read_back(program: Program) -> Graph:
    """The graph through its text, twice: a program from a file is saved again as it is."""
    for _ in range(2):
        text, originals = graph_text(program)
        program = replace(program, compiled=text, originals=originals)
    return compiled_graph(program)


@given(graphs())
def test_random_graphs(random_graph):
    graph = random_graph.graph()
    assert_same(read_back(program_of(graph)), graph)


@pytest.mark.parametrize("name", sorted(ALL_OPERATORS))
def test_every_operator(name):
    @settings(max_examples=8)
    @given(examples(name))
    def check(example):
        graph = example.graph()
        again = read_back(program_of(graph))
        assert_same(again, graph)
        assert str(again) == str(graph)

    check()


@given(st.text(min_size=1), st.text(), st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_names_and_labels_of_any_characters(name, label, device, reason, origins):
    emit = Emitter()
    x = graph_input(name, (2,))
    graph = graph_of(emit, {name: emit.clamp(x, max_value=float("inf"), label=label)}, x)
    node = replace(graph.nodes[0], device=device, reason=reason, origins=(*origins, "clamp"))
    graph = replace(graph, nodes=(node,))
    assert_same(read_back(program_of(graph)), graph)


@given(array=constant_arrays())
def test_constants_keep_their_bits(array):
    emit = Emitter()
    graph = graph_of(emit, {"y": emit.identity(emit.constant(array))})
    (again,) = read_back(program_of(graph)).constants()
    assert again.data.tobytes() == array.tobytes() and not again.data.flags.writeable


def small() -> Program:
    emit = Emitter()
    x = graph_input("x", (2,))
    weights = Value(MLOperandDescriptor("float32", (2,)), source=1)
    low, high = emit.split(emit.concat([emit.add(x, weights), x], 0), 2, axis=0)
    y = emit.mul(low, emit.clamp(high, min_value=float("-inf"), max_value=3.5))
    y = emit.add(y, emit.constant(np.float32([1, 2])))
    return program_of(graph_of(emit, {"y": y}, x), constants=2)


def test_constants_of_the_program_are_numbers():
    program = small()
    assert_same(read_back(program), program.compiled)
    text, originals = graph_text(program)
    assert originals == (((0, ""),), ((1, ""),))
    with pytest.raises(ValueError, match="the program has 1 constants, not 1"):
        compiled_graph(replace(program, compiled=text, originals=originals[:1]))
    assert graph_text(replace(program, compiled=None)) is None
    assert compiled_graph(replace(program, compiled=None)) is None


def places(data: Any, path: tuple[Any, ...] = ()):
    yield path
    length = len(data) if isinstance(data, list) else 0
    for key in data if isinstance(data, dict) else range(length):
        yield from places(data[key], (*path, key))


WRONG = [None, True, -1, 2**40, 1.5, "x", "", [], {}, [[]], float("nan"), {"float": "x"}]


def test_a_text_with_anything_changed_is_read_or_refused():
    program = small()
    text, originals = graph_text(program)
    refused = accepted = 0
    for path in places(json.loads(text)):
        for number, wrong in enumerate(WRONG):
            if len(path) > 2 and number != zlib.crc32(repr(path).encode()) % len(WRONG):
                continue
            data: Any = json.loads(text)
            place = data
            for key in path[:-1]:
                place = place[key]
            if path:
                place[path[-1]] = wrong
            else:
                data = wrong
            changed = replace(program, compiled=json.dumps(data), originals=originals)
            try:
                compiled_graph(changed).verify()
                accepted += 1
            except ValueError:
                refused += 1
    assert refused > 4 * accepted > 0


def test_refusals_say_why():
    program = small()
    text, originals = graph_text(program)
    for before, after, message in (
        ('"split"', '"cut"', "no operator is called cut"),
        ('{"y": ', '{"z": ', "other inputs or outputs"),
        ('"b": 1', '"b": 99', "there is no value 99"),
        (', "b": 1', "", "add needs b"),
        ('"axis": 0', '"axes": 0', "axis"),
        ("0000803f", "0000803f00", "buffer size must be a multiple"),
        ("0000803f", "0000803f" * 2, "3 elements are stored"),
    ):
        assert before in text, before
        changed = replace(program, compiled=text.replace(before, after), originals=originals)
        with pytest.raises(ValueError, match=message):
            compiled_graph(changed)
