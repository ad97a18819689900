"""Small graphs for tests of the layers between builder and device."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.graph_text import parse, random_elements
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.ir.literals import digest
from webnn_vk.compiler.kernels import KernelGraph
from webnn_vk.compiler.kernels.node import writes
from webnn_vk.compiler.types.data_types import ALL_TYPES, DATA_TYPES, MLOperandDescriptor


@st.composite
def constant_arrays(draw: Any) -> np.ndarray:
    """Arrays of any bits: of every data type and several shapes, half of them of one number."""
    dtype = DATA_TYPES[draw(st.sampled_from(ALL_TYPES))].numpy
    shape = draw(st.sampled_from([(), (1,), (3,), (4, 4), (17,), (2, 3, 5)]))
    size = int(np.prod(shape)) * dtype.itemsize
    array = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), dtype)
    return np.full(shape, array[0]) if draw(st.booleans()) else array.reshape(shape)


def graph_input(name: str, shape: tuple[int, ...], data_type: str = "float32") -> Value:
    return Value(MLOperandDescriptor(data_type, shape), name=name)


def graph_of(emit: Emitter, outputs: dict[str, Value], *inputs: Value) -> Graph:
    graph = Graph({v.name: v for v in inputs}, outputs, tuple(emit.nodes))
    graph.verify()
    return graph


def evaluate(graph: Graph | KernelGraph, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """The graph's outputs by the operators' references, node by node; for a graph of kernels,
    through the kernels' accesses."""
    arrays = {graph.inputs[name]: data for name, data in inputs.items()}

    def lookup(value: Value) -> np.ndarray:
        return value.data if value.data is not None else arrays[value]

    for node in graph.nodes:
        arrays.update(zip(writes(node), node.evaluate(lookup), strict=True))
    return {name: lookup(value) for name, value in graph.outputs.items()}


def assert_same(a: Graph, b: Graph) -> None:
    """Both graphs are equal: nodes in the same order with the same operators, arguments, labels,
    devices and origins, reading the same values; constants with the same bits."""

    def describe(graph: Graph) -> list[object]:
        places: dict[Value, object] = {v: ("input", name) for name, v in graph.inputs.items()}
        places |= {v: ("constant", i) for i, v in enumerate(graph.constants())}
        sources: dict[int, int] = {}
        said: list[object] = [(name, v.name, v.descriptor) for name, v in graph.inputs.items()]
        for v in graph.constants():
            source = None if v.source is None else sources.setdefault(id(v.source), len(sources))
            said.append((v.descriptor, None if v.data is None else v.data.tobytes(), source))
        for i, node in enumerate(graph.nodes):
            operands = {name: places[v] for name, v in node.operands.items()}
            places |= {v: (i, j) for j, v in enumerate(node.outputs)}
            said.append((node.operator.name, operands, repr(dict(node.arguments)), node.results))
            said.append((node.label, node.device, node.reason, node.origins))
        return [*said, {name: places[v] for name, v in graph.outputs.items()}]

    for one, other in zip(describe(a), describe(b), strict=True):
        assert one == other


def data_of(graph: Graph) -> dict[str, np.ndarray]:
    """The constants' elements by the digest in the graph's text."""
    return {digest(v.descriptor, v.data): v.data for v in graph.constants() if v.data is not None}


def assert_text(graph: Graph, expected: str) -> None:
    """The graph's text equals the text of the graph that ``expected`` describes."""
    assert str(graph) == str(parse(expected))


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays for the inputs."""
    return {n: random_elements(v.descriptor, f"{seed} {n}") for n, v in graph.inputs.items()}
