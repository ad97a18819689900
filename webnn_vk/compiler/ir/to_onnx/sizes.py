"""Sizes that are known at dispatch, as tensors of an ONNX model, from its inputs' shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from webnn_vk.support.errors import sanitize

from ...types.sizes import Size, Trace
from ..graph import Graph

Result = TypeVar("Result")


class Inexpressible(Exception):
    """The reason why ONNX can't express an operator."""


class Sizes:
    """The tensors of a model's sizes, each of one int64. ``places``: input and axis of the named
    dimensions. The nodes stand before all others, also for bodies."""

    def __init__(self, writer: Any, trace: Trace, places: dict[str, tuple[Any, int]]) -> None:
        self._writer, self.trace, self._places = writer, trace, places
        self._known: dict[Any, Any] = {}
        self._nodes: list[Any] = []

    @staticmethod
    def of(writer: Any, graph: Graph) -> Sizes | None:
        """The sizes of a graph; None if it has none."""
        places: dict[str, tuple[Any, int]] = {}
        trace = None
        for value in graph.inputs.values():
            for axis, size in enumerate(value.shape):
                if isinstance(size, Size):
                    trace = size.trace
                    places.setdefault(str(size), (writer.tensors[value], axis))
        return None if trace is None else Sizes(writer, trace, places)

    def finish(self) -> None:
        """Put the nodes before the others, and describe the dimensions."""
        fragment, bounds = self._writer.fragment, self.trace.expressions.bounds
        fragment.nodes[:0] = self._nodes
        fragment.dimensions = {name: bounds[name] for name in bounds if name in self._places}
        fragment.conditions = self.trace.guards

    def unfixed(self, write: Callable[[], Result]) -> Result:
        """The result of ``write()``. Inexpressible if it has used a size as a number."""
        before = self._fixed()
        made = write()
        for key in self._fixed() - before:
            raise Inexpressible(
                f"its form in ONNX depends on the size {sanitize(self.trace.expressions.text(key))}"
            )
        return made

    def _fixed(self) -> set[Any]:
        decided = self.trace.decided
        found = {key for key, (low, high) in decided.intervals.items() if low == high}
        truths = decided.truths.items()
        return found | {a for (operation, a, _), so in truths if so and operation == "=="}

    def tensor(self, numbers: Sequence[Any]) -> Any:
        """A list of int64, numbers and sizes."""
        writer = self._writer
        outer, writer.fragment.nodes = writer.fragment.nodes, self._nodes
        try:
            parts = [
                self._sum(n.terms) if isinstance(n, Size) else writer.integers([n]) for n in numbers
            ]
            key = tuple(part.name for part in parts)
            if key not in self._known:
                self._known[key] = parts[0] if len(parts) == 1 else writer.op(
                    "Concat", *parts, shape=[len(parts)], axis=0
                )
            return self._known[key]
        finally:
            writer.fragment.nodes = outer

    def _sum(self, terms: Any, data_type: str = "int64") -> Any:
        """A sum, or a number."""
        writer = self._writer
        if not isinstance(terms, tuple):
            return writer.constant([terms], "float64" if isinstance(terms, float) else "int64")
        if terms not in self._known:
            total = None
            for product, factor in terms:
                factors = [self._atom(number) for number in product]
                if factor != 1 or not factors:
                    factors.append(writer.integers([factor]))
                made = factors[0]
                for other in factors[1:]:
                    made = writer.op("Mul", made, other)
                total = made if total is None else writer.op("Add", total, made)
            self._known[terms] = total
        return self._known[terms]

    def _least(self, terms: Any) -> float:
        return self.trace.interval(terms)[0] if isinstance(terms, tuple) else terms

    def _atom(self, number: int) -> Any:
        if number not in self._known:
            self._known[number] = self._computed(*self.trace.expressions.atoms[number])
        return self._known[number]

    def _computed(self, operation: str, a: Any, b: Any) -> Any:
        writer, op = self._writer, self._writer.op
        if operation == "dimension":
            place, axis = self._places[a]
            return op("Shape", place, shape=[1], data_type="int64", start=axis, end=axis + 1)
        x = self._sum(a)
        if operation == "round" and not b:
            return writer.cast(op("Round", writer.cast(x, "float64")), "int64")
        if operation == "scaled":
            product = op("Mul", writer.cast(x, "float32"), writer.constant([b], "float32"))
            return writer.cast(op("Floor", product), "int64")
        y = self._sum(b)
        if operation == "%" and x.data_type == y.data_type == "int64":
            return op("Mod", x, y)
        if operation == "//" and x.data_type == y.data_type == "int64":
            if min(self._least(a), self._least(b)) >= 0:  # ONNX rounds towards zero
                return op("Div", x, y)
            return op("Div", op("Sub", x, op("Mod", x, y)), y)
        kinds = {"+": "Add", "-": "Sub", "*": "Mul", "/": "Div", "**": "Pow"}
        if operation not in kinds:
            raise Inexpressible(f"ONNX has no {operation} for sizes")
        return op(kinds[operation], writer.cast(x, "float64"), writer.cast(y, "float64"))
