"""Definitions that a graph uses like operators (webnn#907), conditions and loops (webnn#559)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.program.shaped_program import ShapedGraph
from webnn_vk.compiler.types.data_types import (
    MLOperandDescriptor,
    empty_dimensions,
    entries,
    items,
    shown,
    to_u32,
)
from webnn_vk.compiler.types.dimensions import known_number, shown_dimension
from webnn_vk.compiler.types.sizes import Size, alike
from webnn_vk.support.errors import sanitize
from webnn_vk.support.experimental import require_experimental
from webnn_vk.support.mixins import OneOfAKind, PublicDir
from webnn_vk.support.promise import kind_of

from .loops import loop_over
from .shaped_executables import shown as shown_shape

#: The most iterations of a loop: each is recorded.
MAX_ITERATIONS = 2**14
_NUMBERS = ("int32", "uint32", "int64", "uint64")


class MLSubgraph(PublicDir, OneOfAKind):
    """A definition made by ``builder.build_subgraph`` (experimental), for all builders of the
    context."""

    def __init__(self, context: Any, graph: ShapedGraph) -> None:
        self._context = context
        self._shaped = graph
        self._graph = graph.graph

    @property
    def inputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every input."""
        return {name: shown_shape(value.descriptor) for name, value in self._graph.inputs.items()}

    @property
    def outputs(self) -> dict[str, MLOperandDescriptor]:
        """Name → descriptor of every output."""
        return {name: shown_shape(value.descriptor) for name, value in self._graph.outputs.items()}

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{sanitize(name)!r}: {d}" for name, d in described.items())
            for described in (self.inputs, self.outputs)
        )
        return f"<MLSubgraph ({inputs}) → ({outputs})>"


class Subgraphs:
    """The builder's methods for definitions, conditions and loops."""

    __slots__ = ()

    def build_subgraph(self, outputs: Mapping[str, Any]) -> MLSubgraph:
        """A definition that computes ``outputs``, name → operand, for ``subgraph``, ``cond`` and
        ``loop`` (extension, webnn#907; needs experimental "subgraph"). Its inputs are the
        builder's inputs that the outputs depend on. Where they have named dimensions, each use
        gives these its operands' sizes. The builder remains usable. Returns at once.
        Raises TypeError as ``build`` rejects with it."""
        return _define(self, outputs)

    def subgraph(
        self, definition: MLSubgraph, operands: Mapping[str, Any], *, label: str = ""
    ) -> dict[str, Any]:
        """The outputs of a definition, name → operand, for ``operands`` in the place of its inputs,
        name → operand of the same data type and shape (extension, webnn#907; needs experimental
        "subgraph"). A named dimension takes an operand's size, known or named, within its bounds.
        The compiler sees the definition's operators, and fuses those that it has a kernel for.
        Labels inside begin with ``label``. Returns at once. Raises TypeError for missing, unknown
        or mismatched operands and definitions of another context."""
        return Inliner(self, "subgraph", label).inline(definition, operands)

    def cond(
        self, predicate: Any, then: MLSubgraph, otherwise: MLSubgraph,
        operands: Mapping[str, Any], *, label: str = "",
    ) -> dict[str, Any]:
        """The outputs of ``then`` where ``predicate``, a uint8 scalar or one-element tensor, is not
        0, else the outputs of ``otherwise`` (extension, webnn#559; needs experimental "subgraph").
        Both definitions are computed and the outputs chosen, unless the predicate is a constant: no
        value comes back to the host. ``operands`` are the inputs of either definition, whose
        outputs have the same names, data types and shapes. Returns at once. Raises TypeError
        for others."""
        return Inliner(self, "cond", label).cond(predicate, then, otherwise, operands)

    def loop(
        self, body: MLSubgraph, count: int, operands: Mapping[str, Any], *,
        scan: Sequence[str] = (), iteration: str | None = None, condition: str | None = None,
        label: str = "",
    ) -> dict[str, Any]:
        """``body`` repeated ``count`` times in one submit (extension, webnn#559; needs experimental
        "subgraph").

        An output of the body with the name of an input is passed to that input of the next
        iteration; the result is its last value. The other outputs are stacked along a new first
        axis of ``count``. Inputs in ``scan`` get the operand's item of each iteration along the
        first axis, which has ``count`` of them. The input ``iteration``, a scalar of 32-bit
        or 64-bit integers, is the iteration's number from 0. ``condition`` names an output, a uint8
        scalar or one-element tensor: after an iteration where it is 0, passed values stay as they
        are. The iterations are computed all the same, so that nothing comes back to the host;
        outputs can't be stacked then. Returns at once. Raises TypeError for what does not fit."""
        return Inliner(self, "loop", label).loop(body, count, operands, scan, iteration, condition)


def _define(builder: Any, outputs: Mapping[str, Any]) -> MLSubgraph:
    what = "build_subgraph"
    require_experimental(builder._experimental, "subgraph", what)
    graph = builder._graph(outputs, what=what)
    builder._defined.update(graph.inputs.values())
    shaped = ShapedGraph(graph)
    shaped.check_names(what)
    return MLSubgraph(builder._context, shaped)


class Inliner:
    """Adds the nodes of definitions to a builder. ``operator`` and ``label`` begin messages."""

    def __init__(self, builder: Any, operator: str, label: str) -> None:
        self.builder = builder
        if not isinstance(label, str):
            raise TypeError(f"{operator}: the label has to be a str, not {kind_of(label)}")
        self.label = label
        self.what = f"{operator} [{sanitize(label)}]" if label else operator
        require_experimental(builder._experimental, "subgraph", self.what)
        builder._check_can_build(self.what)

    # -- the three calls ----------------------------------------------------------------------
    def inline(
        self, definition: MLSubgraph, operands: Mapping[str, Any], prefix: str = ""
    ) -> dict[str, Any]:
        """The definition's outputs; ``prefix`` follows the label in labels inside."""
        known = self._definition(definition, "definition")
        given = self._operands(operands)
        self._names(given, known.graph.inputs)
        return self._add(self._fitted(known, given), given, prefix)

    def cond(
        self, predicate: Any, then: MLSubgraph, otherwise: MLSubgraph,
        operands: Mapping[str, Any],
    ) -> dict[str, Any]:
        known = [self._definition(then, "then"), self._definition(otherwise, "otherwise")]
        given = self._operands(operands)
        self._names(given, {name for d in known for name in d.graph.inputs})
        chosen, other = (self._fitted(d, given) for d in known)
        self._one_byte("predicate", self.builder._check_own(predicate, f"{self.what}: predicate"))
        results, wanted = (d.graph.outputs for d in (chosen, other))
        if results.keys() != wanted.keys() or not all(
            _equal(value, wanted[name]) for name, value in results.items()
        ):
            self._fail(
                f"then is {then!r}, otherwise is {otherwise!r}; the same names, data types and "
                "shapes of outputs are expected"
            )
        data = predicate._value.data
        if data is not None:
            return self._add(chosen if data.item() else other, given)
        taken, left = self._add(chosen, given, "then"), self._add(other, given, "otherwise")
        return self._select(predicate, taken, left)

    def loop(
        self, body: MLSubgraph, count: int, operands: Mapping[str, Any],
        scan: Sequence[str], iteration: str | None, condition: str | None,
    ) -> dict[str, Any]:
        known = self._definition(body, "body")
        graph, given = known.graph, self._operands(operands)
        what = f"{self.what}: count"
        count = to_u32(known_number(count, what), what)
        if not 0 < count <= MAX_ITERATIONS:
            self._fail(f"{count} iterations; 1 … {MAX_ITERATIONS} are accepted")
        scanned = self._scanned(scan, graph, iteration)
        carried = [name for name in graph.outputs if name in graph.inputs]
        stacked = [name for name in graph.outputs if name not in carried and name != condition]
        self._check_passed(carried, scanned, iteration)
        if condition is not None:
            if condition not in graph.outputs:
                self._fail(f"condition {shown(condition)} is not an output of {body!r}")
            self._one_byte("condition", graph.outputs[condition])
            if stacked:
                self._fail(f"with a condition, outputs {stacked} can't be stacked")
        self._names(given, [name for name in graph.inputs if name != iteration])
        fitted = self._fitted(known, given, {name: (count,) for name in scanned})
        for name in carried:
            is_, expected = (side[name] for side in (fitted.graph.outputs, fitted.graph.inputs))
            self._same(f"output {sanitize(name)!r} of the body", is_, expected.descriptor)
        return self._repeat(fitted, given, count, scanned, iteration, condition, carried, stacked)

    # -- adding nodes -------------------------------------------------------------------------
    def _repeat(
        self, body: ShapedGraph, given: dict[str, Any], count: int, scanned: Sequence[str],
        iteration: str | None, condition: str | None, carried: list[str], stacked: list[str],
    ) -> dict[str, Any]:
        builder, label = self.builder, self.label
        columns = [given[name] for name in scanned]
        # A loop goes over something, and that is the numbers of the iterations where there is
        # nothing else.
        kind = "int32" if iteration is None else body.graph.inputs[iteration].data_type
        numbers = np.arange(count).astype(kind).view(np.uint8)
        columns.append(builder._constant_value(MLOperandDescriptor(kind, (count,)), numbers))
        states = [given[name] for name in carried]
        if condition is not None:
            states.append(builder.constant("uint8", 1))

        def step(now: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
            seen = {**given, **dict(zip(carried, now, strict=False))}
            seen |= dict(zip([*scanned, iteration], slices, strict=True))
            made = self._add(body, seen)
            after = {name: made[name] for name in carried}
            if condition is None:
                return list(after.values()), [made[name] for name in stacked]
            active = now[-1]
            kept = self._select(active, after, {name: seen[name] for name in carried})
            going = builder.reshape(made[condition], [], label=label)
            going = builder.not_equal(going, builder.constant("uint8", 0), label=label)
            return [*kept.values(), builder.logical_and(active, going, label=label)], []

        results = loop_over(builder, step, states, columns, label=label)
        return dict(zip(carried, results, strict=False)) | dict(
            zip(stacked, results[len(states) :], strict=True)
        )

    def _add(
        self, shaped: ShapedGraph, given: Mapping[str, Any], prefix: str = ""
    ) -> dict[str, Any]:
        """The graph's nodes, for the operands in the place of its inputs."""
        builder, graph = self.builder, shaped.graph
        values = {value: given[name]._value for name, value in graph.inputs.items()}
        for node in graph.nodes:
            outputs = tuple(Value(v.descriptor) for v in node.outputs)
            values.update(zip(node.outputs, outputs, strict=True))
            operands = {name: values.get(v, v) for name, v in node.operands.items()}
            label = "/".join(part for part in (self.label, prefix, node.label) if part)
            made = replace(node, operands=operands, outputs=outputs, label=label, origins=())
            builder._nodes.append(made)
        return {
            name: builder._operand(values[v], f"{self.what} output {sanitize(name)!r}")
            for name, v in graph.outputs.items()
        }

    def _select(
        self, flag: Any, taken: Mapping[str, Any], left: Mapping[str, Any]
    ) -> dict[str, Any]:
        scalar = self.builder.reshape(flag, [], label=self.label) if flag.shape else flag
        return {
            name: self.builder.where(scalar, taken[name], left[name], label=self.label)
            for name in taken
        }

    # -- checks -------------------------------------------------------------------------------
    def _fail(self, message: str) -> None:
        raise TypeError(f"{self.what}: {message}")

    def _definition(self, given: Any, name: str) -> ShapedGraph:
        if not isinstance(given, MLSubgraph):
            self._fail(f"{name}: an MLSubgraph is expected, not {kind_of(given)}")
        if given._context is not self.builder._context:
            self._fail(f"{name} {given!r} belongs to another context")
        return given._shaped

    def _fitted(
        self, known: ShapedGraph, given: Mapping[str, Any],
        leading: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> ShapedGraph:
        """A definition for the sizes of the operands; inputs in ``leading`` have these
        dimensions before their own."""
        inputs = known.graph.inputs
        sizes: dict[str, Any] = {}
        for name, value in inputs.items():
            if name not in given:
                continue
            more, shape = leading.get(name, ()), given[name]._descriptor.shape
            if len(more) + len(value.shape) != len(shape):
                described = MLOperandDescriptor(value.data_type, (*more, *value.shape))
                self._same(f"operand {sanitize(name)!r}", given[name], described)
            for wanted, size in zip(value.shape, shape[len(more) :], strict=True):
                if isinstance(wanted, Size) and str(wanted) in known.trace.expressions.bounds:
                    self._within(name, wanted, size)
                    sizes.setdefault(str(wanted), size)
        fitted = known
        if any(isinstance(d, Size) for value in inputs.values() for d in value.shape):
            builder = self.builder
            try:
                with empty_dimensions(builder._has_empty):
                    fitted = known.within(sizes, builder._max_byte_length)
            except TypeError as error:  # of an operator inside
                raise TypeError(f"{self.what}: {error}") from None
        for name, value in fitted.graph.inputs.items():
            if name in given:
                expected = (*leading.get(name, ()), *value.shape)
                described = MLOperandDescriptor(value.data_type, expected)
                self._same(f"operand {sanitize(name)!r}", given[name], described)
        return fitted

    def _within(self, name: str, wanted: Size, size: Any) -> None:
        """Refuse an operand whose size may be outside of a dimension's bounds."""
        accepted, own = shown_dimension(wanted), shown_dimension(size)
        low, high = (own.min_size, own.max_size) if isinstance(size, Size) else (size, size)
        if low < accepted.min_size or high > accepted.max_size:
            has = f"{own} ({low} … {high})" if isinstance(size, Size) else size
            self._fail(
                f"operand {sanitize(name)!r} has {has} elements for dimension {accepted.name!r}; "
                f"{accepted.min_size} … {accepted.max_size} are accepted"
            )

    def _operands(self, given: Any) -> dict[str, Any]:
        named = entries(given, f"{self.what}: a mapping of names to operands is expected")
        return {
            name: self.builder._check_own(operand, f"{self.what}: operand {shown(name)}")
            for name, operand in named.items()
        }

    def _names(self, given: Mapping[str, Any], expected: Mapping[str, Any] | Sequence[str]) -> None:
        if given.keys() != set(expected):
            self._fail(
                f"operands {sorted(map(sanitize, given))} were given, "
                f"{sorted(map(sanitize, expected))} are expected"
            )

    def _same(self, name: str, given: Any, expected: MLOperandDescriptor) -> None:
        is_ = given if isinstance(given, Value) else given._value
        if not _equal(is_, expected):
            self._fail(f"{name} is {is_.descriptor}, {expected} is expected")

    def _one_byte(self, name: str, given: Any) -> None:
        if given.data_type != "uint8" or given.shape not in ((), (1,)):
            is_ = MLOperandDescriptor(given.data_type, given.shape)
            self._fail(f"{name} is {is_}; a uint8 scalar or a tensor of shape [1] is expected")

    def _scanned(self, scan: Any, graph: Graph, iteration: str | None) -> list[str]:
        if isinstance(scan, str):
            self._fail(f"scan: a sequence of names is expected, not {shown(scan)}")
        names = items(scan, f"{self.what}: scan")
        for name in names:
            if name not in graph.inputs:
                self._fail(f"scan: {shown(name)} is not an input of the body")
        if iteration is not None:
            value = graph.inputs.get(iteration)
            if value is None or value.shape or value.data_type not in _NUMBERS:
                self._fail(
                    f"iteration {shown(iteration)} is not a scalar input of the body of type "
                    f"{', '.join(_NUMBERS)}"
                )
        return list(dict.fromkeys(names))

    def _check_passed(
        self, carried: list[str], scanned: Sequence[str], iteration: str | None
    ) -> None:
        for name in carried:
            if name in scanned or name == iteration:
                self._fail(
                    f"output {sanitize(name)!r} of the body can't be passed to an input that is "
                    f"{'scanned' if name in scanned else 'the iteration'}"
                )


def _equal(a: Any, b: Any) -> bool:
    """Whether data types are equal and shapes for all sizes: not by chance."""
    return a.data_type == b.data_type and alike(a.shape, b.shape)
