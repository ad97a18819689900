"""Random chains of element-wise operators over all data types, with several outputs and
broadcasting, through moves, reductions and products: graphs that fusion turns into kernels. As
data, `RandomGraph`.

Values are exact or soft. Exact values, of any size, have to equal the reference bit for bit: they
are only operands of operators that round correctly. Soft values are floats of a few units, or NaN,
from functions that have rounding errors, and are only operands of smooth operators. A soft value is
never compared: rounding could change the result of the comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.conformance.differential.graphs import RandomGraph, Step, assert_equal
from webnn_vk.compiler.types.broadcasting import broadcast_shapes
from webnn_vk.compiler.types.data_types import ALL_TYPES

FLOATS = ("float32", "float16")
_SIGNED = (*FLOATS, "int64", "int32", "int8")
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33)
_LARGEST = 5000
_COMPARISONS = ("equal", "not_equal", "greater", "greater_or_equal", "lesser", "lesser_or_equal")
_SOFT = ("tanh", "sigmoid", "erf", "softsign")
#: Smooth if their operand is within a few units.
_SOFT_OF_BOUNDED = (
    "sin", "cos", "exp", "gelu", "elu", "softplus", "hard_swish", "hard_sigmoid", "leaky_relu",
)
#: Smooth for a positive operand.
_SOFT_OF_POSITIVE = ("log", "sqrt", "reciprocal")
_MADE_SOFT = frozenset((*_SOFT, *_SOFT_OF_BOUNDED, *_SOFT_OF_POSITIVE))


class _Making:
    """A graph being drawn by ``choose``, from a sequence of options. ``portable``: without
    operations that other libraries define differently: quotients of integers by zero, casts of
    values that don't fit, signs and extremes of values that may be NaN."""

    def __init__(self, choose: Callable[[Sequence[Any]], Any], portable: bool) -> None:
        self.choose = choose
        self.portable = portable
        self.shapes: list[tuple[int, ...]] = []
        self.types: list[str] = []
        self.soft: list[bool] = []
        self.sources: list[np.ndarray] = []
        self.steps: list[Step] = []

    def chance(self, one_in: int) -> bool:
        return not self.choose(range(one_in))

    def _value(self, data_type: str, shape: tuple[int, ...], soft: bool = False) -> int:
        self.types.append(data_type)
        self.shapes.append(shape)
        self.soft.append(soft)
        return len(self.types) - 1

    def source(self, data_type: str, shape: tuple[int, ...]) -> int:
        rng = np.random.default_rng(self.choose(range(2**16)))
        data = np.asarray(rng.integers(0 if data_type[0] == "u" else -6, 9, shape))
        special = rng.random(shape) < 0.2 if self.chance(2) else np.zeros(shape, bool)
        if data_type in FLOATS:
            ends = [np.inf, -np.inf, np.nan, float(np.finfo(data_type).max), -1000.5]
            data = data * 0.5
        else:
            limits = np.iinfo(data_type)
            ends = [limits.min, limits.max, limits.max - 1, 100]
        largest = rng.choice(np.array(ends, data_type), shape)
        data = np.where(special, largest, data.astype(data_type))
        self.sources.append(np.asarray(data, data_type))
        return self._value(data_type, shape)

    def step(
        self, operator: str, operands: Sequence[int], data_type: str, shape: tuple[int, ...], /,
        soft: bool = False, **arguments: Any,
    ) -> int:
        self.steps.append(Step(operator, tuple(operands), arguments))
        return self._value(data_type, shape, soft)

    def like(self, operator: str, x: int, /, soft: bool | None = None, **arguments: Any) -> int:
        """An operator of one operand, whose result has its shape and data type."""
        soft = self.soft[x] if soft is None else soft
        return self.step(operator, (x,), self.types[x], self.shapes[x], soft=soft, **arguments)

    def partner(self, x: int, *, soft: bool | None = None) -> int:
        """A value of the same type that broadcasts with another; if there is none, the value
        itself."""
        soft = self.soft[x] if soft is None else soft
        return self.choose([
            y for y in range(len(self.types))
            if self.types[y] == self.types[x] and self.soft[y] == soft
            and broadcast_shapes(self.shapes[x], self.shapes[y]) is not None
        ] or [x])

    def joint(self, x: int, y: int) -> tuple[int, ...]:
        shape = broadcast_shapes(self.shapes[x], self.shapes[y])
        assert shape is not None
        return tuple(shape)

    # -- one more step
    def grow(self) -> None:
        # Recent values more often: this makes chains.
        count = len(self.types)
        x = self.choose(range(max(0, count - 4), count)) if self.chance(2) else self.choose(
            range(count))
        kind = self.choose((
            "unary", "unary", "binary", "binary", "binary", "compare", "select", "select", "cast",
            "move", "soften", "kernel",
        ))
        getattr(self, f"_{kind}")(x)

    def _unary(self, x: int) -> None:
        data_type = self.types[x]
        names = ["clamp"]
        if data_type in _SIGNED:
            names += ["abs", "neg", "relu"]
            if not self.soft[x] and not (self.portable and data_type in FLOATS):
                names.append("sign")
        if data_type in FLOATS and not self.soft[x]:
            names += ["ceil", "floor", "round_even"]
        if data_type == "uint8" and not self.portable:
            names += ["logical_not"]
        name = self.choose(names)
        if name == "clamp":
            low, high = self.choose(((0, 3), (1, 100), (2, 2)))
            self.like("clamp", x, min_value=low, max_value=high)
        else:
            self.like(name, x)

    def _binary(self, x: int) -> None:
        y, data_type = self.partner(x), self.types[x]
        if self.soft[x]:
            made = self.step(
                self.choose(("add", "sub", "mul", "max", "min")), (x, y), data_type,
                self.joint(x, y), soft=True,
            )
            self.like("clamp", made, min_value=-4, max_value=4)
            return
        names = ["add", "sub", "mul", "max", "min", "div"]
        if data_type in _SIGNED:
            names.append("prelu")
        if data_type == "uint8":
            names += ["logical_and", "logical_or", "logical_xor"]
        name = self.choose(names)
        if name == "div" and (self.portable or data_type in FLOATS):
            # The sign of a zero may differ.
            y = self.like("clamp", y, min_value=1, max_value=9)
        if name == "prelu" and broadcast_shapes(self.shapes[x], self.shapes[y]) != self.shapes[x]:
            x = y
        self.step(name, (x, y), data_type, self.joint(x, y))

    def _compare(self, x: int) -> None:
        if self.soft[x]:
            return
        if self.types[x] in FLOATS and self.chance(4):
            name = self.choose(("is_nan", "is_infinite"))
            self.step(name, (x,), "uint8", self.shapes[x])
            return
        y = self.partner(x)
        self.step(self.choose(_COMPARISONS), (x, y), "uint8", self.joint(x, y))

    def _select(self, x: int) -> None:
        y = self.partner(x)
        shape = self.joint(x, y)
        conditions = [
            c for c, data_type in enumerate(self.types)
            if data_type == "uint8" and broadcast_shapes(shape, self.shapes[c]) is not None
        ]
        if conditions:
            c = self.choose(conditions)
            shape = tuple(broadcast_shapes(shape, self.shapes[c]) or ())
            self.step("where", (c, x, y), self.types[x], shape, soft=self.soft[x])

    def _cast(self, x: int) -> None:
        if self.soft[x]:
            return
        target = self.choose(ALL_TYPES)
        floats = self.types[x] in FLOATS
        if (target in FLOATS) != floats and (self.portable or not floats):
            # Casts of large integers may differ by a rounding.
            if floats:
                nan = self.step("is_nan", (x,), "uint8", self.shapes[x])
                one = self.step("cast", (nan,), self.types[x], self.shapes[x],
                                data_type=self.types[x])
                x = self.step("where", (nan, one, x), self.types[x], self.shapes[x])
            low = 0 if "u" in target or self.types[x][0] == "u" else -100
            x = self.like("clamp", x, min_value=low, max_value=100)
        self.step("cast", (x,), target, self.shapes[x], data_type=target)

    def _soften(self, x: int) -> None:
        if self.types[x] not in FLOATS:
            return
        kind = self.choose((_SOFT, _SOFT_OF_BOUNDED, _SOFT_OF_POSITIVE))
        if kind is not _SOFT:
            low = 0.5 if kind is _SOFT_OF_POSITIVE else -2
            x = self.like("clamp", x, min_value=low, max_value=2)
        self.like(self.choose(kind), x, soft=True)

    def _move(self, x: int) -> None:
        shape, data_type, soft = self.shapes[x], self.types[x], self.soft[x]
        if not shape:
            return
        match self.choose(("transpose", "reverse", "slice", "reshape", "concat")):
            case "transpose":
                self.step("transpose", (x,), data_type, shape[::-1], soft=soft)
            case "reverse":
                self.like("reverse", x, axes=[len(shape) - 1])
            case "slice":
                sizes = tuple(max(1, d - 1) for d in shape)
                starts = [d - s for d, s in zip(shape, sizes, strict=True)]
                self.step("slice", (x,), data_type, sizes, soft=soft, starts=starts, sizes=sizes)
            case "reshape":
                flat = (int(np.prod(shape)),)
                self.step("reshape", (x,), data_type, flat, soft=soft, new_shape=flat)
            case "concat":
                joined = (2 * shape[0], *shape[1:])
                self.steps.append(Step("concat", ((x, self._same(x)),), {"axis": 0}))
                self._value(data_type, joined, soft)

    def _same(self, x: int) -> int:
        """A value of the same type and shape."""
        about = (self.types[x], self.shapes[x], self.soft[x])
        described = zip(self.types, self.shapes, self.soft, strict=True)
        return self.choose([y for y, each in enumerate(described) if each == about])

    def _kernel(self, x: int) -> None:
        """Kernels of other families, which chains join."""
        shape, data_type = self.shapes[x], self.types[x]
        if not shape:
            return
        axis = self.choose(range(len(shape)))
        kept = (*shape[:axis], 1, *shape[axis + 1:])
        if not self.soft[x]:
            if not (self.portable and data_type in FLOATS):
                name = self.choose(("reduce_max", "reduce_min"))
                self.step(name, (x,), data_type, kept, axes=[axis], keep_dimensions=True)
            return
        match self.choose(("softmax", "layer_normalization", "reduce_mean", "matmul")):
            case "softmax":
                self.like("softmax", x, axis=axis)
            case "layer_normalization":
                # A large epsilon: rows of equal elements would magnify roundings.
                self.like("layer_normalization", x, axes=[axis], epsilon=0.5)
            case "reduce_mean":
                self.step("reduce_mean", (x,), data_type, kept, soft=True, axes=[axis],
                          keep_dimensions=True)
            case "matmul" if len(shape) == 2:
                turned = self.step("transpose", (x,), data_type, shape[::-1], soft=True)
                made = self.step("matmul", (x, turned), data_type, (shape[0], shape[0]), soft=True)
                self.like("clamp", made, min_value=-4, max_value=4)


def make(choose: Callable[[Sequence[Any]], Any], portable: bool = False) -> RandomGraph:
    """A graph of about 2 to 14 steps."""
    making = _Making(choose, portable)
    rank = choose((0, 1, 1, 2, 2, 2, 3, 4))
    while True:
        target = tuple(choose(_SIZES) for _ in range(rank))
        if np.prod(target) <= _LARGEST:
            break
    types = [choose(ALL_TYPES) for _ in range(choose((1, 1, 2, 3)))]
    for data_type in types:
        making.source(data_type, target)
        for _ in range(choose((1, 2))):
            kept = tuple(d if choose((True, True, False)) else 1 for d in target)
            making.source(data_type, kept[choose(range(len(kept) + 1)):] if choose((
                False, False, True)) else kept)
    count = len(making.sources)
    for _ in range(choose(range(2, 15))):
        making.grow()
        if max(np.prod(shape) for shape in making.shapes) > _LARGEST:
            break
    if len(making.types) == count:
        making.like("clamp", 0, min_value=0, max_value=3)
    made = range(count, len(making.types))
    used: set[int] = set().union(*(step.reads() for step in making.steps))
    outputs = [i for i in made if i not in used or not choose(range(3))]
    constant = frozenset(i for i in range(1, count) if not choose(range(6)))
    return RandomGraph(tuple(making.sources), constant, tuple(making.steps), tuple(outputs))


def exact_outputs(graph: RandomGraph) -> set[str]:
    """Names of the outputs that depend on no soft value."""
    soft: set[int] = set()
    made = len(graph.sources)
    for step in graph.steps:
        if step.operator in _MADE_SOFT or (
            step.reads() & soft and step.operator not in _COMPARISONS
        ):
            soft.add(made)
        made += step.results
    return {f"y{i}" for i in graph.outputs if i not in soft}


def difference(
    graph: RandomGraph, got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]
) -> str | None:
    """The difference between two results of a graph: exact outputs by any bit of a number, soft
    ones by more than roundings. None if they agree."""
    try:
        assert_equal(got, wanted)
        for name in exact_outputs(graph):
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    except AssertionError as error:
        return str(error)
    return None


@st.composite
def chains(draw: Callable[[Any], Any], portable: bool = False) -> RandomGraph:
    """Random chains, as hypothesis draws and shrinks them."""
    return make(lambda options: draw(st.sampled_from(options)), portable)
