"""Random graphs whose shapes are expressions of two named dimensions, as data: built with named
dimensions, or with the sizes of one shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.differential.graphs import assert_equal
from webnn_vk import MLContext, MLDynamicDimension, MLGraph, MLGraphBuilder

#: The sizes of the dimensions by name: numbers, or dimensions of a builder.
Sizes = Mapping[str, Any]
#: A size as an expression.
Extent = Callable[[Sizes], Any]

#: Sizes at which expressions are compared.
_SAMPLES = ({"n": 7, "m": 11}, {"n": 5, "m": 3}, {"n": 2, "m": 13})
MAX = {"n": 12, "m": 20}
#: A graph stops growing at tensors of this many elements, at the largest sizes.
_MOST = 20_000


def fixed(size: int) -> Extent:
    return lambda _: size


@dataclass(frozen=True)
class _Value:
    data_type: str
    shape: tuple[Extent, ...]

    def at(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple(extent(sizes) for extent in self.shape)


def _same(a: Sequence[Extent], b: Sequence[Extent]) -> bool:
    return all([x(s) for x in a] == [y(s) for y in b] for s in _SAMPLES)


def _is_one(extent: Extent) -> bool:
    return all(extent(s) == 1 for s in _SAMPLES)


class ShapedGraph:
    """A graph drawn from a seed. ``inputs`` are the first values."""

    def __init__(self, seed: int, steps: int = 9) -> None:
        self.random = random.Random(seed)
        self.values: list[_Value] = []
        self.steps: list[tuple[str, Any, Callable[[Sizes], dict[str, Any]]]] = []
        self.lines: list[str] = []
        n, m = (lambda s: s["n"]), (lambda s: s["m"])
        kinds = [(n, m), (m, n), (m,), (fixed(1), m), (n, fixed(8)), (fixed(8), fixed(6)),
                 (n, fixed(4), m, fixed(5)), (n, m, fixed(4))]
        for shape in kinds:
            self.values.append(_Value("float32", shape))
        for shape in ((n, m), (m,), (n,)):
            self.values.append(_Value("int32", shape))
        self.inputs = len(self.values)
        for _ in range(steps):
            self.grow()
        read = {i for _, operands, _ in self.steps for i in _flat(operands)}
        made = range(self.inputs, len(self.values))
        self.outputs = [i for i in made if i not in read or self.random.random() < 0.2]

    def __repr__(self) -> str:
        return "\n".join([*self.lines, f"outputs {self.outputs}"])

    # -- growing ---------------------------------------------------------------------------------
    def step(self, operator: str, operands: Any, results: Sequence[_Value],
             arguments: Callable[[Sizes], dict[str, Any]] = lambda _: {}) -> int:
        self.steps.append((operator, operands, arguments))
        self.lines.append(
            f"{len(self.values)} = {operator}({operands}, {arguments(MAX)}) -> "
            f"{[(r.data_type, r.at(MAX)) for r in results]}"
        )
        self.values += results
        return len(self.values) - len(results)

    def small(self, shape: Sequence[Extent]) -> bool:
        return np.prod([extent(MAX) for extent in shape]) <= _MOST

    def grow(self) -> None:
        pick = self.random
        x = pick.choice([i for i, v in enumerate(self.values) if v.data_type != "uint8"])
        value = self.values[x]
        shape, rank = value.shape, len(value.shape)
        floats = value.data_type == "float32"
        axis = pick.randrange(rank) if rank else 0
        of = lambda new, kind=value.data_type: [_Value(kind, tuple(new))]  # noqa: E731
        choice = pick.choice((
            "unary", "binary", "binary", "transpose", "flatten", "join", "concat", "pad", "slice",
            "reduce", "softmax", "norm", "matmul", "gather", "cumulative", "expand", "tile",
            "where", "image", "arg", "scatter", "triangular", "reverse", "cast", "split",
        ))
        if choice == "unary":
            names = ("tanh", "sigmoid", "abs", "neg", "relu", "gelu", "erf", "hard_swish")
            self.step(pick.choice(names if floats else ("abs", "neg", "sign")), (x,), of(shape))
        elif choice == "binary":
            partners = [
                i for i, v in enumerate(self.values) if v.data_type == value.data_type
                and len(v.shape) <= rank and all(
                    _is_one(a) or _same([a], [b])
                    for a, b in zip(reversed(v.shape), reversed(shape), strict=False)
                )
            ]
            y = pick.choice(partners)
            made = self.step(pick.choice(("add", "sub", "mul", "max", "min")), (x, y), of(shape))
            self.step("clamp", (made,), of(shape), lambda _: {"min_value": -4, "max_value": 4})
        elif choice == "transpose":
            order = pick.sample(range(rank), rank)
            self.step("transpose", (x,), of(shape[i] for i in order),
                      lambda _: {"permutation": order})
        elif choice == "flatten" and rank > 1:
            a = pick.randrange(rank - 1)
            joined = lambda s: shape[a](s) * shape[a + 1](s)  # noqa: E731
            new = (*shape[:a], joined, *shape[a + 2:])
            self.step("reshape", (x,), of(new), lambda s: {"new_shape": [e(s) for e in new]})
        elif choice == "join" and rank < 5:
            new = (*shape[:axis], fixed(1), *shape[axis:])
            self.step("reshape", (x,), of(new), lambda s: {"new_shape": [e(s) for e in new]})
        elif choice == "concat" and rank:
            others = [i for i, v in enumerate(self.values) if v.data_type == value.data_type
                      and len(v.shape) == rank
                      and _same(shape[:axis], v.shape[:axis])
                      and _same(shape[axis + 1:], v.shape[axis + 1:])]
            y = pick.choice(others)
            other = self.values[y].shape[axis]
            new = (*shape[:axis], lambda s: shape[axis](s) + other(s), *shape[axis + 1:])
            if self.small(new):
                self.step("concat", ([x, y],), of(new), lambda _: {"axis": axis})
        elif choice == "pad":
            before, after = ([pick.randrange(3) for _ in shape] for _ in "ab")
            new = [lambda s, e=e, p=p, q=q: e(s) + p + q
                   for e, p, q in zip(shape, before, after, strict=True)]
            if self.small(new):
                self.step("pad", (x,), of(new), lambda _: {
                    "beginning_padding": before, "ending_padding": after, "value": 1})
        elif choice == "slice" and rank:
            # All from the start on, or the first element.
            first = pick.random() < 0.3
            size = fixed(1) if first else shape[axis]
            new = (*shape[:axis], size, *shape[axis + 1:])
            self.step("slice", (x,), of(new), lambda s: {
                "starts": [0] * rank, "sizes": [e(s) for e in new]})
        elif choice == "reduce" and rank:
            keep = pick.random() < 0.5
            new = (*shape[:axis], *([fixed(1)] if keep else []), *shape[axis + 1:])
            names = ("mean", "max", "min", "sum", "l2", "product") if floats else ("max", "sum")
            made = self.step("reduce_" + pick.choice(names), (x,), of(new),
                             lambda _: {"axes": [axis], "keep_dimensions": keep})
            self.step("clamp", (made,), of(new), lambda _: {"min_value": -4, "max_value": 4})
        elif choice == "softmax" and floats and rank:
            self.step("softmax", (x,), of(shape), lambda _: {"axis": axis})
        elif choice == "norm" and floats and rank:
            self.step("layer_normalization", (x,), of(shape), lambda _: {
                "axes": [axis], "epsilon": 0.5})
        elif choice == "matmul" and floats and rank >= 2:
            fitting = [i for i, v in enumerate(self.values) if v.data_type == "float32"
                       and len(v.shape) == 2 and _same(v.shape[:1], shape[-1:])]
            if fitting:
                y = pick.choice(fitting)
                new = (*shape[:-1], self.values[y].shape[1])
                if self.small(new):
                    made = self.step("matmul", (x, y), of(new))
                    self.step("clamp", (made,), of(new),
                              lambda _: {"min_value": -4, "max_value": 4})
        elif choice == "gather" and rank:
            indices = [i for i, v in enumerate(self.values)
                       if v.data_type == "int32" and len(v.shape) == 1]
            i = pick.choice(indices)
            new = (*shape[:axis], self.values[i].shape[0], *shape[axis + 1:])
            if self.small(new):
                self.step("gather", (x, i), of(new), lambda _: {"axis": axis})
        elif choice == "cumulative" and rank:
            made = self.step("cumulative_sum", (x,), of(shape), lambda _: {"axis": axis})
            self.step("clamp", (made,), of(shape), lambda _: {"min_value": -4, "max_value": 4})
        elif choice == "expand" and rank < 5:
            new = (lambda s: s["n"] + 1, *shape)
            if self.small(new):
                self.step("expand", (x,), of(new), lambda s: {"new_shape": [e(s) for e in new]})
        elif choice == "tile" and rank:
            new = (*shape[:axis], lambda s: shape[axis](s) * 2, *shape[axis + 1:])
            if self.small(new):
                counts = [2 if i == axis else 1 for i in range(rank)]
                self.step("tile", (x,), of(new), lambda _: {"repetitions": counts})
        elif choice == "where":
            condition = self.step("greater", (x, x), [_Value("uint8", shape)])
            self.step("where", (condition, x, x), of(shape))
        elif choice == "image" and floats and rank == 4:
            self._image(x, shape)
        elif choice == "arg" and rank:
            new = (*shape[:axis], *shape[axis + 1:])
            self.step("arg_max", (x,), of(new, "int32"), lambda _: {"axis": axis})
        elif choice == "scatter" and rank:
            self.step("scatter_elements", (x, self._index_like(x), x), of(shape),
                      lambda _: {"axis": axis})
        elif choice == "triangular" and rank >= 2:
            self.step("triangular", (x,), of(shape), lambda _: {"upper": axis == 0})
        elif choice == "reverse" and rank:
            self.step("reverse", (x,), of(shape), lambda _: {"axes": [axis]})
        elif choice == "cast":
            kind = "int32" if floats else "float32"
            self.step("cast", (x,), of(shape, kind), lambda _: {"data_type": kind})
        elif choice == "split" and rank:
            pairs = self.step("tile", (x,), of(
                (*shape[:axis], lambda s: shape[axis](s) * 2, *shape[axis + 1:])
            ), lambda _: {"repetitions": [2 if i == axis else 1 for i in range(rank)]})
            self.step("split", (pairs,), [_Value(value.data_type, shape)] * 2,
                      lambda _: {"splits": 2, "axis": axis})

    def _index_like(self, x: int) -> int:
        """Indices of the first element, of the shape of a value."""
        value = self.values[x]
        zeros = self.step("sub", (x, x), [value])
        if value.data_type == "int32":
            return zeros
        return self.step("cast", (zeros,), [_Value("int32", value.shape)],
                         lambda _: {"data_type": "int32"})

    def _image(self, x: int, shape: tuple[Extent, ...]) -> None:
        n, c, h, w = shape
        of = lambda new: [_Value("float32", tuple(new))]  # noqa: E731
        match self.random.choice(("pool", "resample", "instance")):
            case "pool":
                same = {"window_dimensions": [3, 3], "padding": [1, 1, 1, 1]}
                name = self.random.choice(("average_pool2d", "max_pool2d"))
                self.step(name, (x,), of(shape), lambda _: same)
            case "resample":
                new = (n, c, lambda s: h(s) * 2, lambda s: w(s) * 2)
                if self.small(new):
                    self.step("resample2d", (x,), of(new), lambda _: {"scales": [2, 2]})
            case "instance":
                self.step("instance_normalization", (x,), of(shape), lambda _: {"epsilon": 0.5})

    # -- running ---------------------------------------------------------------------------------
    def build(self, context: MLContext, sizes: Sizes) -> MLGraph:
        """The graph for these sizes, which may be named dimensions. TypeError if an operator
        doesn't accept them."""
        builder = MLGraphBuilder(context)
        made: list[Any] = []
        for i, value in enumerate(self.values[: self.inputs]):
            described = {"data_type": value.data_type, "shape": list(value.at(sizes))}
            made.append(builder.input(f"x{i}", described))
        for operator, operands, arguments in self.steps:
            given = [
                [made[k] for k in o] if isinstance(o, list) else made[o] for o in operands
            ]
            result = getattr(builder, operator)(*given, **arguments(sizes))
            made += result if isinstance(result, list) else [result]
        return builder.build({f"y{i}": made[i] for i in self.outputs}).result()

    def feeds(self, sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, np.ndarray]:
        """Arrays for the inputs of these names."""
        arrays = {}
        for i, value in enumerate(self.values[: self.inputs]):
            if f"x{i}" in names:
                rng = np.random.default_rng((i, *sizes.values()))
                shape = value.at(sizes)
                floats = value.data_type == "float32"
                data = rng.uniform(-2, 2, shape) if floats else rng.integers(-5, 9, shape)
                arrays[f"x{i}"] = data.astype(value.data_type)
        return arrays


def _flat(operands: Any) -> list[int]:
    return [i for o in operands for i in (o if isinstance(o, list) else [o])]


def compare(context: MLContext, seed: int) -> int:
    """Compares one graph for a few shapes; returns for how many."""
    graph, pick, compared = ShapedGraph(seed), random.Random(seed), 0
    if not graph.outputs:
        return 0
    least = pick.randint(0, 1)
    dimensions = {name: MLDynamicDimension(name, size, least) for name, size in MAX.items()}
    try:
        shaped = graph.build(context, dimensions)
    except TypeError as error:
        assert "no input that an output depends on" in str(error)
        return 0
    with shaped:
        for _ in range(4):
            sizes = {name: pick.choice((least, pick.randint(1, m), m)) for name, m in MAX.items()}
            given_ = graph.feeds(sizes, list(shaped.inputs))
            try:
                static = graph.build(context, sizes)
            except TypeError as error:
                # Of nothing some operators have no result; then both say so.
                try:
                    context.compute(shaped, given_)
                except TypeError as refused:
                    said = str(refused)
                else:
                    raise AssertionError(f"{sizes}: the static graph is refused") from error
                # The message has the names of dimensions that aren't 0, and the sizes.
                assert said.split(":")[0] == str(error).split(":")[0]
                continue
            with static:
                wanted = context.compute(static, graph.feeds(sizes, list(static.inputs)))
            shapes = shaped.compute_shapes({name: a.shape for name, a in given_.items()})
            assert shapes == {name: array.shape for name, array in wanted.items()}
            assert_equal(context.compute(shaped, given_), wanted, f"{sizes}")
            compared += 1
    return compared
