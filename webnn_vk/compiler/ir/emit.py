"""Building graphs node by node, for the builder and the passes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import reason
from webnn_vk.support.mmap_array import own_copy
from webnn_vk.support.topological import needed_nodes

from ..ops import ALL_OPERATORS, Operator
from ..ops.arguments import Operands
from ..ops.hints import negative_hint, option_hint
from ..ops.record import prefix
from ..ops.repeat import slice_of
from ..types.data_types import KNOWN_TYPES, MLOperandDescriptor
from .graph import Node, Value


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
        call = bind_call(operator, positional, keywords)
        outputs = self.apply(operator, call.operands, call.arguments, call.label or self.label)
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

    def loop(
        self,
        body: Callable[
            [Emitter, list[Value], list[Value]], tuple[Sequence[Value], Sequence[Value]]
        ],
        states: Sequence[Value],
        scanned: Sequence[Value],
        backward: Sequence[bool] = (),
    ) -> list[Value]:
        """A ``repeat`` over the first dimension of ``scanned``. ``body(emit, states, slices)``
        returns the next states and what is stacked."""
        seen = [Value(v.descriptor) for v in states]
        slices = [Value(slice_of(v.descriptor)) for v in scanned]
        inner = Emitter(self.label)
        following, stacked = body(inner, seen, slices)
        found = body_of(inner.nodes, [*seen, *slices], [*following, *stacked])
        self.nodes += found.invariant
        made = self.repeat(
            states, scanned, found.captured, count=scanned[0].shape[0], body=found.body,
            backward=backward,
        )
        return made if isinstance(made, list) else [made]

    def constant(self, array: np.ndarray | Any, data_type: str | None = None) -> Value:
        """A constant from an array (copied) or a number."""
        array = own_copy(np.asarray(array, KNOWN_TYPES[data_type].numpy if data_type else None))
        array.setflags(write=False)
        return Value(MLOperandDescriptor(array.dtype, array.shape), data=array)


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator's method: operands as given, and converted arguments, by name."""

    operands: dict[str, Any]
    arguments: dict[str, Any]
    label: str

    def where(self, operator: Operator) -> str:
        """The operator's name and ``[label]`` for messages."""
        return prefix(operator.name, self.label)


@cache
def _signature(operator: Operator) -> inspect.Signature:
    return operator.signature()


def bind_call(
    operator: Operator,
    positional: Sequence[Any],
    keywords: Mapping[str, Any],
    convert_operand: Callable[[Any, bool, str], Any] = lambda value, many, what: value,
) -> OperatorCall:
    """Bind and convert the arguments of a call of an operator's method.

    ``convert_operand`` takes a value, whether a sequence is expected, and a name for messages; it
    is called in the order of the parameters, as WebIDL converts. TypeError, with operator and
    ``[label]``, for arguments that the method doesn't have or that can't be converted.
    """
    signature = _signature(operator)
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as error:
        label = keywords.get("label", "")
        where = prefix(operator.name, label if isinstance(label, str) else "")
        names = ", ".join(signature.parameters)
        near = "".join(option_hint(name, signature.parameters) for name in keywords)
        raise TypeError(f"{where}: {error}; it takes {names}{near}") from None
    bound.apply_defaults()
    label = bound.arguments["label"]
    if not isinstance(label, str):
        raise TypeError(f"{operator.name}: the label has to be a str, not {type(label).__name__}")
    call = OperatorCall({}, {}, label)
    for p in operator.parameters:
        value, what = bound.arguments[p.name], f"{call.where(operator)}: {p.name}"
        if p.is_operand:
            absent = value is None and p.default is None
            call.operands[p.name] = None if absent else convert_operand(
                value, p.argument is Operands, what
            )
        else:
            try:
                call.arguments[p.name] = p.convert(value, what)
            except TypeError as error:
                hint = negative_hint(operator.name, p.name, value, call.operands)
                raise TypeError(f"{error}{hint}") from None
            except Exception as error:  # of the caller's own objects
                raise TypeError(f"{what}: it can't be converted: {reason(error)}") from error
    return call


@dataclass(frozen=True)
class FoundBody:
    """``body`` of a ``repeat`` (`ops/repeat.py`), the values that it ``captured``, and the nodes
    that compute the same in each repetition, which are outside of it."""

    body: tuple[Any, ...]
    captured: list[Value]
    invariant: list[Node]


def body_of(nodes: Iterable[Node], seen: Sequence[Value], results: Sequence[Value]) -> FoundBody:
    """The body that computes ``results``: the ``nodes`` that depend on a value ``seen``."""
    inside = set(seen)
    varying, invariant = [], []
    for node in nodes:
        if any(value in inside for value in node.inputs):
            inside.update(node.outputs)
            varying.append(node)
        else:
            invariant.append(node)
    kept, _ = needed_nodes(varying, results, lambda node: node.inputs, lambda node: node.outputs)
    read = [*(value for node in kept for value in node.inputs), *results]
    captured = list(dict.fromkeys(value for value in read if value not in inside))
    numbers = {value: number for number, value in enumerate((*seen, *captured))}
    calls = []
    for node in kept:
        operands = tuple((name, numbers[value]) for name, value in node.operands.items())
        calls.append((node.operator.name, node.label, operands, tuple(node.arguments.items())))
        for value in node.outputs:
            numbers[value] = len(numbers)
    body = tuple(calls), tuple(numbers[value] for value in results)
    return FoundBody(body, captured, invariant)


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
    return Node(operator, flat, inferred.arguments, outputs, label, given=arguments)
