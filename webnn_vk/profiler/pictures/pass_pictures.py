"""Observes the compilation of a graph: a picture after each pass that changes something."""

from __future__ import annotations

from typing import Any

from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.kernels import KernelGraph
from webnn_vk.runtime.context_state import ContextState

from .picture import Picture, compared, of_graph

#: The passes that are repeated with each attempt at lowering.
_OF_AN_ATTEMPT = ("order", "kernels", "fuse", "absorb", "in_place", "donate")


class PassPictures:
    """``with PassPictures(state) as seen:`` around the building of one graph."""

    def __init__(self, state: ContextState) -> None:
        self.state = state
        self._keys: dict[Value, int] = {}
        # (name of the pass, the graph after it, its picture)
        self._seen: list[tuple[str, Any, Picture]] = []

    def __enter__(self) -> PassPictures:
        self.state.after_pass = self._after
        return self

    def __exit__(self, *_: object) -> None:
        self.state.after_pass = None
        # Keep the pictures, but not the graphs with their constants.
        self._seen = [(name, None, picture) for name, _, picture in self._seen]
        self._keys = {}

    def _after(self, name: str, graph: Graph | KernelGraph) -> None:
        if name == "input":
            name = self._begin(graph)
        if not self._seen or graph is not self._seen[-1][1]:
            title = {"input": "as built", "kernels": "a kernel for each"}.get(name, f"after {name}")
            self._seen.append((name, graph, of_graph(graph, title, self._keys)))

    def _begin(self, graph: Graph | KernelGraph) -> str:
        """The name of a graph that a list of passes begins with."""
        if isinstance(graph, KernelGraph):
            return "kernels"
        # After a failed lowering another graph is tried, and without shaders compilation restarts.
        while self._seen and self._seen[-1][0] in _OF_AN_ATTEMPT:
            self._seen.pop()
        if not self._seen or graph is self._seen[0][1] or graph is self._seen[-1][1]:
            if self._seen and graph is self._seen[0][1]:
                self._seen.clear()
            return "input"
        return "retry"

    @property
    def passes(self) -> tuple[str, ...]:
        """The names of the passes that changed the graph, in order. The first is "input", the
        builder's graph; "kernels" is the graph in which each node is a separate kernel."""
        return tuple(name for name, _, _ in self._seen)

    def around(self, name: str) -> tuple[Picture, Picture]:
        """The graph before and after the last pass of this name, with marks on what the pass
        removes and adds. KeyError where it changed nothing."""
        for number in reversed(range(len(self._seen))):
            if self._seen[number][0] == name:
                after = self._seen[number][2]
                return compared(self._seen[number - 1][2], after) if number else (after, after)
        raise KeyError(name)

    def all(self) -> list[tuple[Picture, Picture]]:
        """Before and after each pass that changed the graph; first the built graph, twice."""
        pictures = [picture for _, _, picture in self._seen]
        return [(p, p) for p in pictures[:1]] + [
            compared(before, after)
            for before, after in zip(pictures, pictures[1:], strict=False)
        ]
