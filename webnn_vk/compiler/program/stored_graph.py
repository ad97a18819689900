"""A graph as plain data, whose JSON form (`json_forms`) is in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass

from ..ir import Graph, Node, Value
from ..ir.emit import make_node
from ..ops import ALL_OPERATORS
from ..types.data_types import MLOperandDescriptor


@dataclass(frozen=True)
class StoredConstant:
    """A constant by its ``number``, or -1 for one with ``elements`` (one if all are equal)."""

    descriptor: MLOperandDescriptor
    number: int
    elements: memoryview


@dataclass(frozen=True)
class StoredNode:
    """A node with the numbers of the values that it reads."""

    operator: str
    operands: Mapping[str, int]
    arguments: Mapping[str, Any]
    label: str
    device: str
    reason: str
    origins: tuple[str, ...]


@dataclass(frozen=True)
class StoredGraph:
    """A graph whose values are numbered: the inputs, the constants, and the results of the nodes in
    their order."""

    inputs: Mapping[str, MLOperandDescriptor]
    constants: tuple[StoredConstant, ...]
    nodes: tuple[StoredNode, ...]
    outputs: Mapping[str, int]


def stored(graph: Graph, given: bool = False) -> StoredGraph:
    """The plain data of a graph. The sources of its constants are their numbers. ``given``: with
    the arguments that its nodes were made with in place of those in normal form."""
    constants = [*graph.constants()]
    values = [*graph.inputs.values(), *constants, *(v for n in graph.nodes for v in n.outputs)]
    numbers = {value: number for number, value in enumerate(values)}
    nodes = tuple(
        StoredNode(
            node.operator.name, {name: numbers[v] for name, v in node.operands.items()},
            node.given if given else node.arguments, node.label, node.device, node.reason,
            node.origins,
        )
        for node in graph.nodes
    )
    return StoredGraph(
        {name: value.descriptor for name, value in graph.inputs.items()},
        tuple(
            StoredConstant(v.descriptor, v.source, memoryview(b"")) if v.data is None
            else StoredConstant(v.descriptor, -1, _bytes(v.data))
            for v in constants
        ),
        nodes, {name: numbers[value] for name, value in graph.outputs.items()},
    )


def _bytes(array: np.ndarray) -> memoryview:
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(f"u{flat.itemsize}")
    equal = bool(flat.size) and bool((bits == bits[0]).all())
    return memoryview((flat[:1] if equal else flat).view(np.uint8))


def graph_of(stored: StoredGraph) -> Graph:
    """The graph of its plain data. ValueError, TypeError or KeyError for data that ``stored`` does
    not return."""
    inputs = {name: Value(d, name=name) for name, d in stored.inputs.items()}
    values = [*inputs.values(), *map(_constant, stored.constants)]
    nodes = []
    for row in stored.nodes:
        nodes.append(_node(row, values))
        values += nodes[-1].outputs
    outputs = {name: _value(values, number) for name, number in stored.outputs.items()}
    return Graph(inputs, outputs, tuple(nodes))


def _constant(stored: StoredConstant) -> Value:
    described = stored.descriptor
    if stored.number >= 0:
        return Value(described, source=stored.number)
    elements = np.frombuffer(stored.elements, described.numpy_dtype)
    if elements.size == 1:
        elements = np.full(described.shape, elements[0])
    if elements.size != described.size:
        raise ValueError(f"{elements.size} elements are stored for {described}")
    array = elements.reshape(described.shape)
    array.setflags(write=False)
    return Value(described, data=array)


def _node(stored: StoredNode, values: Sequence[Value]) -> Node:
    operator = ALL_OPERATORS.get(stored.operator)
    if operator is None:
        raise ValueError(f"no operator is called {stored.operator}")
    operands = operator.grouped({n: _value(values, v) for n, v in stored.operands.items()})
    absent = [p.name for p in operator.operands if not p.optional and operands[p.name] is None]
    if absent:
        raise ValueError(f"{operator.name} needs {absent[0]}")
    arguments = {p.name: p.convert(stored.arguments[p.name], p.name) for p in operator.arguments}
    node = make_node(operator, operands, arguments, stored.label)
    return replace(node, device=stored.device, reason=stored.reason, origins=stored.origins)


def _value(values: Sequence[Value], number: int) -> Value:
    if not 0 <= number < len(values):
        raise ValueError(f"there is no value {number}")
    return values[number]
