"""Building graphs node by node: what the builder and the passes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..data_types import DATA_TYPES, MLOperandDescriptor
from ..ops import ALL_OPERATORS, Operator
from ..ops.arguments import Operands
from .ir import Node, Value


class Emitter:
    """Collects nodes. ``emit.add(a, b)`` applies any operator by its name to values and
    arguments, in the builder method's order, and returns its output value(s)."""

    def __init__(self, label: str = "") -> None:
        self.nodes: list[Node] = []
        self.label = label

    def __getattr__(self, name: str) -> Any:
        try:
            return partial(self._call, ALL_OPERATORS[name])
        except KeyError:
            raise AttributeError(f"no operator is called {name}") from None

    def _call(self, operator: Operator, *positional: Any, **keywords: Any) -> Any:
        bound = operator.signature().bind(*positional, **keywords)
        bound.apply_defaults()
        label = bound.arguments.pop("label") or self.label
        operands = {p.name: bound.arguments[p.name] for p in operator.operands}
        arguments = {
            p.name: value
            if (value := bound.arguments[p.name]) is None
            else p.argument.convert(value, f"{operator.name}: {p.name}")
            for p in operator.arguments
        }
        outputs = self.apply(operator, operands, arguments, label)
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def apply(
        self,
        operator: Operator,
        operands: Mapping[str, Value | Sequence[Value] | None],
        arguments: Mapping[str, Any],
        label: str = "",
    ) -> tuple[Value, ...]:
        """Validate and append one node; ``operands`` by parameter name, arguments converted."""
        node = make_node(operator, operands, arguments, label)
        self.nodes.append(node)
        return node.outputs

    def like(self, node: Node, **changes: Any) -> Any:
        """The output value(s) of a node like ``node`` (its label included) with some operands and
        arguments changed, by name."""
        operands = {name: changes.pop(name, v) for name, v in node.gather(lambda v: v).items()}
        arguments = dict(node.arguments)
        for p in node.operator.arguments:
            if p.name in changes:
                what = f"{node.operator.name}: {p.name}"
                arguments[p.name] = p.argument.convert(changes.pop(p.name), what)
        if changes:
            raise TypeError(f"{node.operator.name} has no {', '.join(changes)}")
        outputs = self.apply(node.operator, operands, arguments, node.label)
        return outputs[0] if len(outputs) == 1 else list(outputs)

    def constant(self, array: np.ndarray | Any, data_type: str | None = None) -> Value:
        """A constant from an array (copied) or a number."""
        array = np.array(array, dtype=DATA_TYPES[data_type].numpy if data_type else None, order="C")
        array.setflags(write=False)
        return Value(MLOperandDescriptor(array.dtype.name, array.shape), data=array)


def make_node(
    operator: Operator,
    operands: Mapping[str, Value | Sequence[Value] | None],
    arguments: Mapping[str, Any],
    label: str = "",
    max_byte_length: int | None = None,
) -> Node:
    """One validated node with fresh output values, each of at most ``max_byte_length`` bytes."""
    described: dict[str, Any] = {}
    flat: dict[str, Value] = {}
    for p in operator.operands:
        given = operands.get(p.name)
        if p.argument is Operands:
            described[p.name] = tuple(v.descriptor for v in given)
            flat |= {f"{p.name}[{i}]": v for i, v in enumerate(given)}
        elif given is None:
            described[p.name] = None
        else:
            described[p.name] = given.descriptor
            flat[p.name] = given
    inferred = operator.validate(described, arguments, label, max_byte_length)
    outputs = tuple(Value(d) for d in inferred.outputs)
    return Node(operator, flat, inferred.arguments, outputs, label)
