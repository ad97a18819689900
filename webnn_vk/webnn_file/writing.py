"""``save``: a graph as a ``.webnn`` file and the tensors beside it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.api.graph_source import source_of
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.compiler.ir import Graph, Node, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.passes import by_specification
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.compiler.types.sizes import Size, sizes_in
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import NotSupportedError, sanitize

from . import weights
from .names import SHORT_TYPES, Identifiers, camel, option_name

#: Constants of equal elements are written as a number up to this size, others as bytes.
MAX_SCALAR_BYTES = 1 << 16
MAX_INLINE_BYTES = 64


def save(
    graph_or_outputs: MLGraph | Mapping[str, MLOperand], path: str | os.PathLike[str]
) -> None:
    """Write a graph as ``path`` (``NAME.webnn``) and its weights as ``NAME.safetensors`` beside it
    (see docs/webnn-file.md): the outputs of a builder, name → operand, before or after which it can
    still build; or a built graph, as it was compiled.

    Either file is replaced when its new contents are complete. TypeError for what ``build`` would
    not take, and for names that are no Unicode text.
    """
    place = Path(path)
    graph, elements = source_of(graph_or_outputs, "save")
    text, arrays = document(graph, place.stem, elements)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        near = sanitize(text[max(0, error.start - 20) : error.start + 20])
        raise TypeError(f"save: a name or label is no Unicode text: …{near}…") from None
    if arrays:
        weights.write(place.with_suffix(".safetensors"), arrays)
    weights.replace(place, lambda temporary: temporary.write_bytes(data))


def document(
    graph: Graph,
    name: str,
    elements: Callable[[Value], np.ndarray | None] = lambda value: value.data,
) -> tuple[str, dict[str, np.ndarray]]:
    """A graph's text, and the arrays that it refers to. ``elements`` reads a constant.
    Compiler operators, which the text doesn't have, are decomposed, and loops unrolled."""
    graph = by_specification(graph)
    return _Writer(graph, elements).document(name)


@dataclass
class _Writer:
    graph: Graph
    elements: Callable[[Value], np.ndarray | None]
    identifiers: Identifiers = field(default_factory=Identifiers)
    names: dict[Value, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def document(self, name: str) -> tuple[str, dict[str, np.ndarray]]:
        graph = self.graph
        unknown = sorted({n.operator.name for n in graph.nodes} - OPERATORS.keys())
        if unknown:
            raise NotSupportedError(f"save: operators of the compiler's own: {', '.join(unknown)}")
        inputs = []
        for title, value in graph.inputs.items():
            self.names[value] = self._titled("input", title)
            inputs.append(f"{self.names[value]}: {_type(value.descriptor)};")
        outputs, others = [], []
        for title, value in graph.outputs.items():
            identifier = self._titled("output", title)
            outputs.append(identifier)
            if value in self.names or value.is_constant:
                others.append((identifier, value))
            else:
                self.names[value] = identifier
        constants = [self._constant(value) for value in graph.constants()]
        nodes = [self._node(node) for node in graph.nodes]
        for identifier, value in others:
            nodes.append(f"{identifier} = {self.names[value]};")
        blocks = (("inputs", inputs), ("consts", constants), ("nodes", nodes))
        text = [*self.notes, f"webnn_graph {_quoted(name)} v1 {{"]
        for block, lines in blocks:
            if lines:
                text += [f"  {block} {{", *(f"    {line}" for line in lines), "  }"]
        text += ["  outputs {", *(f"    {o};" for o in outputs), "  }", "}"]
        return "\n".join(text) + "\n", self.arrays

    def _titled(self, kind: str, title: str) -> str:
        identifier = self.identifiers.claim(title)
        if identifier != title:
            self.notes.append(f"#webnn_vk: {kind} {identifier} = {json.dumps(title)}")
        return identifier

    def _constant(self, value: Value) -> str:
        name = self.names[value] = self.identifiers.fresh("c")
        array = self.elements(value)
        if array is None:
            raise NotSupportedError(f"save: the elements of a constant {value.descriptor} are gone")
        return f"{name}: {_type(value.descriptor)} {self._elements(name, array)};"

    def _elements(self, name: str, array: np.ndarray) -> str:
        data = np.ascontiguousarray(array).reshape(-1)
        if data.nbytes <= MAX_SCALAR_BYTES:
            bits = data.view(f"u{data.itemsize}")
            if (bits == bits[0]).all() and _is_plain(data[0]):
                return f"@scalar({_number(data[0].item())})"
        if data.nbytes <= MAX_INLINE_BYTES:
            return f"@bytes([{', '.join(map(str, data.view(np.uint8)))}])"
        self.arrays[name] = array
        return f"@weights({_quoted(name)})"

    def _node(self, node: Node) -> str:
        operator = node.operator
        results = []
        for value in node.outputs:
            if value not in self.names:
                self.names[value] = self.identifiers.fresh("v")
            results.append(self.names[value])
        left = f"[{', '.join(results)}]" if operator.many else results[0]
        return f"{left} = {camel(operator.name)}({', '.join(self._arguments(node))});"

    def _arguments(self, node: Node) -> Iterator[str]:
        given = node.gather(self.names.__getitem__)
        for size in sizes_in(dict(node.arguments)):
            raise NotSupportedError(
                f"save: {node.title} takes the size {sanitize(str(size))}; the format has only "
                "numbers in options"
            )
        named = []
        for p in node.operator.operands:
            value = given[p.name]
            if p.optional:
                named += [f"{option_name(node.operator, p)}={value}"] * (value is not None)
            else:
                yield from value if isinstance(value, list) else [value]
        yield from named
        for p in node.operator.arguments:
            argument = node.arguments[p.name]
            if argument is not None:
                yield f"{option_name(node.operator, p)}={_literal(argument)}"
        if node.label:
            yield f"label={_quoted(node.label)}"


def _type(descriptor: MLOperandDescriptor) -> str:
    return f"{SHORT_TYPES[descriptor.data_type]}[{', '.join(map(_dimension, descriptor.shape))}]"


def _dimension(size: Any) -> str:
    """A number, or a named dimension with its largest size: all that the format has."""
    if not isinstance(size, Size):
        return str(size)
    bounds = size.trace.expressions.bounds.get(str(size))
    if bounds is None:
        raise NotSupportedError(f"save: the format has no computed dimensions, as {size}")
    if bounds[0] != 1:
        raise NotSupportedError(
            f"save: dimension {sanitize(str(size))!r} has {bounds[0]} elements at least; the "
            "format has only the largest size, and readers take 1 as the least"
        )
    return f"dyn({_quoted(str(size))}, {bounds[1]})"


def _quoted(text: str) -> str:
    # The format knows no other escapes.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_plain(number: np.generic) -> bool:
    """Whether a number reads back with its bits: other readers take it through float32."""
    if not np.isfinite(number):
        return False
    return number.dtype.kind == "f" or int(np.float32(number)) == int(number)


def _number(number: int | float) -> str:
    if isinstance(number, int) or math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int | float):
        return _number(value)
    return f"[{', '.join(map(_literal, value))}]"
