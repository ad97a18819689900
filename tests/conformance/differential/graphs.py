"""Random graphs of several operators, as data: drawn once, built on any context.

Floats stay within a few units and are only operands of smooth operators, so that rounding errors
stay small. Discontinuous operators (comparisons, integer division, selection) work on exact
integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.discriminating import assert_allclose
from webnn_vk import MLContext, MLGraph, MLGraphBuilder
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.program import Program
from webnn_vk.compiler.types.broadcasting import broadcast_shapes
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


@dataclass(frozen=True)
class Step:
    """One operator: ``operands`` and results are indices into the graph's values, with a tuple of
    them where the operator takes a sequence; ``named`` are operands given by name. It has
    ``results`` results."""

    operator: str
    operands: tuple[int | tuple[int, ...], ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, int] = field(default_factory=dict)
    results: int = 1

    def reads(self) -> set[int]:
        """The values that it reads."""
        found = set(self.named.values())
        for k in self.operands:
            found |= {k} if isinstance(k, int) else set(k)
        return found

    def apply(self, builder: Any, values: Sequence[Any]) -> list[Any]:
        """The results on a builder or an emitter."""
        operands = [
            [values[i] for i in k] if isinstance(k, tuple) else values[k] for k in self.operands
        ]
        named = {name: values[k] for name, k in self.named.items()}
        made = getattr(builder, self.operator)(*operands, **self.arguments, **named)
        return made if isinstance(made, list) else [made]


@dataclass(frozen=True)
class RandomGraph:
    """``sources`` are the first values: inputs, or constants where ``constant`` has them. Then
    comes each step's result."""

    sources: tuple[np.ndarray, ...]
    constant: frozenset[int]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __repr__(self) -> str:
        lines = []
        for i, source in enumerate(self.sources):
            kind = "constant" if i in self.constant else "input"
            lines.append(f"%{i} = {kind} {source.dtype}{list(source.shape)}")
        i = len(self.sources)
        for step in self.steps:
            given = [
                f"%{k}" if isinstance(k, int) else f"[{', '.join(f'%{x}' for x in k)}]"
                for k in step.operands
            ]
            given += [f"{name}=%{k}" for name, k in step.named.items()]
            given += [f"{name}={value!r}" for name, value in step.arguments.items()]
            made = ", ".join(f"%{k}" for k in range(i, i + step.results))
            lines.append(f"{made} = {step.operator}({', '.join(given)})")
            i += step.results
        return "\n".join([*lines, f"outputs {', '.join(f'%{i}' for i in self.outputs)}"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def operators(self) -> list[str]:
        return sorted({step.operator for step in self.steps})

    def graph(self) -> Graph:
        """The compiler's form of the graph, made without a context."""
        emit = Emitter()
        values: list[Any] = []
        for i, source in enumerate(self.sources):
            descriptor = MLOperandDescriptor(source.dtype.name, source.shape)
            values.append(
                emit.constant(source)
                if i in self.constant
                else Value(descriptor, name=f"x{i}")
            )
        inputs = {v.name: v for v in values if not v.is_constant}
        for step in self.steps:
            values += step.apply(emit, values)
        return Graph(inputs, {f"y{i}": values[i] for i in self.outputs}, tuple(emit.nodes))

    def build(self, context: MLContext) -> MLGraph:
        """The compiled graph; the caller destroys it."""
        builder = MLGraphBuilder(context)
        values: list[Any] = []
        for i, source in enumerate(self.sources):
            described = {"data_type": source.dtype.name, "shape": source.shape}
            values.append(
                builder.constant(described, source)
                if i in self.constant
                else builder.input(f"x{i}", described)
            )
        for step in self.steps:
            values += step.apply(builder, values)
        return builder.build({f"y{i}": values[i] for i in self.outputs}).result()

    def feeds(self) -> dict[str, np.ndarray]:
        """The arrays of the inputs."""
        numbered = enumerate(self.sources)
        return {f"x{i}": array for i, array in numbered if i not in self.constant}

    def run(
        self, context: MLContext, feeds: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, np.ndarray], Program]:
        """The outputs by name, and the program that computed them, from its own ``feeds`` or
        others."""
        feeds = self.feeds() if feeds is None else feeds
        with self.build(context) as graph:
            used = {name: array for name, array in feeds.items() if name in graph.inputs}
            return context.compute(graph, used), graph._executable.program


_UNARY = (
    "tanh", "sigmoid", "softsign", "erf", "sin", "cos", "relu", "abs", "neg", "hard_swish", "gelu",
    "identity", "elu", "leaky_relu", "softplus",
)
_INTEGER_UNARY = ("abs", "neg", "sign", "relu", "identity")
_BINARY = ("add", "sub", "mul", "max", "min")
_INTEGER_BINARY = (*_BINARY, "div")


class _Making:
    """A graph being drawn: the descriptors and the steps so far."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.shapes: list[tuple[int, ...]] = []
        self.types: list[str] = []
        self.sources: list[np.ndarray] = []
        self.steps: list[Step] = []

    def choose(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def source(self, data_type: str, shape: tuple[int, ...]) -> int:
        assert not self.steps
        rng = np.random.default_rng(len(self.sources) + 7)
        data = rng.uniform(-2, 2, shape) if data_type == "float32" else rng.integers(-5, 9, shape)
        self.sources.append(np.asarray(data).astype(data_type))
        return self._value(data_type, shape)

    def _value(self, data_type: str, shape: tuple[int, ...]) -> int:
        self.types.append(data_type)
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def step(
        self, operator: str, operands: tuple[int, ...], data_type: str, shape: tuple[int, ...], /,
        **arguments: Any,
    ) -> int:
        self.steps.append(Step(operator, operands, arguments))
        return self._value(data_type, shape)

    def of_type(self, data_type: str) -> list[int]:
        return [i for i, t in enumerate(self.types) if t == data_type]

    def bounded(self, value: int) -> int:
        """Clamps floats to a few units."""
        return self.step(
            "clamp", (value,), self.types[value], self.shapes[value], min_value=-4, max_value=4
        )

    # -- one more step
    def grow(self) -> None:
        data_type = self.choose(("float32", "float32", "int32"))
        x = self.choose(self.of_type(data_type))
        shape = self.shapes[x]
        exact = data_type == "int32"
        kind = self.choose(("unary", "binary", "move", "reduce", "select", "kernel"))
        if kind == "unary":
            self.step(self.choose(_INTEGER_UNARY if exact else _UNARY), (x,), data_type, shape)
        elif kind == "binary":
            partners = [
                y for y in self.of_type(data_type)
                if broadcast_shapes(shape, self.shapes[y]) is not None
            ]
            y = self.choose(partners)
            made = self.step(
                self.choose(_INTEGER_BINARY if exact else _BINARY), (x, y), data_type,
                broadcast_shapes(shape, self.shapes[y]),
            )
            self.bounded(made)
        elif kind == "move":
            self._move(x)
        elif kind == "reduce":
            axis = self.draw(st.integers(0, len(shape) - 1))
            kept = tuple(1 if i == axis else d for i, d in enumerate(shape))
            name = self.choose(("max", "min") if exact else ("max", "min", "mean"))
            self.step(f"reduce_{name}", (x,), data_type, kept, axes=[axis], keep_dimensions=True)
        elif kind == "select":
            self._select()
        elif not exact:
            self._kernel(x)
        else:
            self.step("cast", (x,), "float32", shape, data_type="float32")

    def _move(self, x: int) -> None:
        shape, data_type = self.shapes[x], self.types[x]
        match self.choose(("transpose", "reverse", "reshape", "concat", "pad", "slice")):
            case "transpose":
                self.step("transpose", (x,), data_type, shape[::-1])
            case "reverse":
                self.step("reverse", (x,), data_type, shape, axes=[0])
            case "reshape":
                flat = (int(np.prod(shape)), 1)
                self.step("reshape", (x,), data_type, flat, new_shape=flat)
            case "concat":
                self.step("concat", ((x, x),), data_type, (2 * shape[0], *shape[1:]), axis=0)
            case "pad":
                self.step(
                    "pad", (x,), data_type, tuple(d + 1 for d in shape),
                    beginning_padding=[1] * len(shape), ending_padding=[0] * len(shape), value=1,
                )
            case "slice":
                sizes = tuple(max(1, d - 1) for d in shape)
                self.step("slice", (x,), data_type, sizes, starts=[0] * len(shape), sizes=sizes)

    def _select(self) -> None:
        """Compares exact integers, or chooses between floats or integers of compatible shapes."""
        a, b = self.choose(self.of_type("int32")), self.choose(self.of_type("int32"))
        shape = broadcast_shapes(self.shapes[a], self.shapes[b])
        if shape is None:
            return
        condition = self.step(self.choose(("greater", "equal", "lesser_or_equal")), (a, b),
                              "uint8", shape)
        fitting = [
            y for y in range(len(self.types))
            if self.types[y] != "uint8" and broadcast_shapes(shape, self.shapes[y]) is not None
        ]
        first = self.choose(fitting)
        both = broadcast_shapes(shape, self.shapes[first])
        seconds = [
            y for y in self.of_type(self.types[first])
            if broadcast_shapes(both, self.shapes[y]) is not None
        ]
        second = self.choose(seconds)
        self.step("where", (condition, first, second), self.types[first],
                  broadcast_shapes(both, self.shapes[second]))

    def _kernel(self, x: int) -> None:
        """Operators whose kernels fusion can extend."""
        shape = self.shapes[x]
        fitting = [
            y for y in self.of_type("float32")
            if len(shape) == 2 == len(self.shapes[y]) and self.shapes[y][0] == shape[1]
        ]
        match self.choose(("softmax", "layer_normalization", "matmul", "cumulative_sum", "gather")):
            case "softmax":
                self.step("softmax", (x,), "float32", shape, axis=len(shape) - 1)
            case "layer_normalization":
                # A large epsilon: rows of equal elements would magnify roundings.
                self.step("layer_normalization", (x,), "float32", shape,
                          axes=[len(shape) - 1], epsilon=0.5)
            case "matmul" if fitting:
                y = self.choose(fitting)
                self.bounded(self.step("matmul", (x, y), "float32", (shape[0], self.shapes[y][1])))
            case "cumulative_sum":
                self.bounded(self.step("cumulative_sum", (x,), "float32", shape, axis=0))
            case "gather":
                indices = [i for i in self.of_type("int32") if len(self.shapes[i]) == 1]
                i = self.choose(indices)
                self.step("gather", (x, i), "float32", (*self.shapes[i], *shape[1:]), axis=0)
            case _:
                self.step("tanh", (x,), "float32", shape)


@st.composite
def graphs(draw: Callable[[Any], Any]) -> RandomGraph:
    """Graphs of about ten operators on float32 and int32 values."""
    making = _Making(draw)
    n, m = making.choose((2, 3, 4, 8)), making.choose((2, 4, 5))
    for data_type, shape in (
        ("float32", (n, m)), ("float32", (m, n)), ("float32", (m,)), ("float32", (1, m)),
        ("int32", (n, m)), ("int32", (m,)), ("int32", (n, 1)),
    ):
        making.source(data_type, shape)
    count = len(making.sources)
    for _ in range(draw(st.integers(3, 10))):
        making.grow()
        if max(np.prod(shape) for shape in making.shapes) > 4000:
            break
    made = range(count, len(making.shapes))
    used = set().union(*(step.reads() for step in making.steps))
    outputs = [i for i in made if i not in used or making.draw(st.integers(0, 5)) == 0]
    constant = frozenset(i for i in range(count) if making.draw(st.integers(0, 2)) == 0)
    return RandomGraph(tuple(making.sources), constant, tuple(making.steps), tuple(outputs))


#: Allowed difference of floats of a few units.
_TOLERANCE = {"float32": 1e-4, "float16": 0.03}


def assert_equal(
    got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], how: str = ""
) -> None:
    """Compares integers exactly, floats to a few roundings."""
    assert got.keys() == wanted.keys()
    for name, expected in wanted.items():
        assert got[name].dtype == expected.dtype
        message = f"{how} {name}"
        if expected.dtype.kind == "f":
            limit = _TOLERANCE[expected.dtype.name]
            assert_allclose(
                got[name], expected, rtol=limit, atol=limit, err_msg=message
            )
        else:
            np.testing.assert_array_equal(got[name], expected, err_msg=message)
