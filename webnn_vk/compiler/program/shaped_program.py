"""Programs for many shapes: one traced compilation, and the programs that it stands for.

``compile_for`` compiles a graph whose shapes are sizes of a trace (``types.sizes``). The result is
valid for all sizes for which the trace's guards hold: ``ShapedProgram.at`` checks them and fills in
the numbers. Kernels, steps, barriers and places in memory are the same for all of them; bounds of
the sizes decide how far slots lie apart.
"""

from __future__ import annotations

import operator
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

from ..ir import Graph, Value
from ..ir.emit import make_node
from ..kernels.lower import PACK
from ..passes import require_result
from ..passes.pipeline import Target
from ..passes.rewrite import Substitution
from ..types.data_types import MLOperandDescriptor, empty_dimensions
from ..types.expressions import Values
from ..types.sizes import Size, Trace, sizes_in, symbolic
from .compile import compile_program
from .constants import Constants
from .make_report import with_report
from .program import (
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Program,
    Range,
    RepeatStep,
    Slot,
)
from .symbolic import SizedParams

#: Fills in the numbers of a shape, given all of them.
Fill = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, eq=False)
class ShapedGraph:
    """A graph with named dimensions as the builder collected it."""

    graph: Graph

    @property
    def trace(self) -> Trace:
        """The builder's trace."""
        return next(_sizes(self.graph)).trace

    def check_names(self, what: str) -> None:
        """TypeError if a dimension that the graph, or a condition of it, needs belongs to no input.
        """
        shapes = [value.shape for value in self.graph.inputs.values()]
        known = {str(size) for size in sizes_in(shapes)}
        needed = [size.terms for size in _sizes(self.graph)]
        if needed and self.trace.folds:
            needed += self.trace.decided.terms()
        for terms in needed:
            if missing := sorted(self.trace.expressions.names_in(terms) - known):
                raise TypeError(
                    f"{what}: no input that an output depends on has the dimension "
                    f"{sanitize(missing[0])!r} itself"
                )

    def described(self) -> Graph:
        """The graph in a trace of its own, for exports."""
        trace = Trace(self.trace.expressions, self.trace.examples)
        with empty_dimensions():
            return self.at(trace)

    def at(self, trace: Trace, max_byte_length: int | None = None) -> Graph:
        """The graph in another trace: each operator validates and infers its shapes again.
        TypeError, with operator and ``[label]``, where one doesn't accept them."""
        return self._with(lambda size: trace.size(size.terms), max_byte_length)

    def at_example(self, sizes: Sequence[int], max_byte_length: int | None = None) -> Graph:
        """The graph for exactly these sizes, in the order of the names. TypeError as ``at``."""
        value = self.trace.expressions.values(sizes)
        with empty_dimensions():
            return self._with(lambda size: value(size.terms), max_byte_length)

    def within(self, sizes: Mapping[str, Any], max_byte_length: int | None) -> ShapedGraph:
        """The graph for sizes of the named dimensions: numbers, or sizes of another trace.
        TypeError as ``at``."""
        expressions, known = self.trace.expressions, {}

        def change(size: Size) -> Any:
            return expressions.value(size.terms, sizes, known)

        return ShapedGraph(self._with(change, max_byte_length))

    def _with(
        self, change: Callable[[Size], Any], max_byte_length: int | None = None
    ) -> Graph:
        def moved(value: Any, what: str) -> Any:
            try:
                return symbolic(value, change)
            except ZeroDivisionError:
                divided = ", ".join(map(str, sizes_in(value)))
                raise TypeError(f"{what}: a division by zero in {divided}") from None

        values: dict[Value, Value] = {}

        def current(value: Value) -> Value:
            return values.get(value, value)

        inputs = {}
        for name, value in self.graph.inputs.items():
            shape = moved(value.shape, f"input {sanitize(name)!r}")
            described = MLOperandDescriptor(value.data_type, shape)
            inputs[name] = values[value] = replace(value, descriptor=described)
        nodes = []
        for node in self.graph.nodes:
            made = make_node(
                node.operator, node.gather(current), moved(node.given, node.title), node.label,
                max_byte_length,
            )
            require_result(made)
            values |= zip(node.outputs, made.outputs, strict=True)
            nodes.append(made)
        outputs = {name: values[value] for name, value in self.graph.outputs.items()}
        return replace(self.graph, inputs=inputs, outputs=outputs, nodes=tuple(nodes))


def _sizes(graph: Graph) -> Iterator[Size]:
    """The sizes in the shapes of a graph's inputs and in the arguments of its nodes."""
    yield from sizes_in([value.shape for value in graph.inputs.values()])
    yield from sizes_in([node.given for node in graph.nodes])


def shaped_graph(graph: Graph) -> Graph | ShapedGraph:
    """The graph, as a ``ShapedGraph`` if it has named dimensions."""
    if next(_sizes(graph), None) is None:
        return graph
    # Compilations for several sizes share what is made of a constant.
    own = uuid.uuid4().hex
    keyed = Substitution(
        (value, replace(value, key=value.key or f"{own} {number}"))
        for number, value in enumerate(graph.constants()) if value.data is not None
    )
    return ShapedGraph(keyed.rebuild(graph, map(keyed.apply, graph.nodes)))


class ShapedProgram:
    """A compiled program for all sizes for which the guards of its trace hold."""

    def __init__(self, program: Program, trace: Trace) -> None:
        self._results: dict[Any, int] = {}
        self._terms: list[Any] = []
        # What many steps have in common is filled in once: it follows the numbers, from the end on.
        self._common: dict[Any, int] = {}
        self._fills: list[Fill] = []
        if any(isinstance(s, HostSegment) for s in program.segments) and len(program.slots) and any(
            isinstance(s, DeviceSegment) for s in program.segments
        ):
            # What the CPU computes between dispatches is prepared for one shape.
            for name in trace.examples:
                operator.index(trace.named(name))
        self._fill = self._of(replace(program, compiled=None)) or (lambda _: program)
        self.trace = trace

    def at(self, value: Values) -> Program | None:
        """The program for the sizes that ``value`` stands for; None where a guard doesn't hold."""
        numbers = self.trace.at(value, self._terms)
        if numbers is None:
            return None
        return self._fill([*numbers, *[fill(numbers) for fill in reversed(self._fills)]])

    def holds(self, value: Values) -> bool:
        """Whether the program is valid for these sizes."""
        return self.trace.at(value) is not None

    # -- what depends on sizes -------------------------------------------------------------------
    def _of(self, value: Any) -> Fill | None:
        """Fills in what depends on sizes in a part of a program; None if nothing does."""
        match value:
            case Size():
                return self._number(value)
            case tuple() | list():
                return self._tuple(value)
            case Mapping():
                fill = self._tuple(value.values())
                names = tuple(value)
                return fill and (lambda numbers: dict(zip(names, fill(numbers), strict=True)))
            case SizedParams():
                values, pack = self._tuple(value.values), struct.Struct(value.format).pack
                assert values is not None, "parameters without sizes are bytes"
                return self._once(value, lambda numbers: pack(*values(numbers)))
            case Range() | MLOperandDescriptor():
                return self._once(value, self._fields(value))
            case _ if isinstance(value, _PARTS):
                return self._fields(value)
        return None

    def _number(self, value: Size) -> Fill:
        index = self._results.get(value.terms)
        if index is None:
            index = self._results[value.terms] = len(self._terms)
            self._terms.append(value.terms)
        return operator.itemgetter(index)

    def _tuple(self, values: Iterable[Any]) -> Fill | None:
        values = tuple(values)
        parts = [(i, fill) for i, fill in enumerate(map(self._of, values)) if fill is not None]
        if not parts:
            return None

        def fill(numbers: Sequence[Any]) -> Any:
            filled = list(values)
            for index, part in parts:
                filled[index] = part(numbers)
            return tuple(filled)

        return fill

    def _once(self, value: Any, fill: Fill | None) -> Fill | None:
        """The same for what needs no other common part, filled in once for equal values."""
        if fill is None:
            return None
        index = self._common.setdefault(_key(value), len(self._fills))
        if index == len(self._fills):
            self._fills.append(fill)
        return operator.itemgetter(-1 - index)

    def _fields(self, made: Any) -> Fill | None:
        """The same for a dataclass."""
        kind, fixed = type(made), dict(vars(made))
        fills = ((f.name, self._of(fixed[f.name])) for f in fields(made))
        needed = [(name, fill) for name, fill in fills if fill is not None]
        if not needed:
            return None

        def fill(numbers: Sequence[Any]) -> Any:
            # Neither checks nor __init__: the numbers are plain, and there are many steps.
            filled = object.__new__(kind)
            known = filled.__dict__
            known.update(fixed)
            for name, part in needed:
                known[name] = part(numbers)
            return filled

        return fill


#: The dataclasses in which sizes may be, beside those that are filled in once.
_PARTS = (
    Program, Slot, DeviceSegment, HostSegment, DispatchStep, CopyStep, RepeatStep, CpuStep,
    CpuTensor,
)


def _key(value: Any) -> Any:
    """A key of a value, which differs between expressions even if their examples are equal."""
    match value:
        case Size():
            return "size", value.terms
        case tuple():
            return tuple(map(_key, value))
        case Range() | MLOperandDescriptor() | SizedParams():
            return type(value), *(_key(getattr(value, f.name)) for f in fields(value))
    return type(value), value


def compile_for(
    shaped: ShapedGraph, target: Target, sizes: Sequence[int], max_byte_length: int | None
) -> tuple[ShapedProgram, Program, Constants]:
    """A program for all sizes that are like these, the program for exactly these, and the
    constants. TypeError where an operator doesn't accept the sizes; otherwise as
    ``compile_program``."""
    names = shaped.trace.expressions.bounds
    trace = Trace(shaped.trace.expressions, dict(zip(names, sizes, strict=True)))
    try:
        with empty_dimensions():
            graph = shaped.at(trace, max_byte_length)
    except TypeError:
        shaped.at_example(sizes, max_byte_length)  # the same error, with numbers
        raise
    # What one schedule reads packed another may read as it is, which would be a second copy.
    target = replace(target, skip={*target.skip, PACK.name})
    program, constants = compile_program(graph, target)
    many = ShapedProgram(program, trace)
    example = many.at(trace.value)
    assert example is not None, "guards hold for the sizes that they come from"
    report = with_report(example, program.report.folded).report
    seconds = program.report.build_seconds
    return many, replace(example, report=replace(report, build_seconds=seconds)), constants
