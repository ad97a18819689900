"""Pixels that only convolutions of one tap with strides could read, and that they skip, are not
computed: the strides move before pointwise convolutions and element-wise operators, as slices.

In ResNet's first version, the last block of a stage computes four times the pixels that the next
stage reads. On software devices only, which copy what such convolutions read anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..ir import Emitter, Graph, Node, Value
from ..ops.convolution import arrange
from ..ops.lowering import Elementwise
from ..types.sizes import Size
from .pipeline import Compilation, Pass
from .rewrite import Substitution

#: Steps along each dimension of a tensor.
Steps = tuple[int, ...]


def skip_unread_pixels(graph: Graph, compilation: Compilation) -> Graph:
    """The graph in which the strides of pointwise convolutions are taken by slices as early as
    that saves a convolution's work."""
    profile = compilation.profile
    if profile is None or profile.device_type != "cpu":
        return graph
    if not {"slice", "conv2d"}.isdisjoint(compilation.force_cpu):
        return graph
    readers: dict[Node, Steps] = {}
    thinned: dict[Node, Steps] = {}
    for value, steps in _read_in_steps(graph):
        region = _region(graph, value, steps)
        if region:
            readers |= dict.fromkeys(graph.users[value], steps)
            thinned |= dict.fromkeys(region, steps)
            names = (node.title for node in (*region, *graph.users[value]))
            compilation.notes.add("unread_pixels", " + ".join(names))
    return _thinned(graph, readers, thinned) if readers else graph


def _steps(node: Node) -> Steps | None:
    """The steps in which a convolution of one tap reads its input; None for another node."""
    if node.operator.name != "conv2d" or any(node.arguments["padding"]):
        return None
    if any(isinstance(n, Size) for n in node.operands["input"].shape):
        return None
    taps = arrange(node.operands["filter"].shape, node.arguments["filter_layout"], "hw")
    if tuple(taps) != (1, 1):
        return None
    along = dict(zip("hw", node.arguments["strides"], strict=True))
    return tuple(along.get(axis, 1) for axis in node.arguments["input_layout"])


def _read_in_steps(graph: Graph) -> Iterator[tuple[Value, Steps]]:
    """The values of which every reader skips the same pixels."""
    for value, users in graph.users.items():
        steps = {_steps(user) if user.operand("input") is value else None for user in users}
        first = next(iter(steps))
        if len(steps) == 1 and first and max(first) > 1 and value not in graph.output_values:
            yield value, first


def _region(graph: Graph, value: Value, steps: Steps) -> list[Node]:
    """The nodes that need to compute only the pixels of ``value`` that are read: those that nothing
    else reads, back to pointwise convolutions."""
    region: dict[Node, None] = {}
    waiting = [value]
    while waiting:
        value = waiting.pop()
        node = graph.producers.get(value)
        is_read = value in graph.output_values or (
            bool(region) and not region.keys() >= set(graph.users[value])
        )
        if node is not None and not is_read and (spread := _spread(node, steps)) is not None:
            region[node] = None
            waiting += spread
    # What has no convolution before it saves next to nothing, and may be fused with what is there.
    saving: dict[Node, None] = {}
    for node in filter(region.__contains__, graph.nodes):
        before = (graph.producers.get(value) for value in node.inputs)
        if node.operator.name == "conv2d" or any(n in saving for n in before):
            saving[node] = None
    return [*saving]


def _spread(node: Node, steps: Steps) -> list[Value] | None:
    """The operands of which a node reads just the pixels that it computes; None where it mixes
    them, or where an operand is broadcast along some."""
    if node.operator.name == "conv2d":
        own = _steps(node)
        layout = node.arguments["input_layout"]
        pixels = all(axis in "hw" or s == 1 for axis, s in zip(layout, steps, strict=True))
        return [node.operands["input"]] if own == (1,) * len(steps) and pixels else None
    if not isinstance(node.operator.lowering, Elementwise):
        return None
    shape = node.output.shape
    spread = [value for value in node.inputs if value.shape == shape]
    others = [value for value in node.inputs if value.shape != shape]
    return None if any(_varies(value, steps) for value in others) else spread


def _varies(value: Value, steps: Steps) -> bool:
    """Whether a broadcast operand differs along a dimension with steps."""
    return any(n != 1 and s > 1 for n, s in zip(value.shape[::-1], steps[::-1], strict=False))


def _thinned(
    graph: Graph, readers: Mapping[Node, Steps], thinned: Mapping[Node, Steps]
) -> Graph:
    """The graph with ``thinned`` computed for each step's pixel only, and read by ``readers``."""
    known = Substitution()
    sliced: dict[tuple[Value, Steps], Value] = {}
    nodes: list[Node] = []

    def few(value: Value, steps: Steps, emit: Emitter) -> Value:
        """The pixels of a value at these steps."""
        if (value, steps) not in sliced:
            source, begin = known.get(value), (0,) * len(steps)
            sliced[value, steps] = emit.slice(source, begin, source.shape, strides=steps)
        return sliced[value, steps]

    for node in graph.nodes:
        steps = thinned.get(node) or readers.get(node)
        if steps is None:
            nodes.append(known.apply(node))
            continue
        emit = Emitter(node.label)
        spread = [node.operands["input"]] if node in readers else _spread(node, steps) or ()
        operands = {
            name: few(value, steps, emit) if value in spread else known.get(value)
            for name, value in node.operands.items()
        }
        if node in readers:
            known[node.output] = emit.like(node, **operands, strides=(1, 1))
        else:
            sliced[node.output, steps] = emit.like(node, **operands)
        nodes += [replace(made, origins=node.origins) for made in emit.nodes]
    return known.rebuild(graph, nodes)


UNREAD_PIXELS = Pass("unread_pixels", skip_unread_pixels)
