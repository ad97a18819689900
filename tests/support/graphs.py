"""Small graphs for tests of the layers between builder and device."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from webnn_vk.api.builder import ShapeBuilder
from webnn_vk.api.builder import graph_of as graph_of_operands
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelGraph
from webnn_vk.compiler.kernels.node import writes
from webnn_vk.compiler.passes.rewrite import Substitution
from webnn_vk.compiler.types.data_types import ALL_TYPES, DATA_TYPES, MLOperandDescriptor
from webnn_vk.webnn_file.reading import _Building
from webnn_vk.webnn_file.text import parse


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


class _Weights:
    """Stands for the file of tensors beside a ``.webnn`` file: the tensors given, and
    ``random_elements`` of any other name."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def view(self, name: str, descriptor: MLOperandDescriptor) -> np.ndarray:
        if name not in self.given:
            return random_elements(descriptor, name)
        array = np.array(self.given[name], descriptor.numpy_dtype)
        assert array.shape == descriptor.shape, name
        array.setflags(write=False)
        return array


def read(
    head: str, nodes: str = "", outputs: str = "", weights: Mapping[str, Any] | None = None
) -> Graph:
    """The graph of a ``.webnn`` text without its frame: ``head`` has some or all of the blocks,
    ``nodes`` and ``outputs`` (by default "y") the contents of theirs, where they are apart; their
    last semicolon may be left out. Constants get the ``weights`` of their name, or else
    ``random_elements``. Nodes and inputs that no output needs are left out, as by any builder."""
    if nodes:
        head += f" nodes {{ {nodes.rstrip()};}} outputs {{ {outputs or 'y'}; }}".replace(";;", ";")
    archive: Any = _Weights(weights or {})
    document = parse(f'webnn_graph "test" v2 {{ {head} }}')
    return graph_of_operands(
        _Building(document, ShapeBuilder(), lambda: archive, {}).outputs({})
    )


def with_constant_tensors(graph: Graph, *names: str) -> Graph:
    """The graph with these inputs as constant tensors, whose elements only the device has."""
    replaced = Substitution(
        (graph.inputs[name], Value(graph.inputs[name].descriptor, source=object()))
        for name in names
    )
    inputs = {name: v for name, v in graph.inputs.items() if name not in names}
    return replaced.rebuild(replace(graph, inputs=inputs), map(replaced.apply, graph.nodes))


def with_origins(graph: Graph, *origins: str) -> Graph:
    """The graph with these origins of its last node."""
    *nodes, last = graph.nodes
    return replace(graph, nodes=(*nodes, replace(last, origins=origins)))


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


def random_elements(descriptor: MLOperandDescriptor, word: str) -> np.ndarray:
    """A read-only array that depends only on the descriptor and ``word``, on any machine: floats
    are multiples of 2⁻¹⁰ in [−1, 1), integers −8 … 8 (0 … 16 unsigned)."""
    stream = hashlib.shake_256(f"{word} {descriptor}".encode()).digest(2 * descriptor.size)
    drawn = np.frombuffer(stream, "<u2").astype(np.int64).reshape(descriptor.shape)
    dtype = descriptor.numpy_dtype
    if dtype.kind == "f":
        array = ((drawn % 2048 - 1024) / 1024).astype(dtype)
    else:
        array = (drawn % 17 - (8 if dtype.kind == "i" else 0)).astype(dtype)
    array.setflags(write=False)
    return array


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arrays for the inputs."""
    return {n: random_elements(v.descriptor, f"{seed} {n}") for n, v in graph.inputs.items()}
