"""Low-precision types (experimental, webnn#956): their elements lie in carriers, and operators
compute in float32, or in 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Emitter, Graph, Node, Value
from ..ops.lowering import Repeat
from ..types.data_types import LOW_PRECISION, MLOperandDescriptor
from .decompose import without_loops
from .pipeline import Compilation, Pass

#: Operators that move elements without looking at them.
_MOVES = frozenset({
    "identity", "reshape", "transpose", "slice", "split", "concat", "expand", "tile", "reverse",
    "gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd", "triangular",
    "where",
})


def legalize(graph: Graph, compilation: Compilation) -> Graph:
    """The graph without low-precision types. Inputs and outputs keep their bytes."""
    values = [*graph.inputs.values(), *graph.constants()]
    values += [value for node in graph.nodes for value in node.outputs]
    if not any(value.data_type in LOW_PRECISION for value in values):
        return graph
    if any(isinstance(node.operator.lowering, Repeat) for node in graph.nodes):
        graph = without_loops(graph)
    return _Legalizer(graph).run()


class _Legalizer:
    """``emit`` collects the nodes for the node at hand, ``unpacking`` those that come first;
    ``carriers``: values → as they are stored."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.emit = Emitter()
        self.unpacking: list[Node] = []
        self.carriers: dict[Value, Value] = {}

    def run(self) -> Graph:
        inputs = {name: self._input(value) for name, value in self.graph.inputs.items()}
        nodes: list[Node] = []
        for node in self.graph.nodes:
            self.emit = Emitter(node.label)
            self._node(node)
            nodes += [replace(new, origins=node.origins) for new in self.emit.nodes]
        self.emit = Emitter()
        outputs = {name: self._output(value) for name, value in self.graph.outputs.items()}
        nodes = [*self.unpacking, *nodes, *self.emit.nodes]
        return replace(self.graph, inputs=inputs, outputs=outputs, nodes=tuple(nodes))

    # -- values -------------------------------------------------------------------------------
    def _input(self, value: Value) -> Value:
        return value if value.data_type not in LOW_PRECISION else self._stored(value)

    def _stored(self, value: Value) -> Value:
        """An input, or a constant in a tensor, as its bytes lie; its carrier becomes known."""
        low = LOW_PRECISION[value.data_type]
        if low.bits != 4:
            stored = replace(value, descriptor=MLOperandDescriptor(low.carrier, value.shape))
            self.carriers[value] = stored
            return stored
        size = value.descriptor.byte_length
        stored = replace(value, descriptor=MLOperandDescriptor("uint8", (size,)))
        emit = Emitter()
        halves = [
            emit.reshape(
                emit.low_bits(stored, data_type=low.name, shift=shift), [size, 1]
            )
            for shift in ("0", "4")
        ]
        flat = emit.reshape(emit.concat(halves, 1), [2 * size])
        if 2 * size > value.descriptor.size:
            flat = emit.slice(flat, [0], [value.descriptor.size])
        self.carriers[value] = emit.reshape(flat, list(value.shape))
        self.unpacking += emit.nodes
        return stored

    def _carrier(self, value: Value) -> Value:
        """The value as it is stored inside the graph."""
        low = LOW_PRECISION.get(value.data_type)
        if low is None or value in self.carriers:
            return self.carriers.get(value, value)
        if value.data is not None:
            descriptor = MLOperandDescriptor(low.carrier, value.shape)
            data = value.data
            data = data.astype(low.carrier) if low.bits == 4 else data.view(descriptor.numpy_dtype)
            data.setflags(write=False)
            key = None if value.key is None else f"{value.key} as {low.carrier}"
            self.carriers[value] = Value(descriptor, data=data, key=key)
        else:
            self._stored(value)
        return self.carriers[value]

    def _number(self, value: Value) -> Value:
        """The value as float32 if its type is a low-precision float, otherwise its carrier."""
        low = LOW_PRECISION.get(value.data_type)
        if low is None or low.kind != "f":
            return self._carrier(value)
        if value.data is not None:
            return self.emit.constant(value.data.astype(np.float32))
        return self.emit.decode(self._carrier(value), data_type=low.name)

    def _set(self, value: Value, made: Value) -> None:
        """Store what a value of the graph became: ``made`` is float32 for a low-precision float."""
        low = LOW_PRECISION.get(value.data_type)
        if low is None or low.kind != "f" or made.data_type == low.carrier:
            self.carriers[value] = made
        else:
            self.carriers[value] = self.emit.encode(made, data_type=low.name)

    def _output(self, value: Value) -> Value:
        low = LOW_PRECISION.get(value.data_type)
        carrier = self._carrier(value)
        if low is None or low.bits != 4:
            return carrier
        emit, size = self.emit, value.descriptor.byte_length
        flat = emit.reshape(carrier, [value.descriptor.size])
        if value.descriptor.size % 2:
            flat = emit.pad(flat, [0], [1])
        pairs = emit.reshape(flat, [size, 2])
        low_half, high_half = (
            emit.reshape(emit.slice(pairs, [0, i], [size, 1]), [size]) for i in (0, 1)
        )
        return emit.join_bits(low_half, high_half)

    # -- nodes --------------------------------------------------------------------------------
    def _node(self, node: Node) -> None:
        name, emit = node.operator.name, self.emit
        touched = any(
            value.data_type in LOW_PRECISION for value in (*node.inputs, *node.outputs)
        )
        if not touched or name in _MOVES:
            made = emit.apply(
                node.operator, node.gather(self._carrier), node.arguments, node.label
            )
        elif name == "cast":
            made = [self._cast(node.operands["input"], node.output.data_type)]
        elif name == "quantize_linear" and node.output.data_type in LOW_PRECISION:
            made = [self._quantize(node)]
        elif name == "dequantize_linear" and node.operands["input"].data_type in LOW_PRECISION:
            made = [self._dequantize(node)]
        else:
            made = emit.apply(
                node.operator, node.gather(self._number), node.arguments, node.label
            )
            made = [self._wrapped(*pair) for pair in zip(node.outputs, made, strict=True)]
        for value, new in zip(node.outputs, made, strict=True):
            self._set(value, new)

    def _wrapped(self, value: Value, made: Value) -> Value:
        """The results of 8-bit integers as 4-bit integers would give them."""
        low = LOW_PRECISION.get(value.data_type)
        if low is None or low.bits != 4:
            return made
        return self.emit.low_bits(made, data_type=low.name)

    def _cast(self, value: Value, to: str) -> Value:
        low = LOW_PRECISION.get(to)
        number = self._number(value)
        if low is None:
            return self._as(number, to)
        if low.kind == "f":
            return self.emit.encode(self._as(number, "float32"), data_type=to)
        return self.emit.low_bits(self._as(number, low.carrier), data_type=to)

    def _quantize(self, node: Node) -> Value:
        emit, low = self.emit, LOW_PRECISION[node.output.data_type]
        x, scale, zero = (node.operands[n] for n in ("input", "scale", "zero_point"))
        if low.kind != "f":
            made = emit.quantize_linear(
                self._number(x), self._number(scale), self._carrier(zero)
            )
            limits = (-8, 7) if low.name == "int4" else (0, 15)
            return emit.clamp(made, min_value=limits[0], max_value=limits[1])
        quotient = emit.div(self._float(x), self._blocks(self._float(scale), x.shape))
        shifted = emit.add(quotient, self._blocks(self._float(zero), x.shape))
        return emit.encode(shifted, data_type=low.name)

    def _dequantize(self, node: Node) -> Value:
        emit = self.emit
        x, scale, zero = (node.operands[n] for n in ("input", "scale", "zero_point"))
        if LOW_PRECISION[x.data_type].kind != "f":
            made = emit.dequantize_linear(
                self._carrier(x), self._number(scale), self._carrier(zero)
            )
        else:
            shifted = emit.sub(self._float(x), self._blocks(self._float(zero), x.shape))
            made = emit.mul(shifted, self._blocks(self._float(scale), x.shape))
        to = node.output.data_type
        return made if to in LOW_PRECISION else self._as(made, to)

    def _as(self, value: Value, data_type: str) -> Value:
        return value if value.data_type == data_type else self.emit.cast(value, data_type)

    def _float(self, value: Value) -> Value:
        return self._as(self._number(value), "float32")

    def _blocks(self, value: Value, shape: Sequence[int]) -> Value:
        """Each element repeated over its block."""
        if all(d in (1, s) for d, s in zip(value.shape, shape, strict=True)):
            return value
        pairs: list[Any] = [(d, s // d) for d, s in zip(value.shape, shape, strict=True)]
        split = self.emit.reshape(value, [n for d, _ in pairs for n in (d, 1)])
        spread = self.emit.expand(split, [n for pair in pairs for n in pair])
        return self.emit.reshape(spread, list(shape))


LEGALIZE = Pass("legalize", legalize, required=True)
