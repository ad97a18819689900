"""Names of a model's values, graph within graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import AttributeProto

from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError
from .values import Value


class Scope:
    """Names of a graph, subgraph or function body, and what applies to its nodes."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        parent: Scope | None = None,
        attributes: Mapping[str, AttributeProto] | None = None,
    ) -> None:
        self.opsets = opsets
        self.parent = parent
        self.attributes = attributes or (parent.attributes if parent else {})
        self.values: dict[str, Value] = {}
        #: Initializers not read yet: what makes their value.
        self.stored: dict[str, Callable[[], Value]] = {}
        #: Names that the scope's outputs depend on: other nodes are passed over.
        self.live: set[str] = set()

    def find(self, name: str) -> Value:
        """The value of a name, here or in a graph around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.stored:
                scope.values[name] = scope.stored[name]()
                return scope.values[name]
            scope = scope.parent
        raise InvalidModelError(f"{sanitize(name)!r} is used before anything makes it")
