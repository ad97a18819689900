"""``repeat``: its body is a graph of its own, lowered once for all repetitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir import Emitter, Graph, Node, Value
from ..ops.repeat import MAX_UNROLLED, slice_of, through
from ..passes import DEVICE_PASSES, Compilation, remove_dead_code, run_passes
from .dispatch import Unsupported
from .lowered_graph import Alias, HostWork, LoweredGraph, RepeatWork

#: Repetitions of a loop with loops inside, at most: each is recorded, in some 2 KB.
MAX_RECORDED = 1 << 18


class NotALoop(Exception):
    """A body that a device can't repeat by itself: the node has to be unrolled."""


def repeat_work(
    node: Node, compilation: Compilation, lower: Callable[[Graph, Compilation], LoweredGraph]
) -> RepeatWork:
    """The work of a ``repeat`` node. NotALoop if a part of its body runs on the CPU; Unsupported if
    it would then be too long for unrolling, or has too many repetitions for a recording."""
    states, scanned = node.sequence("states"), node.sequence("scanned")
    backward = node.arguments["backward"]
    following, ends = node.outputs[: len(states)], node.outputs[len(states) :]
    inputs: dict[str, Value] = {}

    def seen(name: str, value: Value, described: object = None) -> Value:
        made = Value(described or value.descriptor, name=name)  # type: ignore[arg-type]
        inputs[name] = made
        return made

    read = [seen(f"state{i}", value) for i, value in enumerate(states)]
    slices = [
        seen(f"scanned{i}", value, slice_of(value.descriptor)) for i, value in enumerate(scanned)
    ]
    aliases, captured = [], []
    for i, value in enumerate(node.sequence("captured")):
        if value.is_constant:
            captured.append(value)
        else:
            captured.append(seen(f"captured{i}", value))
            aliases.append(Alias(captured[-1], value))
    emit = Emitter(node.label)
    results = through(node.arguments["body"], [*read, *slices, *captured], emit.apply)
    graph = Graph(
        inputs, {f"result{i}": value for i, value in enumerate(results)}, tuple(emit.nodes)
    )
    compilation = replace(compilation, donated={}, after_pass=None, texts=None)
    graph = run_passes(DEVICE_PASSES, graph, compilation, clean=remove_dead_code)
    body = lower(graph, compilation)
    if any(isinstance(work, HostWork) for work in body.works):
        steps = node.arguments["count"] * len(emit.nodes)
        if steps > MAX_UNROLLED:
            raise Unsupported(
                f"an operator of the loop runs on the CPU, and {steps} operators are too many to "
                "unroll"
            )
        raise NotALoop
    made = [*body.outputs.values()]
    work = RepeatWork(
        (node.title,), node.arguments["count"],
        replace(body, works=(*aliases, *body.works)),
        tuple(zip(read, states, made, following, strict=False)),
        tuple(zip(slices, scanned, backward, strict=False)),
        tuple(zip(made[len(states) :], ends, backward[len(scanned) :], strict=True)),
        "its body has kernels",
    )
    if work.repetitions > max(MAX_RECORDED, work.count):
        raise Unsupported(
            f"{work.repetitions} repetitions, inner loops included; at most {MAX_RECORDED} are "
            "recorded"
        )
    return work
