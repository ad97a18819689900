"""Heads of keys and values that several queries of an attention share: the operators with which
exporters repeat them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Node, Value
from .patterns import Bindings, GraphView, PartialMatch


@dataclass(frozen=True)
class Repeated:
    """Heads that several queries share. ``value`` reshaped to ``shape`` and transposed by ``axes``
    is [.., heads, 1, T, D]; each head is repeated ``count`` times."""

    value: Value
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    count: int

    @property
    def heads(self) -> int:
        return self.shape[self.axes[-4]]

    def emit(self, emit: Emitter) -> Value:
        """[.., heads, 1, T, D]"""
        single = self.value
        if single.shape != self.shape:
            single = emit.reshape(single, self.shape)
        if self.axes == tuple(sorted(self.axes)):
            return single
        return emit.transpose(single, permutation=self.axes)


class ValuesPattern:
    """Binds ``word`` to a value, and ``word`` + " heads" to its `Repeated` heads or None."""

    def __init__(self, word: str) -> None:
        self.word = word

    def matches(
        self, value: Value, graph: GraphView, bindings: Bindings
    ) -> Iterator[PartialMatch]:
        heads = repeated(value, tuple(range(len(value.shape))), graph)
        yield (), {**bindings, self.word: value, f"{self.word} heads": heads}


def repeated(value: Value, axes: tuple[int, ...], graph: GraphView) -> Repeated | None:
    """The heads that ``value``, transposed by ``axes`` to [.., heads, T, D], repeats; None if it
    does not repeat any."""
    if len(value.shape) != 4:
        return None
    node = graph.producer(value)
    while node is not None and node.operator.name == "transpose":
        axes = tuple(node.arguments["permutation"][axis] for axis in axes)
        value = node.operands["input"]
        node = graph.producer(value)
    if node is None:
        return None
    found = _gathered(node) if node.operator.name == "gather" else _broadcast(node, graph)
    if found is None or found[1] != axes[1]:
        return None
    single, axis, count = found
    order: list[int] = []
    for a in axes:
        order += (axis, axis + 1) if a == axis else (a + (a > axis),)
    own = node.output.shape[:axis] + (node.output.shape[axis] // count,)
    return Repeated(single, (*own, 1, *node.output.shape[axis + 1 :]), tuple(order), count)


def _gathered(node: Node) -> tuple[Value, int, int] | None:
    """The value that a gather with indices 0, 0, 1, 1 … repeats, the axis, and how often."""
    given, indices, axis = node.operands["input"], node.operands["indices"], node.arguments["axis"]
    if indices.data is None or len(indices.shape) != 1 or len(given.shape) != 4:
        return None
    own, total = given.shape[axis], indices.shape[0]
    if total % own or (indices.data != np.arange(total) // (total // own)).any():
        return None
    return given, axis, total // own


def _broadcast(node: Node, graph: GraphView) -> tuple[Value, int, int] | None:
    """The same for [.., heads, 1, ..] expanded or tiled to [.., heads, count, ..] and reshaped."""
    if node.operator.name != "reshape":
        return None
    many = graph.producer(node.operands["input"])
    if many is None or many.operator.name not in ("expand", "tile"):
        return None
    single, target = many.operands["input"], many.output.shape
    if len(single.shape) != 5 or len(target) != 5:
        return None
    grown = [axis for axis in range(5) if single.shape[axis] != target[axis]]
    if len(grown) != 1 or single.shape[grown[0]] != 1 or grown[0] == 0:
        return None
    axis, count = grown[0] - 1, target[grown[0]]
    own = single.shape[: axis + 1] + single.shape[axis + 2 :]
    if node.output.shape != (*own[:axis], own[axis] * count, *own[axis + 1 :]):
        return None
    return single, axis, count
