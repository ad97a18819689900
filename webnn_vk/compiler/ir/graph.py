"""Values, nodes and graphs: immutable, in topological order, with a verifier and a text form.

A ``Value`` is an input, a constant or a node's output. A ``Node`` applies one operator record to
named operands. Passes make new graphs; nothing here is changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.dataclass import dataclass

from ..ops import Operator
from ..ops.record import prefix
from ..types.data_types import MLOperandDescriptor
from .literals import argument_text, constant_text, input_text, label_text, name_text


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a graph. ``data`` holds a constant's elements (read-only), ``name`` an input's
    name; a value with neither is a node's output. ``source`` is the origin of a constant (a
    constant tensor), opaque here. Constants with equal ``key`` have equal elements, also in
    different graphs, which then share data derived from them."""

    descriptor: MLOperandDescriptor
    name: str | None = None
    data: np.ndarray | None = None
    source: Any = None
    key: str | None = None

    @property
    def is_constant(self) -> bool:
        return self.data is not None or self.source is not None

    @property
    def data_type(self) -> str:
        return self.descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.descriptor.shape

    @cached_property
    def elements_text(self) -> str:
        """A constant's elements in the graph's text form."""
        return constant_text(self.descriptor, self.data)


@dataclass(frozen=True, eq=False)
class Node:
    """One use of an operator.

    ``operands`` holds the values present, in the operator's order; a sequence operand ``inputs`` is
    spread as ``inputs[0]``, ``inputs[1]`` …. ``arguments`` are the operator's other parameters in
    normal form.
    ``device`` is "vulkan" or "cpu", or empty before placement, with the ``reason`` for it.
    ``origins`` are the titles of the builder's nodes that this one comes from. ``given``: the
    arguments as the node was made with them, before the operator filled in what depends on shapes.
    """

    operator: Operator
    operands: Mapping[str, Value]
    arguments: Mapping[str, Any]
    outputs: tuple[Value, ...]
    label: str = ""
    device: str = ""
    reason: str = ""
    origins: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.origins:
            object.__setattr__(self, "origins", (prefix(self.operator.name, self.label),))

    @property
    def results(self) -> tuple[MLOperandDescriptor, ...]:
        """The outputs' descriptors."""
        return tuple(v.descriptor for v in self.outputs)

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(self.operands.values())

    @property
    def output(self) -> Value:
        (value,) = self.outputs
        return value

    def operand(self, name: str) -> Value | None:
        return self.operands.get(name)

    def sequence(self, name: str) -> tuple[Value, ...]:
        """The values of a sequence operand."""
        return tuple(v for key, v in self.operands.items() if key.startswith(name + "["))

    @property
    def title(self) -> str:
        """``matmul [q]``: for reports and messages."""
        return prefix(self.operator.name, self.label)

    def gather(self, lookup: Any) -> dict[str, Any]:
        """The operator's operands as ``evaluate``/``validate`` take them, each value mapped by
        ``lookup``: None for an absent operand, a list for a sequence."""
        return self.operator.grouped({name: lookup(v) for name, v in self.operands.items()})

    def evaluate(self, lookup: Any) -> list[np.ndarray]:
        """The NumPy reference on the arrays that ``lookup`` returns for the operands."""
        return self.operator.evaluate(self.results, self.gather(lookup), self.arguments)


@dataclass(frozen=True, eq=False)
class Graph:
    """A whole model: named inputs and outputs, nodes in topological order."""

    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    nodes: tuple[Node, ...]
    #: Names of the builder's inputs that no output depends on, for messages.
    unused: frozenset[str] = frozenset()
    #: Inputs whose tensors may also be given for an output: input → output.
    donated: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def producers(self) -> dict[Value, Node]:
        return {value: node for node in self.nodes for value in node.outputs}

    @cached_property
    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value (graph outputs are not counted)."""
        users: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                users.setdefault(value, []).append(node)
        return users

    @cached_property
    def output_values(self) -> frozenset[Value]:
        return frozenset(self.outputs.values())

    def constants(self) -> Iterator[Value]:
        """Every constant that is read, once."""
        seen = dict.fromkeys(v for node in self.nodes for v in node.inputs)
        seen |= dict.fromkeys(self.outputs.values())
        return (v for v in seen if v.is_constant)

    def verify(self) -> None:
        """Raise ValueError if an invariant is broken: order, single assignment, inference."""
        known = set(self.inputs.values())
        for name, value in self.inputs.items():
            if value.name != name:
                raise ValueError(f"input {name!r} is a value named {value.name!r}")
        for node in self.nodes:
            for value in node.inputs:
                if not value.is_constant and value not in known:
                    raise ValueError(f"{node.title} reads a value before it is computed")
            inferred = node.operator.validate(
                node.gather(lambda v: v.descriptor), node.arguments, node.label
            )
            if inferred.outputs != node.results:
                raise ValueError(
                    f"{node.title}: {node.results} where {inferred.outputs} is inferred"
                )
            for value in node.outputs:
                if value in known or value.is_constant:
                    raise ValueError(f"{node.title} assigns a value twice")
                known.add(value)
        for name, value in self.outputs.items():
            if not value.is_constant and value not in known:
                raise ValueError(f"output {name!r} is never computed")

    def __str__(self) -> str:
        """The graph's text form: one line per input, constant, node and output."""
        names: dict[Value, str] = {v: input_text(name) for name, v in self.inputs.items()}
        lines = [f"input {names[v]}: {v.descriptor}" for v in self.inputs.values()]
        tensors: dict[int, int] = {}
        for i, v in enumerate(self.constants()):
            names[v] = f"%c{i}"
            if v.data is not None:
                elements = v.elements_text
            else:
                elements = f"tensor({tensors.setdefault(id(v.source), len(tensors))})"
            lines.append(f"constant {names[v]}: {v.descriptor} = {elements}")
        for i, node in enumerate(self.nodes):
            for j, v in enumerate(node.outputs):
                names[v] = f"%{i}" if len(node.outputs) == 1 else f"%{i}.{j}"
            results = ", ".join(f"{names[v]}: {v.descriptor}" for v in node.outputs)
            lines.append(f"{results} = {_node_text(node, names)}")
        lines += [f"output {name_text(name)} = {names[v]}" for name, v in self.outputs.items()]
        return "\n".join(lines)


def _node_text(node: Node, names: Mapping[Value, str]) -> str:
    # The operands present; a sequence in brackets.
    operands = []
    for name, given in node.gather(names.__getitem__).items():
        if given is not None:
            text = f"[{', '.join(given)}]" if isinstance(given, list) else given
            operands.append(f"{name}={text}")
    head = node.operator.name + (f" {label_text(node.label)}" if node.label else "")
    options = [
        f"{p.name}={argument_text(node.arguments[p.name])}" for p in node.operator.arguments
    ]
    text = f"{head}({', '.join(operands + options)})"
    if node.device:
        text += f" on {name_text(node.device)}"
    if node.reason:
        text += f" because {json.dumps(node.reason)}"
    if node.origins != (prefix(node.operator.name, node.label),):
        text += f" from {', '.join(map(json.dumps, node.origins))}"
    return text
