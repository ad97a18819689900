"""One random use of an operator: operands as arrays, arguments, and how it is added to a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webnn_vk import MLContext, MLGraphBuilder, MLOperand
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.ops import ALL_OPERATORS, OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


@dataclass(frozen=True)
class Example:
    """``operands`` by parameter name (a list for a sequence, absent ones omitted), ``arguments`` as
    passed to the builder; operands named in ``constants`` are constants of the graph."""

    operator: str
    operands: Mapping[str, Any]
    arguments: Mapping[str, Any]
    constants: frozenset[str] = frozenset()

    def add_to(
        self, builder: MLGraphBuilder, prefix: str
    ) -> tuple[list[Any], dict[str, np.ndarray]]:
        """(output operands, arrays for the new graph inputs)."""
        feeds: dict[str, np.ndarray] = {}

        def operand(name: str, array: np.ndarray, constant: bool) -> Any:
            if constant:
                return builder.constant(array)
            feeds[prefix + name] = array
            described = {"data_type": array.dtype.name, "shape": array.shape}
            return builder.input(prefix + name, described)

        given: dict[str, Any] = dict(self.arguments)
        for name, arrays in self.operands.items():
            constant = name in self.constants
            if isinstance(arrays, list):
                given[name] = [operand(f"{name}{i}", a, constant) for i, a in enumerate(arrays)]
            else:
                given[name] = operand(name, arrays, constant)
        made = _applied(builder, self.operator, given)
        return (made if isinstance(made, list) else [made]), feeds

    def graph(self) -> Graph:
        """The use as a graph of one node, made without a context."""
        emit = Emitter()
        inputs: dict[str, Value] = {}

        def operand(name: str, array: np.ndarray, constant: bool) -> Value:
            if constant:
                return emit.constant(array)
            descriptor = MLOperandDescriptor(array.dtype.name, array.shape)
            return inputs.setdefault(name, Value(descriptor, name=name))

        given: dict[str, Any] = dict(self.arguments)
        for name, arrays in self.operands.items():
            constant = name in self.constants
            if isinstance(arrays, list):
                given[name] = [operand(f"{name}{i}", a, constant) for i, a in enumerate(arrays)]
            else:
                given[name] = operand(name, arrays, constant)
        made = getattr(emit, self.operator)(**given)
        outputs = made if isinstance(made, list) else [made]
        return Graph(inputs, {f"y{i}": v for i, v in enumerate(outputs)}, tuple(emit.nodes))

    def types(self) -> frozenset[tuple[str, str]]:
        """(operand or output name, data type) for each that it uses."""
        found = set()
        for name, arrays in self.operands.items():
            for array in arrays if isinstance(arrays, list) else [arrays]:
                found.add((name, array.dtype.name))
        for name, descriptor in zip(_output_names(self.operator), self.outputs(), strict=False):
            found.add((name, descriptor.data_type))
        return frozenset(found)

    def is_one(self) -> bool:
        """Whether all dimensions of its operands are 1, as in the first example of hypothesis."""
        return all(
            array.size == 1
            for arrays in self.operands.values()
            for array in (arrays if isinstance(arrays, list) else [arrays])
        )

    def inferred(self) -> Any:
        """The record's inference: output descriptors and normalised arguments."""
        record = ALL_OPERATORS[self.operator]
        described = {p.name: _described(self.operands.get(p.name)) for p in record.operands}
        return record.validate(described, self.converted())

    def outputs(self) -> tuple[Any, ...]:
        return self.inferred().outputs

    def converted(self) -> dict[str, Any]:
        """All arguments as the builder converts them, with defaults."""
        values = {}
        for p in ALL_OPERATORS[self.operator].arguments:
            value = self.arguments.get(p.name, p.default)
            values[p.name] = value if value is None else p.argument.convert(value, p.name)
        return values

    def __repr__(self) -> str:
        def shown(name: str, value: Any) -> str:
            mark = " constant" if name in self.constants else ""
            return f"{name}={_described(value)}{mark}"

        operands = [shown(name, value) for name, value in self.operands.items()]
        arguments = [f"{name}={value!r}" for name, value in self.arguments.items()]
        return f"{self.operator}({', '.join([*operands, *arguments])})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis shows this text."""
        printer.text(repr(self))

    def in_full(self) -> str:
        """The same text with the operands' values."""
        lines = [repr(self)]
        with np.printoptions(threshold=64, edgeitems=3):
            lines += [f"  {name} = {value!r}" for name, value in self.operands.items()]
        return "\n".join(lines)


def _applied(builder: MLGraphBuilder, operator: str, given: Mapping[str, Any]) -> Any:
    """The builder's method of that name. For internal operators, which have no method, a function
    that adds the node to the builder's graph as a pass would."""
    if operator in OPERATORS:
        return getattr(builder, operator)(**given)

    def value(item: Any) -> Any:
        if isinstance(item, MLOperand):
            return item._value
        return [value(i) for i in item] if isinstance(item, list) else item

    emit = Emitter()
    made = getattr(emit, operator)(**{name: value(item) for name, item in given.items()})
    builder._nodes.extend(emit.nodes)
    values = made if isinstance(made, list) else [made]
    return [builder._operand(v, operator) for v in values]


def _described(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_described(v) for v in value]
    return MLOperandDescriptor(value.dtype.name, value.shape)


def _output_names(operator: str) -> Sequence[str]:
    """The rows of the tensor-limit table for outputs; "outputs" stands for every part."""
    record = ALL_OPERATORS[operator]
    operands = {p.name for p in record.operands}
    return [name for name in record.limits if name not in operands]


@dataclass
class Count:
    """The examples of one operator that ran, by type of operand and output."""

    examples: int = 0
    hits: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, example: Example) -> None:
        self.examples += 1
        for hit in example.types():
            self.hits[hit] = self.hits.get(hit, 0) + 1

    def missing(
        self, operator: str, chosen: Callable[[Iterable[str]], list[str]] = list
    ) -> list[tuple[str, str]]:
        """(operand or output, type) pairs that the record allows and no example used, of the types
        that are ``chosen``."""
        record = ALL_OPERATORS[operator]
        return [
            (name, data_type)
            for name in record.limits
            for data_type in chosen(record.limit(name).types)
            if (name, data_type) not in self.hits
        ]

    def types(self) -> int:
        return len({data_type for _, data_type in self.hits})


def run(context: MLContext, examples: Sequence[Example]) -> list[list[np.ndarray]]:
    """The outputs of each example, from one graph that contains all of them. On a device no step
    may run on the CPU."""
    builder = MLGraphBuilder(context)
    outputs: dict[str, Any] = {}
    feeds: dict[str, np.ndarray] = {}
    counts = []
    for i, example in enumerate(examples):
        made, arrays = example.add_to(builder, f"{i}.")
        feeds |= arrays
        outputs |= {f"{i}.{k}": operand for k, operand in enumerate(made)}
        counts.append(len(made))
    with builder.build(outputs).result() as graph:
        if context.device_info.is_vulkan:
            for step in graph.report().steps:
                assert step.device == "vulkan", step
        used = {name: array for name, array in feeds.items() if name in graph.inputs}
        results = context.compute(graph, used)
    return [[results[f"{i}.{k}"] for k in range(n)] for i, n in enumerate(counts)]
