"""Loops of a graph being built, for importers and ``builder.loop``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.ir.emit import body_of, make_node
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.ops.repeat import slice_of
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def loop_over(
    builder: Any,
    body: Callable[[list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]],
    states: Sequence[Any],
    scanned: Sequence[Any],
    backward: Sequence[bool] = (),
    label: str = "",
) -> list[Any]:
    """A loop over the slices of ``scanned`` along its first dimension, one after the other; all
    operands belong to ``builder``.
    ``body(states, slices)`` is called once and returns the next states and what is stacked along a
    new first dimension. Returns the last states and what was stacked. ``backward``: for each
    scanned operand, then for each stacked result, whether slices go from the last to the first.
    Raises TypeError as methods do."""

    def stand_in(descriptor: MLOperandDescriptor) -> Any:
        return builder._operand(Value(descriptor), "loop")

    count = scanned[0].shape[0]
    start = len(builder._nodes)
    seen = [stand_in(s._descriptor) for s in states]
    slices = [stand_in(slice_of(s._descriptor)) for s in scanned]
    following, stacked = body(seen, slices)
    results = [operand._value for operand in (*following, *stacked)]
    # Nodes that depend on a stand-in stay in the builder, and no output depends on them.
    found = body_of(
        builder._nodes[start:], [operand._value for operand in (*seen, *slices)], results
    )
    node = make_node(
        ALL_OPERATORS["repeat"],
        {
            "states": [s._value for s in states], "scanned": [s._value for s in scanned],
            "captured": found.captured,
        },
        {"count": count, "body": found.body, "backward": tuple(map(bool, backward))},
        label, builder._max_byte_length,
    )
    builder._nodes.append(node)
    return [builder._operand(value, node.title) for value in node.outputs]
