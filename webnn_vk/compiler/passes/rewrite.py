"""Rewrites: a pattern, and a small function that builds the replacement.

    @rewrite(Op("neg", input=Op("neg", input="x")))
    def negated_twice(match, emit):
        return match["x"]

    pass_ = rewrite_pass("simplify", negated_twice)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Graph, Node, Value
from .patterns import Match, OneOf, Op
from .pipeline import Compilation, Pass

Replacement = Value | Sequence[Value] | None

# Rounds over a graph. One is nearly always enough: new nodes are matched in the same round.
_MAX_ROUNDS = 20
# Rewrites in one round per node of the graph: more means that rewrites undo each other.
_MAX_REWRITES_PER_NODE = 8


class Substitution(dict[Value, Value]):
    """Old value → new value. ``apply`` gives a node that reads the new values."""

    def get(self, value: Value) -> Value:  # type: ignore[override]
        replaced = []
        while value in self:
            replaced.append(value)
            value = self[value]
        # Later look-ups of a value that was replaced many times take one step.
        for old in replaced[:-1]:
            self[old] = value
        return value

    def apply(self, node: Node) -> Node:
        if not any(v in self for v in node.inputs):
            return node
        return replace(node, operands={k: self.get(v) for k, v in node.operands.items()})

    def rebuild(self, graph: Graph, nodes: Iterable[Node]) -> Graph:
        """The graph with these nodes and the new outputs; the same one if nothing is replaced."""
        if not self:
            return graph
        outputs = {name: self.get(v) for name, v in graph.outputs.items()}
        return replace(graph, outputs=outputs, nodes=tuple(nodes))


@dataclass(frozen=True)
class Rewrite:
    """``build(match, emit)`` returns the value(s) that replace the root's outputs, built with
    ``emit``, or None if the rewrite does not apply."""

    name: str
    pattern: Op | OneOf
    build: Callable[[Match, Emitter], Replacement]


def rewrite(pattern: Op | OneOf) -> Callable[[Callable[[Match, Emitter], Replacement]], Rewrite]:
    """Decorator that makes a rewrite of the function that builds the replacement."""
    return lambda build: Rewrite(build.__name__, pattern, build)


def rewrite_pass(
    name: str, *rewrites: Rewrite, rounds: int = _MAX_ROUNDS,
    when: Callable[[Compilation], bool] = lambda compilation: True,
) -> Pass[Graph]:
    """An optional pass that applies the rewrites until none fits, at most in ``rounds`` walks over
    the graph. It changes nothing unless ``when`` holds."""

    def run(graph: Graph, compilation: Compilation) -> Graph:
        if not when(compilation):
            return graph
        return apply_rewrites(
            graph,
            rewrites,
            kept=compilation.force_cpu,
            applied=lambda text: compilation.notes.add(name, text),
        )

    return Pass(name, run, rounds=rounds)


def apply_rewrites(
    graph: Graph,
    rewrites: Iterable[Rewrite],
    kept: frozenset[str] = frozenset(),
    applied: Callable[[str], None] = lambda text: None,
) -> Graph:
    """The graph after one walk over its nodes in order, the same one where nothing fits.

    Nodes whose operators are named by ``kept`` stay as they are, and a match never spans two
    devices. New nodes have the origins of all matched nodes, and their device. ``applied`` gets a
    line for each rewrite. The time grows with the number of nodes and operands, not with the
    number of readers of one value. RuntimeError if rewrites don't end.
    """
    walk = _Walk(graph, rewrites, kept)
    if walk.by_root.keys().isdisjoint(node.operator.name for node in graph.nodes):
        return graph
    return walk.run(applied)


class _Walk:
    """One walk: the nodes rewritten so far, and the readers of each value in the current graph."""

    def __init__(
        self, graph: Graph, rewrites: Iterable[Rewrite], kept: frozenset[str]
    ) -> None:
        self.graph = graph
        self.by_root: dict[str, list[Rewrite]] = {}
        for rule in rewrites:
            for name in rule.pattern.names - kept:
                self.by_root.setdefault(name, []).append(rule)
        self.kept = kept
        self.known = Substitution()
        # The nodes of the new graph; a dictionary, so that nodes can be removed.
        self.nodes: dict[Node, None] = {}
        self.producers: dict[Value, Node] = {}
        self.reads: dict[Value, int] = {}

    # -- what patterns ask ---------------------------------------------------------------------
    def producer(self, value: Value) -> Node | None:
        return self.producers.get(value)

    def uses(self, value: Value) -> int:
        return self.reads.get(value, 0)

    # -- the walk ------------------------------------------------------------------------------
    def run(self, applied: Callable[[str], None]) -> Graph:
        for value in [v for n in self.graph.nodes for v in n.inputs]:
            self.reads[value] = self.reads.get(value, 0) + 1
        for value in self.graph.outputs.values():
            self.reads[value] = self.reads.get(value, 0) + 1
        left = _MAX_REWRITES_PER_NODE * len(self.graph.nodes) + 64
        pending = list(reversed(self.graph.nodes))
        while pending:
            node = self.known.apply(pending.pop())
            found = self._first(node)
            if found is None:
                self.nodes[node] = None
                self.producers.update(dict.fromkeys(node.outputs, node))
                continue
            rule, match, values, built = found
            left -= 1
            if left < 0:
                raise RuntimeError(f"rewrites go on without end, at last {rule.name}")
            applied(" + ".join(n.title for n in match.nodes))
            self._replace(node, values, built)
            # The new nodes may be rewritten in turn.
            pending.extend(reversed(built))
        return self.known.rebuild(self.graph, self.nodes)

    def _first(
        self, root: Node
    ) -> tuple[Rewrite, Match, tuple[Value, ...], list[Node]] | None:
        """The first rewrite that applies to a node: its match, values and nodes."""
        for rule in self.by_root.get(root.operator.name, ()):
            for match in rule.pattern.matches_at(root, self):
                if any(
                    n.device != root.device or n.operator.name in self.kept
                    for n in match.nodes
                ):
                    continue
                emit = Emitter(root.label)
                given = rule.build(match, emit)
                if given is None:
                    continue
                values = (given,) if isinstance(given, Value) else tuple(given)
                _check(rule, root, values)
                origins = dict.fromkeys(o for n in match.nodes for o in n.origins)
                built = [
                    replace(n, device=root.device, reason=root.reason, origins=tuple(origins))
                    for n in emit.nodes
                ]
                return rule, match, values, built
        return None

    def _replace(self, root: Node, values: tuple[Value, ...], built: list[Node]) -> None:
        for value in (v for node in built for v in node.inputs):
            self.reads[value] = self.reads.get(value, 0) + 1
        for old, new in zip(root.outputs, values, strict=True):
            self.known[old] = new
            self.reads[new] = self.reads.get(new, 0) + self.reads.pop(old, 0)
        # Remove nodes that only the root has read, so that the counts are of needed readers.
        unused = [root]
        while unused:
            for value in unused.pop().inputs:
                self.reads[value] -= 1
                producer = self.producers.get(value)
                if producer in self.nodes and not any(map(self.uses, producer.outputs)):
                    del self.nodes[producer]
                    unused.append(producer)


def _check(rule: Rewrite, root: Node, values: tuple[Value, ...]) -> None:
    old = [v.descriptor for v in root.outputs]
    new = [v.descriptor for v in values]
    if old != new:
        raise ValueError(
            f"{rule.name} puts {', '.join(map(str, new))} in the place of {root.title}, which is "
            f"{', '.join(map(str, old))}"
        )
    if not set(values).isdisjoint(root.outputs):
        raise ValueError(f"{rule.name} puts {root.title} in its own place")
