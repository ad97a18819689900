"""Random graphs in which operators that only move elements surround products and other kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.graphs import graph_input, graph_of
from webnn_vk.compiler.ir import Emitter, Graph, Value


@st.composite
def factored(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """A shape with this number of elements."""
    dims: list[int] = []
    for factor in (2, 2, 2, 3, 5):
        if size % factor == 0:
            size //= factor
            if dims and draw(st.booleans()):
                dims[-1] *= factor
            else:
                dims.append(factor)
    if size > 1:
        dims.append(size)
    dims = list(draw(st.permutations(dims))) or [1]
    if draw(st.integers(0, 3)) == 0:
        dims.insert(draw(st.integers(0, len(dims))), 1)
    return tuple(dims[:7])


def move(draw: Callable[[Any], Any], emit: Emitter, x: Value, kinds: tuple[str, ...]) -> Value:
    """The value, moved in one of these ways."""
    shape = x.shape
    axis = draw(st.integers(0, len(shape) - 1))
    match draw(st.sampled_from(kinds)):
        case "transpose":
            return emit.transpose(x, permutation=draw(st.permutations(range(len(shape)))))
        case "reshape":
            return emit.reshape(x, draw(factored(x.descriptor.size)))
        case "reverse":
            return emit.reverse(x, axes=sorted(draw(st.sets(st.sampled_from(range(len(shape)))))))
        case "slice":
            starts = [draw(st.integers(0, d - 1)) for d in shape]
            sizes = [draw(st.integers(1, d - s)) for s, d in zip(starts, shape, strict=True)]
            steps = [draw(st.integers(1, min(2, size))) for size in sizes]
            return emit.slice(x, starts, sizes, strides=steps)
        case "split" if shape[axis] % 2 == 0:
            return draw(st.sampled_from(emit.split(x, 2, axis=axis)))
        case "expand" if math.prod(shape) <= 60 and len(shape) < 7:
            dims = (2, *(3 if d == 1 and draw(st.booleans()) else d for d in shape))
            return emit.expand(x, dims)
        case "tile" if math.prod(shape) <= 60:
            return emit.tile(x, [2 if i == axis else 1 for i in range(len(shape))])
        case "concat" if math.prod(shape) <= 120:
            return emit.concat([x, x], axis)
        case _:
            return emit.transpose(x)


MOVES = ("transpose", "transpose", "reshape", "reverse", "slice", "split", "expand", "tile",
         "concat")
#: Movements that take every element once.
PERMUTATIONS = ("transpose", "transpose", "reshape")


@dataclass(frozen=True)
class MovingGraph:
    """A graph whose representation is its text."""

    graph: Graph

    def __repr__(self) -> str:
        return str(self.graph)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def moving_graphs(draw: st.DrawFn, kinds: tuple[str, ...] = MOVES) -> MovingGraph:
    """A graph of about ten movements and kernels; any value may be an output or have several
    readers."""
    emit = Emitter()
    inputs = [graph_input("a", (4, 6)), graph_input("b", (2, 3, 4))]
    values: list[Value] = list(inputs)
    for _ in range(draw(st.integers(3, 12))):
        x = draw(st.sampled_from(values[-3:] if draw(st.booleans()) else values))
        kind = draw(st.sampled_from(("move", "move", "move", "product", "product", "unary",
                                     "binary", "reduce", "gemm")))
        if kind == "product" and len(x.shape) >= 2:
            columns = [
                y for y in values
                if len(y.shape) >= 2 and y.shape[-2] == x.shape[-1]
                and (len(y.shape) == 2 or y.shape[:-2] == x.shape[:-2])
            ]
            if columns:
                made = emit.matmul(x, draw(st.sampled_from(columns)))
            else:
                made = emit.matmul(x, emit.transpose(x, permutation=[
                    *range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2
                ]))
            made = emit.clamp(made, min_value=-4, max_value=4) if draw(st.booleans()) else made
        elif kind == "gemm" and len(x.shape) == 2:
            made = emit.gemm(x, x, b_transpose=True, alpha=0.25)
        elif kind == "unary":
            made = emit.neg(x)
        elif kind == "binary":
            other = draw(st.sampled_from([y for y in values if y.shape == x.shape]))
            made = emit.max(x, other)
        elif kind == "reduce":
            made = emit.reduce_max(x, axes=[len(x.shape) - 1], keep_dimensions=True)
        else:
            made = move(draw, emit, x, kinds)
        if made.descriptor.size <= 4000:
            values.append(made)
    made = values[len(inputs):]
    used = {v for node in emit.nodes for v in node.inputs}
    outputs = [v for v in made if v not in used or draw(st.integers(0, 5)) == 0]
    outputs = outputs or [made[-1]] if made else [emit.neg(inputs[0])]
    named = {f"y{i}": v for i, v in enumerate(dict.fromkeys(outputs))}
    return MovingGraph(graph_of(emit, named, *inputs))
