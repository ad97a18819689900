"""Reading a graph's text form: ``parse(str(graph))`` is the graph again.

    # comments and empty lines are skipped
    input %x: float32[1, 8, 8, 3]
    constant %w: float32[4, 3, 3, 3] = random(7)
    %y = conv2d [stem](%x, %w, input_layout="nhwc") on vulkan from "conv2d [stem]", "add"
    %p, %q = split(input=%y, splits=2, axis=1)
    %z: float32[1, 6, 12, 2] = concat(inputs=[%p, %q], axis=3)
    output z = %z

Unlike in printed text, the types of results, the names of operands and arguments with defaults may
be left out. ``webnn_vk/compiler/ir/literals.py`` has the forms of constants; one more is read here:
``random(seed)`` stands for ``random_elements`` of that word.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Graph, Node, Value
from webnn_vk.compiler.ir.emit import make_node
from webnn_vk.compiler.ir.literals import PLAIN_LABEL, PLAIN_NAME
from webnn_vk.compiler.ops import ALL_OPERATORS, Operator
from webnn_vk.compiler.ops.arguments import Operands
from webnn_vk.compiler.types.data_types import (
    DATA_TYPES,
    KNOWN_TYPES,
    MLOperandDescriptor,
    check_dimensions,
)
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.token_reader import TokenReader

_SPACE = re.compile(r"[ \t]*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r'%(?:"(?:[^"\\]|\\.)*"|[A-Za-z0-9_./-]+)')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\'\\]*\'')
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*=")
_NUMBER = re.compile(r"[+-]?(?:inf|nan(?:\(0x[0-9a-f]+\))?|[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?)")
_DIMENSION = re.compile(r"[0-9]{1,10}")
_STORED = re.compile(r"(data|tensor|random)\(([A-Za-z0-9_-]+)\)")


class GraphTextError(ValueError):
    """An error in a graph's text, with its ``line`` and ``column`` (from 1)."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


@dataclass(frozen=True)
class TensorStandIn:
    """The source of a constant that the text calls ``tensor(key)``."""

    key: str


def parse(text: str, constants: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a text; GraphTextError, with line and column, if the text is invalid.

    ``constants`` has the arrays of the constants called ``data(key)`` in the text, by key, and may
    have the sources of constants called ``tensor(key)``, by ``"tensor(key)"``.
    """
    reader = _Reader(dict(constants or {}))
    for number, line in enumerate(text.split("\n"), 1):
        reader.statement(_Line(line.rstrip("\r"), number))
    return Graph(reader.inputs, reader.outputs, tuple(reader.nodes))


class _Line(TokenReader):
    """One line, and the position read up to."""

    BLANK, WORD = _SPACE, _WORD

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text)
        self.number = number

    def fail(self, message: str, at: int | None = None) -> GraphTextError:
        return GraphTextError(message, self.number, (self.at if at is None else at) + 1)

    @property
    def ended(self) -> bool:
        return self.at == len(self.text) or self.text[self.at] == "#"

    def string(self, what: str) -> str:
        at = self.at
        return self.unquoted(self.match(_STRING, f"{what} in quotes"), at)

    def unquoted(self, text: str, at: int) -> str:
        if text.startswith("'"):
            return text[1:-1]
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.fail(f"{text} is no string: {error}", at) from None

    def name(self, what: str) -> str:
        return self.string(what) if self.follows('"') else self.match(PLAIN_NAME, what)

    def end(self) -> None:
        if not self.ended:
            raise self.fail("the end of the line is expected")


class _Reader:
    """The values, nodes and names of the lines read so far."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self.stored = constants
        self.values: dict[str, Value] = {}
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.nodes: list[Node] = []

    def statement(self, line: _Line) -> None:
        if line.ended:
            return
        if line.keyword("input"):
            self._input(line)
        elif line.keyword("constant"):
            self._constant(line)
        elif line.keyword("output"):
            self._output(line)
        elif line.follows("%"):
            self._node(line)
        else:
            raise line.fail("input, constant, output or the results of a node are expected")
        line.end()

    # -- inputs, constants, outputs ------------------------------------------------------------
    def _input(self, line: _Line) -> None:
        at = line.at
        token = line.match(_VALUE, "a value's name")
        name = line.unquoted(token[1:], at + 1) if token[1] == '"' else token[1:]
        line.expect(":")
        value = Value(_descriptor(line), name=name)
        self._define(line, token, value, at)
        if name in self.inputs:
            raise line.fail(f"input {name!r} is there already", at)
        self.inputs[name] = value

    def _constant(self, line: _Line) -> None:
        at = line.at
        token = line.match(_VALUE, "a value's name")
        line.expect(":")
        descriptor = _descriptor(line)
        line.expect("=")
        self._define(line, token, self._elements(line, descriptor), at)

    def _elements(self, line: _Line, descriptor: MLOperandDescriptor) -> Value:
        at = line.at
        reference = _STORED.match(line.text, line.at)
        if reference is not None:
            line.match(_STORED, "elements")
            kind, key = reference.groups()
            if kind == "tensor":
                source = self.stored.setdefault(reference.group(), TensorStandIn(key))
                return Value(descriptor, source=source)
            if kind == "random":
                return Value(descriptor, data=random_elements(descriptor, key))
            if key not in self.stored:
                message = f"the elements of {reference.group()} are not among those given"
                raise line.fail(message, at)
            array = np.array(self.stored[key])
            if (array.dtype, array.shape) != (descriptor.numpy_dtype, descriptor.shape):
                raise line.fail(
                    f"{reference.group()} is {array.dtype}{list(array.shape)}, not {descriptor}", at
                )
        elif line.accept("["):
            items = line.items("]", lambda: _element(line, descriptor.numpy_dtype))
            if len(items) != descriptor.size:
                message = f"{len(items)} elements are given; {descriptor} has {descriptor.size}"
                raise line.fail(message, at)
            array = np.array(items, descriptor.numpy_dtype).reshape(descriptor.shape)
        else:
            array = np.full(descriptor.shape, _element(line, descriptor.numpy_dtype))
        array.setflags(write=False)
        return Value(descriptor, data=array)

    def _output(self, line: _Line) -> None:
        at = line.at
        name = line.name("an output's name")
        if name in self.outputs:
            raise line.fail(f"output {name!r} is there already", at)
        line.expect("=")
        self.outputs[name] = self._value(line)

    def _define(self, line: _Line, token: str, value: Value, at: int) -> None:
        if token in self.values:
            raise line.fail(f"{token} is there already", at)
        self.values[token] = value

    def _value(self, line: _Line) -> Value:
        at = line.at
        token = line.match(_VALUE, "a value")
        if token not in self.values:
            raise line.fail(f"{token} is not computed before", at)
        return self.values[token]

    # -- nodes ---------------------------------------------------------------------------------
    def _node(self, line: _Line) -> None:
        results: list[tuple[str, int, MLOperandDescriptor | None]] = []
        while not results or line.accept(","):
            at = line.at
            token = line.match(_VALUE, "a value's name")
            results.append((token, at, _descriptor(line) if line.accept(":") else None))
        line.expect("=")
        at = line.at
        name = line.match(_WORD, "an operator")
        if name not in ALL_OPERATORS:
            raise line.fail(f"no operator is called {name}", at)
        operator = ALL_OPERATORS[name]
        label = ""
        if line.accept("["):
            label = (
                line.string("a label")
                if line.follows('"')
                else line.match(PLAIN_LABEL, "a label").rstrip(" \t")
            )
            line.expect("]")
        operands, arguments = self._given(line, operator)
        arguments = _completed(line, operator, operands, arguments, at)
        try:
            node = make_node(operator, operands, arguments, label)
        except TypeError as error:
            raise line.fail(str(error), at) from None
        if len(results) != len(node.outputs):
            raise line.fail(f"{name} has {len(node.outputs)} results, not {len(results)}", at)
        for (token, where, declared), value in zip(results, node.outputs, strict=True):
            if declared not in (None, value.descriptor):
                raise line.fail(f"{token} is {value.descriptor}, not {declared}", where)
            self._define(line, token, value, where)
        self.nodes.append(_placed(line, node))

    def _given(self, line: _Line, operator: Operator) -> tuple[dict[str, Any], dict[str, Any]]:
        """The text between the parentheses: operands and arguments by name."""
        parameters = {p.name: p for p in operator.parameters}
        in_order = iter([p.name for p in operator.operands])
        operands: dict[str, Any] = {}
        arguments: dict[str, Any] = {}

        def read() -> None:
            at = line.at
            key = _KEY.match(line.text, line.at)
            if key is not None:
                line.match(_KEY, "a name")
                name = key.group(1)
            else:
                name = next(in_order, None)
                if name is None or not line.follows("%") and not line.follows("["):
                    raise line.fail("a name with '=' is expected")
            if name not in parameters:
                names = ", ".join(parameters)
                raise line.fail(f"{operator.name} has no {name}; it takes {names}", at)
            if name in operands or name in arguments:
                raise line.fail(f"{name} is given twice", at)
            p = parameters[name]
            if p.argument is Operands:
                line.expect("[")
                operands[name] = line.items("]", lambda: self._value(line))
            elif p.is_operand:
                operands[name] = self._value(line)
            else:
                at = line.at
                value = _literal(line)
                try:
                    arguments[name] = p.convert(value, f"{operator.name}: {name}")
                except TypeError as error:
                    raise line.fail(str(error), at) from None

        line.expect("(")
        line.items(")", read)
        return operands, arguments


def _completed(
    line: _Line, operator: Operator, operands: dict[str, Any], arguments: dict[str, Any], at: int
) -> dict[str, Any]:
    """All the operator's arguments in its order: given arguments, and defaults for the others."""
    for p in operator.parameters:
        if p.name not in (operands if p.is_operand else arguments) and not p.optional:
            raise line.fail(f"{operator.name} needs {p.name}", at)
    return {
        p.name: arguments[p.name] if p.name in arguments else p.convert(p.default, p.name)
        for p in operator.arguments
    }


def _placed(line: _Line, node: Node) -> Node:
    """The node with the device, reason and origins that follow the parentheses."""
    if line.keyword("on"):
        node = replace(node, device=line.name("a device"))
    if line.keyword("because"):
        node = replace(node, reason=line.string("a reason"))
    if line.keyword("from"):
        origins = [line.string("an origin")]
        while line.accept(","):
            origins.append(line.string("an origin"))
        node = replace(node, origins=tuple(origins))
    return node


def _descriptor(line: _Line) -> MLOperandDescriptor:
    at = line.at
    data_type = line.match(_WORD, "a data type")
    if data_type not in KNOWN_TYPES:
        raise line.fail(f"{data_type} is no data type; one of {', '.join(DATA_TYPES)}", at)
    line.expect("[")
    shape = line.items("]", lambda: int(line.match(_DIMENSION, "a dimension")))
    try:
        descriptor = MLOperandDescriptor(data_type, tuple(shape))
    except TypeError as error:
        raise line.fail(str(error), at) from None
    error = check_dimensions(descriptor)
    if error is not None:
        raise line.fail(error, at)
    return descriptor


def _element(line: _Line, dtype: np.dtype) -> np.generic:
    """One number of the data type."""
    at = line.at
    text = line.match(_NUMBER, "a number")
    if text.startswith("nan("):
        bits = int(text[4:-1], 16)
        if dtype.kind == "f" and bits < 1 << 8 * dtype.itemsize:
            return np.frombuffer(bits.to_bytes(dtype.itemsize, "little"), dtype)[0]
    try:
        number = int(text) if dtype.kind in "iu" else float(text)
        with np.errstate(over="ignore"):
            return dtype.type(number)
    except (ValueError, OverflowError):
        raise line.fail(f"{text} is no {dtype}", at) from None


def _literal(line: _Line) -> Any:
    """An argument: a number, a string, True, False, None, or several in parentheses."""
    for word, value in (("None", None), ("True", True), ("False", False)):
        if line.keyword(word):
            return value
    if line.follows('"') or line.follows("'"):
        return line.string("a string")
    for opening, closing in (("(", ")"), ("[", "]")):
        if line.accept(opening):
            return tuple(line.items(closing, lambda: _literal(line), trailing=True))
    at = line.at
    text = line.match(_NUMBER, "a number, a string, True, False, None or a list of them")
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else float(text)
    except ValueError:
        raise line.fail(f"{text} is no number", at) from None


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
