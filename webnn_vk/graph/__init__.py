"""The immutable intermediate representation of a model."""

from .emit import Emitter
from .ir import Fused, Graph, Node, Value

__all__ = ["Emitter", "Fused", "Graph", "Node", "Value"]
