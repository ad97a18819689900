"""Random graphs of element-wise operators, for tests of passes that order and fuse."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.graphs import graph_input, graph_of
from webnn_vk.compiler.ir import Emitter, Graph


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """A random DAG of unary and binary nodes over one input."""
    emit = Emitter()
    a = graph_input("a", (3,))
    values = [a]
    for _ in range(draw(st.integers(1, 12))):
        pick = st.integers(0, len(values) - 1)
        x, y = values[draw(pick)], values[draw(pick)]
        kind = draw(st.sampled_from(["relu", "neg", "tanh", "add", "mul", "max"]))
        values.append(getattr(emit, kind)(*((x,) if kind in ("relu", "neg", "tanh") else (x, y))))
    chosen = draw(st.sets(st.integers(1, len(values) - 1), min_size=1, max_size=3))
    return graph_of(emit, {f"y{i}": values[i] for i in sorted(chosen)}, a)
