"""repeat, as a Scan: what it captures has names that ONNX's body sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ops.repeat import slice_of, through
from ..emit import Emitter
from ..graph import Value
from .writer import ELEMENT_TYPES, Tensor, Writer, rule


@rule("repeat")
def repeat(
    w: Writer, states: list[Tensor], scanned: list[Tensor], captured: list[Tensor], count: int,
    body: tuple[Any, ...], backward: Sequence[bool],
) -> list[Tensor]:
    node = w.node
    assert node is not None
    if not scanned:
        return w.decomposed()
    seen = [Value(v.descriptor) for v in node.sequence("states")]
    seen += [Value(slice_of(v.descriptor)) for v in node.sequence("scanned")]
    outer = [*node.sequence("captured")]
    emit = Emitter(node.label)
    results = through(body, [*seen, *outer], emit.apply)

    def made() -> tuple[list[Tensor], list[Tensor]]:
        inputs = [w.named(v) for v in seen]
        for inner in emit.nodes:
            w.tensors.update(zip(inner.outputs, w.call(inner), strict=True))
        # An output of a body is the result of a node in it, and is there once.
        return inputs, [w.op("Identity", w.tensor(v)) for v in results]

    (inputs, outputs), nodes = w.apart(made)
    from onnx import helper

    ports = [
        [helper.make_tensor_value_info(t.name, ELEMENT_TYPES[t.data_type], t.shape) for t in port]
        for port in (inputs, outputs)
    ]
    whole = [(t.data_type, t.shape) for t in outputs]
    whole[len(states) :] = [(kind, (count, *shape)) for kind, shape in whole[len(states) :]]
    split = len(scanned)
    directions = {
        "scan_input_directions": [*map(int, backward[:split])],
        "scan_output_directions": [*map(int, backward[split:])],
    }
    return w.ops(
        "Scan", *states, *scanned, results=whole,
        body=helper.make_graph(nodes, "body", *ports), num_scan_inputs=split,
        # An attribute without numbers has no type.
        **{name: numbers for name, numbers in directions.items() if numbers},
    )
