"""Graphs and pictures that several tests draw."""

from __future__ import annotations

from tests.support.graph_text import parse
from webnn_vk.compiler.ir import Graph
from webnn_vk.profiler.pictures import Box, Picture

#: A product with a bias and a branch, with names that need escaping in XML and scripts.
SMALL = """\
input %x: float32[2, 3]
constant %w: float32[3, 3] = 1
%a = matmul ["<q> & k"](%x, b=%w)
%b = relu(%a)
%c = sigmoid(%a)
%d = add(%b, b=%c)
output y = %d"""


def small() -> Graph:
    """A graph of four nodes."""
    return parse(SMALL)


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
