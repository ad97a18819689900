"""The immutable intermediate representation of a model."""

from .emit import Emitter
from .ir import Fused, Graph, Node, Value
from .literals import random_elements
from .parse import GraphTextError, parse

__all__ = [
    "Emitter",
    "Fused",
    "Graph",
    "GraphTextError",
    "Node",
    "Value",
    "parse",
    "random_elements",
]
