"""A model's description of itself: its inputs and outputs, and where it comes from."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto, TypeProto

from webnn_vk.support.dataclass import dataclass

from .reading import Port


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` as ONNX Runtime writes it ("tensor(float)"), ``shape`` with
    numbers, names or None."""

    name: str
    type: str
    shape: list[int | str | None] | None


@dataclass(frozen=True)
class ModelMetadata:
    """Where a model comes from, as ONNX Runtime says it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata(model: ModelProto) -> ModelMetadata:
    """The metadata of a model."""
    return ModelMetadata(
        model.producer_name, model.graph.name, model.domain, model.doc_string,
        model.graph.doc_string, model.model_version,
        {entry.key: entry.value for entry in model.metadata_props},
    )


def node_arg(graph: GraphProto, port: Port) -> NodeArg:
    """A port as ONNX Runtime shows it; of a value inside of the graph what the model says."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.name == port.name:
            kind = info.type.WhichOneof("value")
            shape = port.shape if kind in ("tensor_type", None) else ()
            return NodeArg(port.name, _name(info.type), None if shape is None else list(shape))
    return NodeArg(port.name, port.type, None if port.shape is None else list(port.shape))


def overridable(graph: GraphProto, ir_version: int) -> list[TensorProto]:
    """Initializers that are inputs too: what is fed takes their place."""
    names = {v.name for v in graph.input} if ir_version >= 4 else set()
    return [t for t in graph.initializer if t.name in names]


def _name(kind: TypeProto) -> str:
    found = kind.WhichOneof("value")
    value: Any = getattr(kind, found) if found else None
    match found:
        case "tensor_type" | "sparse_tensor_type":
            return f"{found.removesuffix('_type')}({_element(value.elem_type)})"
        case "sequence_type":
            return f"seq({_name(value.elem_type)})"
        case "optional_type":
            return f"optional({_name(value.elem_type)})"
        case "map_type":
            return f"map({_element(value.key_type)},{_name(value.value_type)})"
    return "unknown"


def _element(number: int) -> str:
    try:
        return str(TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"type {number}"
