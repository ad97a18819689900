"""Random graphs of concats, splits, slices and views: with parts in place and with copies, on the
device and on the CPU, the results are equal."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder

#: Columns: rows of 256 bytes, which any device can bind, of 48, which some can, and of 20.
WIDTHS = (64, 12, 5)
EXAMPLES = 8


@pytest.fixture(scope="module")
def variants(vulkan: Any) -> Iterator[list[Any]]:
    made = [
        open_context(skip_passes=("in_place",)),
        open_context(force_cpu=("softsign",)),
        open_context(skip_passes=("fuse", "absorb")),
    ]
    yield made
    for context in made:
        context.destroy()


class _Drawn:
    """A graph drawn on every builder at once: ``values`` are the values of every builder, with
    their rows."""

    def __init__(self, draw: Callable[[Any], Any], builders: list[Any]) -> None:
        self.draw = draw
        self.builders = builders
        self.width = draw(st.sampled_from(WIDTHS))
        self.feeds: dict[str, np.ndarray] = {}
        self.values: list[tuple[list[Any], int]] = []
        for i in range(2):
            rows = draw(st.integers(1, 6))
            x = np.random.default_rng(i).uniform(-1, 1, (rows, self.width)).astype(np.float32)
            self.feeds[f"x{i}"] = x
            described = {"data_type": "float32", "shape": x.shape}
            self.values.append(([b.input(f"x{i}", described) for b in builders], rows))

    def pick(self) -> tuple[list[Any], int]:
        # Recent values more often, so that graphs grow deep.
        return self.values[-1 - self.draw(st.integers(0, min(len(self.values), 6) - 1))]

    def add(self, rows: int, make: Callable[..., Any], *operands: list[Any]) -> None:
        made = [make(b, *(o[n] for o in operands)) for n, b in enumerate(self.builders)]
        self.values.append((made, rows))

    def grow(self) -> None:
        x, rows = self.pick()
        match self.draw(st.sampled_from(
            ("kernel", "kernel", "view", "concat", "concat", "split", "split", "slice")
        )):
            case "kernel":
                name = self.draw(st.sampled_from(("sin", "softsign", "softmax")))
                arguments = (1,) if name == "softmax" else ()
                self.add(rows, lambda b, v: getattr(b, name)(v, *arguments), x)
            case "view":
                flat = (self.width, rows)
                self.add(rows, lambda b, v: b.reshape(
                    b.softmax(b.reshape(v, flat), 1), (rows, self.width)), x)
            case "concat":
                parts = [(x, rows), *(self.pick() for _ in range(self.draw(st.integers(1, 3))))]
                total = sum(r for _, r in parts)
                if total <= 64:
                    self.add(total, lambda b, *vs: b.concat(list(vs), 0), *(p for p, _ in parts))
            case "split" if rows > 1:
                at = self.draw(st.integers(1, rows - 1))
                for n, size in enumerate((at, rows - at)):
                    self.add(size, lambda b, v, n=n: b.split(v, (at, rows - at), axis=0)[n], x)
            case "slice":
                start = self.draw(st.integers(0, rows - 1))
                size = self.draw(st.integers(1, rows - start))
                self.add(
                    size, lambda b, v: b.slice(v, (start, 0), (size, self.width)), x
                )


def test_with_and_without_copies(
    vulkan_context: Any, cpu_context: Any, variants: list[Any]
) -> None:
    # Inputs that no output needs are omitted.
    warnings.simplefilter("ignore", RuntimeWarning)
    contexts = [cpu_context, vulkan_context, *variants]
    fewer = 0

    @settings(
        max_examples=max(EXAMPLES, settings.default.max_examples // 4), deadline=None,
        database=None, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: Any) -> None:
        nonlocal fewer
        drawn = _Drawn(data.draw, [MLGraphBuilder(context) for context in contexts])
        for _ in range(data.draw(st.integers(6, 14))):
            drawn.grow()
        count = len(drawn.values)
        chosen = {count - 1, *data.draw(st.sets(st.integers(2, count - 1), max_size=2))} - {0, 1}
        if not chosen:
            return
        results, copies = [], []
        for n, (context, builder) in enumerate(zip(contexts, drawn.builders, strict=True)):
            outputs = {f"y{i}": drawn.values[i][0][n] for i in sorted(chosen)}
            with builder.build(outputs).result() as graph:
                feeds = {name: drawn.feeds[name] for name in graph.inputs}
                # Twice: leftovers of one run in the arena must not show in the next.
                context.compute(graph, {k: np.full_like(v, np.nan) for k, v in feeds.items()})
                results.append(context.compute(graph, feeds))
                steps = graph.report().steps
                copies.append(sum(s.dispatches for s in steps if s.kernel == "copy"))
        for other in results[1:]:
            for name, array in results[0].items():
                assert_allclose(other[name], array, rtol=1e-5, atol=1e-6)
        assert copies[1] <= copies[2]
        fewer += copies[1] < copies[2]

    check()
    # Otherwise no value was computed in place.
    assert fewer > EXAMPLES // 4
