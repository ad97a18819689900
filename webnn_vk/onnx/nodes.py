"""NodeProto → plain data: attributes as Python values, references of functions resolved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError
from .reading import domain_name
from .weights import ExternalData, to_array


@dataclass(frozen=True)
class NodeCall:
    """One node: what is applied to which names."""

    domain: str
    operator: str
    version: int
    overload: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: NodeProto

    @property
    def title(self) -> str:
        """Name for messages and labels: the node's, or else its first output's."""
        return self.name or next((o for o in self.outputs if o), "")

    @property
    def full_name(self) -> str:
        """Operator with its domain."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


def decode_node(
    node: NodeProto,
    opsets: Mapping[str, int],
    external: ExternalData,
    actual: Mapping[str, AttributeProto],
) -> NodeCall:
    """``actual`` holds the attributes of the function call around the node."""
    domain = domain_name(node.domain)
    if any(a.ref_attr_name for a in node.attribute):
        node = _resolved(node, actual)
    attributes = {a.name: attribute_value(a, external) for a in node.attribute}
    return NodeCall(
        domain, node.op_type, opsets.get(domain, 1), node.overload, node.name,
        tuple(node.input), tuple(node.output), attributes, node,
    )


def _resolved(node: NodeProto, actual: Mapping[str, AttributeProto]) -> NodeProto:
    made = NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            made.attribute.append(attribute)
        elif attribute.ref_attr_name in actual:
            given = made.attribute.add()
            given.CopyFrom(actual[attribute.ref_attr_name])
            given.name = attribute.name
        # else the caller left it out: the operator's default holds
    return made


def attribute_value(attribute: AttributeProto, external: ExternalData) -> Any:
    """An attribute as int, float, str, list, array or GraphProto."""
    if attribute.type not in _READ:
        raise InvalidModelError(
            f"attribute {sanitize(attribute.name)!r} has no known type ({attribute.type})"
        )
    return _READ[attribute.type](attribute, external)


#: A sparse tensor may claim any shape; a dense one of more elements than this is refused.
_MAX_DENSE = 1 << 28


def sparse_array(sparse: Any, external: ExternalData) -> np.ndarray:
    """A sparse tensor made dense."""
    values = to_array(sparse.values, external)
    indices = to_array(sparse.indices, external)
    shape = tuple(sparse.dims)
    size = math.prod(shape)
    if any(d <= 0 for d in shape) or size > _MAX_DENSE:
        raise InvalidModelError(f"sparse tensor of shape {list(shape)[:16]}: invalid or too large")
    try:
        dense = np.zeros(size, values.dtype)
        if indices.ndim == 2 and indices.shape[1] == len(shape):
            indices = np.ravel_multi_index(tuple(indices.T), shape, mode="raise")
        dense[indices] = values
        return dense.reshape(shape)
    except (IndexError, TypeError, ValueError) as error:
        raise InvalidModelError(f"sparse tensor: {error}") from None


#: How attributes are read, by type.
_READ: dict[int, Callable[[AttributeProto, ExternalData], Any]] = {
    AttributeProto.FLOAT: lambda a, _: a.f,
    AttributeProto.INT: lambda a, _: a.i,
    AttributeProto.GRAPH: lambda a, _: a.g,
    AttributeProto.TYPE_PROTO: lambda a, _: a.tp,
    AttributeProto.FLOATS: lambda a, _: list(a.floats),
    AttributeProto.INTS: lambda a, _: list(a.ints),
    AttributeProto.GRAPHS: lambda a, _: list(a.graphs),
    AttributeProto.STRING: lambda a, _: a.s.decode("utf-8", "replace"),
    AttributeProto.STRINGS: lambda a, _: [s.decode("utf-8", "replace") for s in a.strings],
    AttributeProto.TENSOR: lambda a, external: to_array(a.t, external),
    AttributeProto.SPARSE_TENSOR: lambda a, external: sparse_array(a.sparse_tensor, external),
}
