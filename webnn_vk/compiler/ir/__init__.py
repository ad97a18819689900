"""The immutable intermediate representation of a model: values, nodes, graphs, their text form, and
the way to ONNX. Imports `types/` and `ops/`."""

from .emit import Emitter
from .graph import Graph, Node, Value
