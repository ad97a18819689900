"""Small graphs for tests of the layers between builder and device."""

from __future__ import annotations

import numpy as np

from webnn_vk.data_types import MLOperandDescriptor
from webnn_vk.graph import Emitter, Graph, Value


def graph_input(name: str, shape: tuple[int, ...], data_type: str = "float32") -> Value:
    return Value(MLOperandDescriptor(data_type, shape), name=name)


def graph_of(emit: Emitter, outputs: dict[str, Value], *inputs: Value) -> Graph:
    graph = Graph({v.name: v for v in inputs}, outputs, tuple(emit.nodes))
    graph.verify()
    return graph


def evaluate(graph: Graph, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """The graph's outputs by the operators' references, node by node."""
    arrays = {graph.inputs[name]: data for name, data in inputs.items()}

    def lookup(value: Value) -> np.ndarray:
        return value.data if value.data is not None else arrays[value]

    for node in graph.nodes:
        arrays.update(zip(node.outputs, node.evaluate(lookup), strict=True))
    return {name: lookup(value) for name, value in graph.outputs.items()}
