"""Graphs with named dimensions (webnn#883): the executables of one graph for many shapes.

A graph is compiled for some sizes when it is built. Each compilation is valid for all sizes for
which its guards hold (``compiler.program.shaped_program``), so that a shape usually needs no
compilation: its program is the compiled one with other numbers. Sizes for which no guards hold are
compiled at their first dispatch, which waits for it.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.compiler.types.dimensions import shown_dimension
from webnn_vk.compiler.types.expressions import Values
from webnn_vk.compiler.types.sizes import Size
from webnn_vk.runtime.context_state import ContextState
from webnn_vk.runtime.work import Executable
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize

if TYPE_CHECKING:
    from webnn_vk.compiler.program.shaped_program import ShapedGraph, ShapedProgram

#: Shapes whose executables, with their recorded commands, a graph keeps.
MAX_SHAPES = 64
#: Sizes of a dimension for which a graph is compiled when it is built: the largest, and smaller
#: ones at this distance.
_RATIO = 8
#: At most this many compilations when a graph is built, and for one graph at all.
_BUILT, _MOST = 12, 64

#: Compiles and sets up the graph for some sizes. The second argument is another executable of the
#: graph, if there is one.
Compile = Callable[[Sequence[int], Executable | None], "tuple[ShapedProgram, Executable]"]


@dataclass(frozen=True, eq=False)
class _Compiled:
    many: ShapedProgram
    executable: Executable
    sizes: tuple[int, ...]


class ShapedExecutables:
    """The executables of a graph with named dimensions, by the sizes of these."""

    def __init__(
        self, shaped: ShapedGraph, state: ContextState, compile: Compile, in_place: bool
    ) -> None:
        graph = shaped.graph
        self.inputs = {name: value.descriptor for name, value in graph.inputs.items()}
        self.outputs = {name: value.descriptor for name, value in graph.outputs.items()}
        self._trace = shaped.trace
        expressions = self._trace.expressions
        self.names: tuple[str, ...] = tuple(expressions.bounds)
        self._bounds = tuple(expressions.bounds.values())
        self._compile, self._values = compile, expressions.values
        self._compiled: list[_Compiled] = []
        self._executables: OrderedDict[tuple[int, ...], Executable] = OrderedDict()
        self.shaped, self._state = shaped, state
        #: Copies of donated inputs are refused.
        self.in_place = in_place
        # Only acquired on worker threads: a signal handler may dispatch in the main thread.
        self._lock = threading.Lock()
        axes = [
            (name, axis, size) for name, descriptor in self.inputs.items()
            for axis, size in enumerate(descriptor.shape)
        ]
        # Where each name's size is read: input and axis.
        self._places = {
            str(size): (name, axis) for name, axis, size in reversed(axes)
            if isinstance(size, Size) and str(size) in self.names
        }
        # All other axes. Each dispatch checks them: sizes that need no computation have the number
        # of their name.
        numbers = {name: number for number, name in enumerate(self.names)}
        self._checks = [
            (name, axis, size, numbers.get(str(size)) if isinstance(size, Size) else None)
            for name, axis, size in axes if (name, axis) not in self._places.values()
        ]

    def build(self) -> Executable:
        """Compile for some sizes; returns the executable for the largest."""
        refused = None
        for sizes in itertools.islice(filter(self.admits, self._typical()), 64):
            if len(self._compiled) >= _BUILT:
                break
            value = self._values(sizes)
            if any(c.many.holds(value) and c.many.trace.suits(value) for c in self._compiled):
                continue
            try:
                self._add(sizes)
            except TypeError as error:
                # Sizes that an operator doesn't accept are refused at dispatch.
                refused = refused or error
        if not self._compiled:
            assert refused is not None
            raise refused
        return self._compiled[0].executable

    def _typical(self) -> Iterator[tuple[int, ...]]:
        """Sizes for which the graph is compiled when it is built: the largest, then the ends of all
        bounds, where dimensions of size 1 vanish and rows are no whole vectors, equal sizes, and
        sizes in between."""
        ends, ladders = [], []
        for low, high in self._bounds:
            least = max(low, 1)
            ends.append([size for size in dict.fromkeys((high, high - 1, least)) if size >= low])
            sizes, size = [], high
            while size > least:
                sizes += [size, *([size - 1] if size - 1 > least else [])]
                size //= _RATIO
            ladders.append(sizes or [high])
        # Sizes that are equal are told apart from others.
        same = min(high for _, high in self._bounds)
        equal = [
            (size,) * len(ends) for size in (same, same - 1)
            if all(max(low, 1) <= size for low, _ in self._bounds)
        ]
        between = sorted(itertools.product(*ladders), reverse=True)
        # Conditions of the builder hold for its examples at least.
        examples = self._trace.examples
        between.append(tuple(examples.get(name, 0) for name in self.names))
        yield from dict.fromkeys((*itertools.product(*ends), *equal, *between))

    def sizes_of(self, shapes: Mapping[str, Sequence[int]], what: str) -> tuple[int, ...]:
        """The sizes of the named dimensions, from the inputs' shapes. TypeError where these
        contradict each other or the graph."""
        for name, descriptor in self.inputs.items():
            if len(shapes[name]) != descriptor.rank:
                raise TypeError(
                    f"{what}: input {sanitize(name)!r} has shape {list(shapes[name])}, "
                    f"{descriptor} is expected"
                )
        sizes = []
        for name, (low, high) in zip(self.names, self._bounds, strict=True):
            place = self._places.get(name)
            size = low if place is None else shapes[place[0]][place[1]]
            if not low <= size <= high:
                raise TypeError(
                    f"{what}: dimension {sanitize(name)!r} is {size}; {low} … {high} are accepted"
                )
            sizes.append(size)
        value: Values | None = None
        for name, axis, size, number in self._checks:
            wanted = size
            if number is not None:
                wanted = sizes[number]
            elif isinstance(size, Size):
                value = value or self._values(sizes)
                try:
                    wanted = value(size.terms)
                except ZeroDivisionError:
                    wanted = "a division by zero"
            if shapes[name][axis] != wanted:
                given = ", ".join(f"{n} {s}" for n, s in zip(self.names, sizes, strict=True))
                raise TypeError(
                    f"{what}: input {sanitize(name)!r} has shape {list(shapes[name])}; dimension "
                    f"{axis}, {size}, is {wanted} for {given}"
                )
        if not self.admits(sizes):
            given = ", ".join(f"{n} {s}" for n, s in zip(self.names, sizes, strict=True))
            guards = "; ".join(self._trace.guards)
            raise TypeError(f"{what}: the graph is not for {given}; its conditions are {guards}")
        return tuple(sizes)

    def admits(self, sizes: Sequence[int]) -> bool:
        """Whether sizes within the bounds agree with what was decided in the builder."""
        trace = self._trace
        return not trace.folds or trace.at(self._values(sizes)) is not None

    def at(self, sizes: tuple[int, ...]) -> Executable:
        """The executable for these sizes. TypeError, with operator and ``[label]``, where an
        operator doesn't accept them; otherwise the errors that a build rejects with."""
        found = self._executables.get(sizes)
        return background.run_on_worker(self._find, sizes) if found is None else found

    def modules(self) -> dict[Any, bytes]:
        """The SPIR-V of all kernels so far."""
        return {
            spec: made.executable.modules[spec]
            for made in list(self._compiled) for spec in made.executable.program.kernels
        }

    def _find(self, sizes: tuple[int, ...]) -> Executable:
        with self._state.noticing_loss(), self._state.timeline.building(), self._lock:
            found = self._executables.get(sizes)
            if found is None:
                found = self._made(sizes)
                self._executables[sizes] = found
                if len(self._executables) > MAX_SHAPES:
                    self._executables.popitem(last=False)
            return found

    def _made(self, sizes: tuple[int, ...]) -> Executable:
        value = self._values(sizes)
        usable = [c for c in self._compiled if c.many.holds(value)]
        suited = [c for c in usable if c.many.trace.suits(value)]
        if not usable:
            return self._add(sizes)
        best = min(suited or usable, key=lambda c: _distance(c.sizes, sizes))
        program = best.many.at(value)
        assert program is not None, "its guards hold"
        return best.executable.at(program, self._state.stream)

    def _add(self, sizes: tuple[int, ...]) -> Executable:
        # The last one has the largest memory for intermediates.
        last = self._compiled[-1].executable if self._compiled else None
        with self._naming(sizes):
            many, executable = self._compile(sizes, last)
        if len(self._compiled) >= _MOST:
            del self._compiled[1]  # the first is of the largest sizes
        self._compiled.append(_Compiled(many, executable, sizes))
        return executable

    @contextmanager
    def _naming(self, sizes: Sequence[int]) -> Iterator[None]:
        """Adds the sizes to an operator's TypeError, which has the names of dimensions."""
        try:
            yield
        except TypeError as error:
            given = ", ".join(f"{n} {s}" for n, s in zip(self.names, sizes, strict=True))
            raise TypeError(f"{error} (with {given})") from None

    def shapes_of(self, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes for these sizes, without compiling."""
        for compiled in self._compiled:
            program = compiled.many.at(self._values(sizes))
            if program is not None:
                return {name: d.shape for name, d in program.outputs.items()}
        limit = self._state.device.max_tensor_byte_length
        with self._naming(sizes):
            outputs = self.shaped.at_example(sizes, limit).outputs
        return {name: value.shape for name, value in outputs.items()}


def _distance(a: Sequence[int], b: Sequence[int]) -> float:
    """How much two sizes differ: the largest ratio."""
    return max((max(x, y) / max(1, min(x, y)) for x, y in zip(a, b, strict=True)), default=1)


def shown(descriptor: MLOperandDescriptor) -> MLOperandDescriptor:
    """A descriptor for users."""
    shape = tuple(map(shown_dimension, descriptor.shape))
    return MLOperandDescriptor(descriptor.data_type, shape)
