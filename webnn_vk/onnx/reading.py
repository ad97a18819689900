"""A model from a path, bytes or ModelProto, checked before anything is made of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
)

from webnn_vk.compiler.types.sizes import Size
from webnn_vk.support import memory_probe
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.mmap_array import mapped_file
from webnn_vk.support.topological import needed_nodes

from .embedded import without_weights
from .errors import InvalidModelError, Unsupported
from .types import type_name
from .weights import ExternalData

#: Protobuf's own bound; larger models keep their weights in files beside.
MAX_FILE_BYTES = 2**31 - 1
MAX_SUBGRAPH_DEPTH = 24
OLDEST_OPSET = 7

Dimensions = tuple[int | str | None, ...]


@dataclass(frozen=True)
class Port:
    """An input or output of a model: ``type`` by NumPy's name; ``shape`` None where the model does
    not say, its dimensions numbers, names or None."""

    name: str
    type: str
    shape: Dimensions | None

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a tensor's shape agrees with the declared one."""
        return self.shape is None or len(shape) == len(self.shape) and all(
            not isinstance(d, int) or isinstance(n, Size) or d == n
            for n, d in zip(shape, self.shape, strict=True)
        )


def shown(shape: Sequence[Any] | None) -> str:
    """A declared shape, for messages."""
    if shape is None:
        return "(any rank)"
    return "[" + ", ".join("?" if d is None else sanitize(str(d)) for d in shape) + "]"


@dataclass
class Model:
    """A model read and checked: its graph, functions, opsets and where its weights lie."""

    graph: GraphProto
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], FunctionProto]
    external: ExternalData
    #: The model that was read; its graph is above.
    proto: ModelProto
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    #: Arrays of the initializers, by identity of the TensorProto, shared by all imports.
    arrays: dict[int, Any] = field(default_factory=dict)


def read_model(source: Any) -> Model:
    """The model of a path, of bytes, of a ModelProto or read before.

    InvalidModelError (a ValueError) for what is no valid model; OSError where a file can't be read.
    """
    if isinstance(source, Model):
        return source
    folder, own = None, None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        folder = path.parent
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidModelError(
                f"{path.name}: larger than 2 GiB, which protobuf can't read; store the weights as "
                "external data"
            )
        own = mapped_file(path)
        source = own.data
    elif isinstance(source, bytes):
        own = np.frombuffer(source, np.uint8)
    if own is not None:
        small = without_weights(own.data)
        source, own = (source, None) if small is None else (small, own)
    if isinstance(source, (bytes, bytearray, memoryview)):
        proto = ModelProto()
        memory_probe.require(memoryview(source).nbytes + memory_probe.PROTOBUF_BYTES)
        try:
            # Parsed where it lies: a mapped file is not copied first.
            proto.ParseFromString(memoryview(source))
        except (DecodeError, RecursionError) as error:
            raise InvalidModelError(f"no ONNX file: {sanitize(str(error))[:200]}") from None
    elif isinstance(source, ModelProto):
        proto = source
    else:
        raise TypeError(
            f"a path, bytes or onnx.ModelProto is expected, not {type(source).__name__}"
        )
    return _checked(proto, ExternalData(folder, own))


def _checked(proto: ModelProto, external: ExternalData) -> Model:
    if not proto.HasField("graph"):
        raise InvalidModelError("no ONNX file: it holds no graph")
    opsets: dict[str, int] = {}
    _check_text(entry.domain for entry in proto.opset_import)
    for entry in proto.opset_import:
        opsets[domain_name(entry.domain)] = entry.version
    version = opsets.setdefault("", 1 if not opsets else onnx.defs.onnx_opset_version())
    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise InvalidModelError(
            f"the model uses opset {version}; the installed onnx knows opsets up to {newest}"
        )
    if version < 1:
        raise InvalidModelError(f"opset {version} does not exist")
    functions = {}
    for function in proto.functions:
        key = (domain_name(function.domain), function.name, function.overload)
        if key in functions:
            raise InvalidModelError(f"function {sanitize(function.name)!r} is defined twice")
        functions[key] = function
        _check_text((function.name, function.domain, *function.input, *function.output))
        _check_body(function.node, set(function.input), "function")
    graph = proto.graph
    _check_graph(graph, (), 0)
    initializers = {t.name for t in graph.initializer}
    initializers |= {t.values.name for t in graph.sparse_initializer}
    inputs = {v.name: _port(v) for v in graph.input if v.name not in initializers}
    outputs = {v.name: _port(v) for v in graph.output}
    if not outputs:
        raise InvalidModelError("the model has no output")
    return Model(graph, opsets, functions, external, proto, inputs, outputs)


def domain_name(domain: str) -> str:
    """The default domain has two spellings."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds as attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def tensors_of(message: Any) -> Iterator[TensorProto]:
    """The tensors in a message, at any depth."""
    if isinstance(message, TensorProto):
        yield message
        return
    for described, value in message.ListFields():
        if described.message_type is not None:
            for part in (value,) if isinstance(value, Message) else value:
                yield from tensors_of(part)


def live_nodes(
    nodes: Sequence[NodeProto], outputs: Iterable[str]
) -> tuple[tuple[NodeProto, ...], set[str]]:
    """The nodes that ``outputs`` depend on, and the names that they read or are asked for."""
    return needed_nodes(nodes, filter(None, outputs), _uses, attrgetter("output"))


def _uses(node: NodeProto) -> set[str]:
    names = {name for name in node.input if name}
    for graph in subgraphs(node):
        names |= _free_names(graph)
    return names


def _free_names(graph: GraphProto) -> set[str]:
    made = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    used = {v.name for v in graph.output}
    for node in graph.node:
        used |= _uses(node)
        made.update(node.output)
    return used - made


def entries_of(model: Model) -> int:
    """How many nodes and initializers the file has, in its graph, graphs within and functions."""
    count = 0
    pending: list[GraphProto | FunctionProto] = [model.graph, *model.functions.values()]
    while pending:
        part = pending.pop()
        count += len(part.node)
        if isinstance(part, GraphProto):
            count += len(part.initializer) + len(part.sparse_initializer)
        for node in part.node:
            pending += subgraphs(node)
    return count


def _check_graph(graph: GraphProto, outer: Sequence[set[str]], depth: int) -> None:
    if depth > MAX_SUBGRAPH_DEPTH:
        raise InvalidModelError(f"graphs are nested more than {MAX_SUBGRAPH_DEPTH} deep")
    stored = [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer]
    ports = {kind: [v.name for v in getattr(graph, kind)] for kind in ("input", "output")}
    _check_text(itertools.chain(stored, *ports.values()))
    for kind, names in ports.items():
        if len(set(names)) < len(names) or "" in names:
            raise InvalidModelError(f"two {kind}s have one name, or one has none")
    known = {*ports["input"], *stored}
    _check_body(graph.node, known, "graph", outer, depth)
    for v in graph.output:
        if v.name not in known and not any(v.name in names for names in outer):
            raise InvalidModelError(f"output {sanitize(v.name)!r} is made by no node")


def _check_text(names: Iterable[Any]) -> None:
    # Protobuf gives bytes for what is no UTF-8.
    if not all(isinstance(name, str) for name in names):
        raise InvalidModelError("a name in the model is not valid UTF-8")


def _check_body(
    nodes: Any, known: set[str], where: str, outer: Sequence[set[str]] = (), depth: int = 0
) -> None:
    """Every name is defined before it is used, and once; ``known`` gains the nodes' outputs.
    ``outer``: the names of each graph around."""
    for node in nodes:
        _check_text((node.name, node.op_type, node.domain, node.overload))
        _check_text((*node.input, *node.output, *(a.name for a in node.attribute)))
        what = f"{where}: node {sanitize(node.name)!r} ({sanitize(node.op_type)})"
        for name in node.input:
            if name and name not in known and not any(name in names for names in outer):
                raise InvalidModelError(
                    f"{what} uses {sanitize(name)!r} before anything makes it: the nodes are "
                    "cyclic, not in order, or one is missing"
                )
        for graph in subgraphs(node):
            _check_graph(graph, (*outer, known), depth + 1)
        for name in node.output:
            if name and name in known:
                raise InvalidModelError(f"{what} makes {sanitize(name)!r} a second time")
            known.add(name)


def port_type(elem_type: int) -> str:
    """The name of a declared ``TensorProto.DataType``, whether it exists or not."""
    if elem_type == TensorProto.UNDEFINED:
        return "undefined"
    try:
        return type_name(elem_type)
    except Unsupported:
        return f"type {elem_type}"


def _port(info: Any) -> Port:
    if not info.HasField("type"):
        return Port(info.name, "unknown", None)
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(info.name, (kind or "unknown").removesuffix("_type"), None)
    tensor: TypeProto.Tensor = info.type.tensor_type
    name = port_type(tensor.elem_type)
    if not tensor.HasField("shape"):
        return Port(info.name, name, None)
    dims = tuple(
        # Some exporters write 0 or −1 for what they don't know.
        (d.dim_value if d.dim_value > 0 else None)
        if d.WhichOneof("value") == "dim_value"
        else (d.dim_param or None)
        for d in tensor.shape.dim
    )
    return Port(info.name, name, dims)
