"""Operators that ONNX itself defines by others: their bodies, and the types of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, FunctionProto, helper

from webnn_vk.api.builder import MLOperand

from .nodes import NodeCall
from .types import CARRIERS, NATIVE, numpy_type
from .values import Tensor, Value


@lru_cache(maxsize=1024)
def schema_of(domain: str, operator: str, version: int) -> Any:
    """ONNX's own description of an operator, or None."""
    try:
        return onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None


def schema_function(node: NodeCall, inputs: Sequence[Value | None]) -> FunctionProto | None:
    """The body that ONNX gives for the operator with these inputs, or None."""
    schema = schema_of(node.domain, node.operator, node.version)
    if schema is None:
        return None
    if schema.has_function:
        version = _nearest(schema.function_opset_versions, node.version)
        return FunctionProto.FromString(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        version = _nearest(schema.context_dependent_function_opset_versions, node.version)
        body = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), [_type_proto(x) for x in inputs]
        )
        return FunctionProto.FromString(body) if body else None
    return None


def schema_defaults(node: NodeCall) -> dict[str, AttributeProto]:
    """Attributes that ONNX gives the operator when a node leaves them out."""
    schema = schema_of(node.domain, node.operator, node.version)
    if schema is None:
        return {}
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != AttributeProto.UNDEFINED
    }


def _nearest(versions: Sequence[int], version: int) -> int:
    older = [v for v in versions if v <= version]
    return max(older) if older else min(versions)


def _type_proto(value: Value | None) -> bytes:
    if not isinstance(value, Tensor):
        return onnx.TypeProto().SerializeToString()
    kind = helper.np_dtype_to_tensor_dtype(numpy_type(value.type))
    # No body needs the number of a size that is known at dispatch.
    shape = [d if isinstance(d, int) else None for d in value.shape]
    return helper.make_tensor_type_proto(kind, shape).SerializeToString()


#: Why operators without a record can't be taken, where more can be said.
_REASONS = {
    "ImageDecoder": "WebNN decodes no images",
    **dict.fromkeys(
        ("NonZero", "Unique", "NonMaxSuppression"),
        "the shape of its result depends on values, WebNN's shapes are static",
    ),
    **dict.fromkeys(
        ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"),
        "WebNN has no strings",
    ),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
         "Bernoulli"),
        "WebNN has no random numbers",
    ),
}


def why_not(node: NodeCall) -> str:
    """Why an operator without record and body is refused."""
    if node.domain == "ai.onnx.ml":
        return "maps and texts as inputs are not supported"
    if node.domain.startswith("ai.onnx.preview.training"):
        return "WebNN does not train"
    if node.domain == "" and node.operator in _REASONS:
        return _REASONS[node.operator]
    if schema_of(node.domain, node.operator, node.version) is None and node.domain == "":
        return f"ONNX has no such operator in opset {node.version}"
    return "the operator is not supported"


def output_type(
    node: NodeCall, index: int, operand: MLOperand, inputs: Sequence[Value | None]
) -> str:
    """The ONNX type of a computed output: what its schema ties it to, as far as the WebNN data type
    carries that."""
    own = operand.data_type

    def carries(name: str) -> bool:
        return own in (CARRIERS.get(name, name), NATIVE.get(name))

    possible = {"bool", *(x.type for x in inputs if isinstance(x, Tensor))} - {own}
    # ONNX makes the schemas of all its operators when the first is requested: 12 ms.
    if not any(map(carries, possible)):
        return own
    name = _tied_type(node, index, inputs) or own
    return name if carries(name) else own


def _tied_type(node: NodeCall, index: int, inputs: Sequence[Value | None]) -> str | None:
    schema = schema_of(node.domain, node.operator, node.version)
    if schema is None or not schema.outputs:
        return None
    variable = schema.outputs[min(index, len(schema.outputs) - 1)].type_str
    if variable == "tensor(bool)":
        return "bool"
    for i, given in enumerate(inputs):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if formal.type_str == variable and isinstance(given, Tensor):
            return given.type
    allowed = {t for c in schema.type_constraints if c.type_param_str == variable
               for t in c.allowed_type_strs}
    return "bool" if allowed == {"tensor(bool)"} else None
