"""Graphs and pictures that several tests draw."""

from __future__ import annotations

from tests.support.graphs import read
from webnn_vk.compiler.ir import Graph
from webnn_vk.profiler.pictures import Box, Picture


def small() -> Graph:
    """A product with a bias and a branch, with names that need escaping in XML and scripts."""
    return read(
        "inputs { x: f32[2, 3]; } consts { w: f32[3, 3] @scalar(1); }",
        'a = matmul(x, w, label="<q> & k"); b = relu(a); c = sigmoid(a); y = add(b, c);',
    )


def chain(names: list[str], residual: int = 0, shared: bool = False) -> Picture:
    """Boxes one after the other; ``residual``: every ``residual``-th also reads what the box
    that many places before it wrote; ``shared``: a mask that the same boxes read."""
    boxes = [Box("input", "x", writes=(0,)), Box("input", "mask", writes=(-1,))]
    for number, name in enumerate(names):
        reads = [number]
        if residual and number % residual == residual - 1:
            reads += [number - residual + 1] + [-1] * shared
        boxes.append(Box("node", name, reads=tuple(reads), writes=(number + 1,)))
    boxes.append(Box("output", "y", reads=(len(names),)))
    return Picture("a chain", tuple(boxes), {n: "float32[4]" for n in range(-1, len(names) + 1)})
