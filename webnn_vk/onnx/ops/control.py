"""Control flow that is decided at import: If, Loop and Scan with known counts. Few iterations are
unrolled; more are one loop of the compiler's, if all iterations become the same operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from webnn_vk.api.builder import MLOperand
from webnn_vk.api.loops import loop_over

from ..context import NodeContext
from ..errors import NeedsValue, Unsupported, refuse_if
from ..records import onnx_operator
from ..scope import Scope
from ..values import Missing, Tensor, TensorList, Value

#: Iterations that are unrolled at most.
MAX_ITERATIONS = 1024
#: Loops of at least this many iterations are not unrolled. Shorter ones gain from fusion across
#: iterations, and build as fast.
LOOPED_FROM = 8
#: Iterations of a loop at most: each is recorded.
MAX_LOOPED = 1 << 14


def run_graph(c: NodeContext, graph: GraphProto, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a subgraph, in which the names of the graph around are known."""
    names = [v.name for v in graph.input]
    if len(names) != len(inputs):
        raise Unsupported(f"its graph takes {len(names)} inputs, {len(inputs)} are given")
    scope = Scope(c.scope.opsets, parent=c.scope)
    outputs = c.conversion.graph(graph, scope, dict(zip(names, inputs, strict=True)))
    return [outputs[v.name] for v in graph.output]


@onnx_operator("If", raw=True)
def if_else(
    c: NodeContext, condition: Tensor, *, then_branch: GraphProto, else_branch: GraphProto
) -> list[Any]:
    if condition.array is not None:
        branch = then_branch if bool(condition.array.reshape(-1)[0]) else else_branch
        return run_graph(c, branch, [])
    # Both are computed and one is chosen: their shapes have to agree.
    before = len(c.conversion.problems)
    yes, no = (run_graph(c, g, []) for g in (then_branch, else_branch))
    if len(c.conversion.problems) > before:
        del c.conversion.problems[before:]
        raise NeedsValue(condition, "the condition")
    made = []
    for a, b in zip(yes, no, strict=True):
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.type != b.type:
            raise NeedsValue(condition, "the condition of branches of different types")
        if a.shape != b.shape:
            raise NeedsValue(condition, "the condition of branches of different shapes")
        made.append(c.typed(c.b.where(c.reshape(condition, []), a, b), a.type))
    return made


class _Unroll(Exception):
    """Iterations differ: something has to be known in each."""


def _looped(
    c: NodeContext, state: Sequence[Any], scanned: Sequence[tuple[MLOperand, str]],
    backward: Sequence[bool], run: Callable[[list[Any], list[Tensor]], Sequence[Value]],
    first: Sequence[Value],
) -> list[Tensor] | None:
    """The last states, and what is stacked along a new first dimension, by one loop; None if it
    has to be unrolled. ``scanned``: operands with their ONNX types. ``run(states, slices)``
    converts the body. ``first``: its results of the first iteration. If one is known at import,
    others may be too: the next nodes may need them."""
    if not all(isinstance(s, Tensor) for s in state):
        return None
    if not all(isinstance(v, Tensor) and not v.known for v in first):
        return None
    before, types = len(c.conversion.problems), []

    def body(
        states: list[MLOperand], slices: list[MLOperand]
    ) -> tuple[list[MLOperand], list[MLOperand]]:
        results = run(
            [c.typed(o, s.type) for o, s in zip(states, state, strict=True)],
            [c.typed(o, kind) for o, (_, kind) in zip(slices, scanned, strict=True)],
        )
        for given, made in zip(state, results, strict=False):
            if not isinstance(made, Tensor) or (made.type, made.shape) != (given.type, given.shape):
                raise _Unroll
        if not all(isinstance(v, Tensor) for v in results):
            raise _Unroll
        types.extend(v.type for v in results)  # type: ignore[union-attr]
        operands = [v.operand for v in results]  # type: ignore[union-attr]
        return operands[: len(state)], operands[len(state) :]

    try:
        made = loop_over(
            c.conversion.builder, body, [s.operand for s in state], [o for o, _ in scanned],
            backward, c.node.title,
        )
    except _Unroll:
        del c.conversion.problems[before:]
        return None
    return [c.typed(operand, kind) for operand, kind in zip(made, types, strict=True)]


@onnx_operator("Loop", raw=True)
def loop(
    c: NodeContext, count: Tensor | None, condition: Tensor | None, *initial: Any, body: GraphProto
) -> list[Any]:
    limit = MAX_ITERATIONS if count is None else c.int(count, "the number of iterations")
    going = condition is None or bool(condition.value("the condition").reshape(-1)[0])
    state: list[Value] = list(initial)
    scanned: list[list[Tensor]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    done = 0

    def run(states: list[Any], slices: list[Tensor]) -> Sequence[Value]:
        on, *results = run_graph(c, body, [slices[0], c.conversion.tensor(np.array(True)), *states])
        if not isinstance(on, Tensor) or on.array is None or not on.array.all():
            raise _Unroll
        return results

    while going and done < limit:
        refuse_if(done == MAX_ITERATIONS, f"more than {MAX_ITERATIONS} iterations")
        number = c.conversion.tensor(np.array(done, np.int64))
        first, *rest = run_graph(c, body, [number, c.conversion.tensor(np.array(True)), *state])
        if any(isinstance(v, Missing) for v in (first, *rest)):
            return [Missing()] * len(c.node.outputs)
        if not isinstance(first, Tensor):
            raise Unsupported("the body's condition is no tensor")
        going = bool(first.value("the body's condition").reshape(-1)[0])
        if done == 0 and going and count is not None and LOOPED_FROM <= limit <= MAX_LOOPED:
            numbers = c.conversion.tensor(np.arange(limit, dtype=np.int64))
            backward = [False] * (1 + len(scanned))
            made = _looped(c, state, [(numbers.operand, "int64")], backward, run, rest)
            if made is not None:
                return made
        state = rest[: len(state)]
        for values, value in zip(scanned, rest[len(state) :], strict=True):
            values.append(value)  # type: ignore[arg-type]
        done += 1
    return [*state, *(stack(c, values, 0) for values in scanned)]


def stack(c: NodeContext, values: Sequence[Tensor], axis: int) -> Any:
    """Tensors of one shape along a new axis."""
    refuse_if(not values, "no iteration: the result is empty, WebNN has no such tensor")
    if all(v.array is not None for v in values):
        return np.stack([v.array for v in values], axis)  # type: ignore[misc]
    axis = c.axis(axis, values[0].rank + 1)
    shape = list(values[0].shape)
    shape.insert(axis, 1)
    parts = [c.reshape(v, shape) for v in values]
    whole = parts[0] if len(parts) == 1 else c.b.concat(parts, axis)
    return c.typed(whole, values[0].type)


def _first_to(c: NodeContext, x: Tensor, axis: int) -> Tensor:
    """A tensor with its first dimension at another place."""
    order = [*range(1, x.rank)]
    order.insert(c.axis(axis, x.rank), 0)
    return c.typed(c.transpose(x, order), x.type)


@onnx_operator("Scan", first=9, raw=True)
def scan(
    c: NodeContext,
    *inputs: Tensor,
    body: GraphProto,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> list[Any]:
    states = len(inputs) - num_scan_inputs
    if num_scan_inputs < 1 or not 0 <= states <= len(body.output):
        raise Unsupported(f"{num_scan_inputs} of {len(inputs)} inputs are to be scanned")
    state: list[Any] = list(inputs[:states])
    given = inputs[states:]
    axes = [
        c.axis(a, x.rank)
        for a, x in zip(scan_input_axes or [0] * len(given), given, strict=True)
    ]
    backward = scan_input_directions or [0] * len(given)
    count = len(body.output) - states
    length = given[0].shape[axes[0]]
    directions = scan_output_directions or [0] * count
    out_axes = scan_output_axes or [0] * count
    scanned: list[list[Any]] = [[] for _ in range(count)]
    for step in range(length):
        current: list[Value] = []
        for x, axis, back in zip(given, axes, backward, strict=True):
            at = length - 1 - step if back else step
            shape = [d for i, d in enumerate(x.shape) if i != axis]
            current.append(c.typed(c.reshape(c.slice(x, axis, at, 1), shape), x.type))
        results = run_graph(c, body, [*state, *current])
        if any(isinstance(v, Missing) for v in results):
            return [Missing()] * len(c.node.outputs)
        if step == 0 and LOOPED_FROM <= length <= MAX_LOOPED:
            whole = [
                (c.transpose(x, [axis, *(i for i in range(x.rank) if i != axis)]), x.type)
                for x, axis in zip(given, axes, strict=True)
            ]
            made = _looped(
                c, state, whole, [*map(bool, (*backward, *directions))],
                lambda now, slices: run_graph(c, body, [*now, *slices]), results,
            )
            if made is not None:
                return [*made[:states], *(
                    _first_to(c, x, axis)
                    for x, axis in zip(made[states:], out_axes, strict=True)
                )]
        refuse_if(length > MAX_ITERATIONS, f"{length} iterations, {MAX_ITERATIONS} at most")
        state = results[:states]
        for values, value in zip(scanned, results[states:], strict=True):
            values.append(value)
    return [
        *state,
        *(
            stack(c, values[::-1] if back else values, axis)
            for values, back, axis in zip(scanned, directions, out_axes, strict=True)
        ),
    ]


@onnx_operator("SequenceMap", raw=True)
def sequence_map(
    c: NodeContext, first: TensorList, *others: Any, body: GraphProto
) -> list[TensorList]:
    made = []
    for i, item in enumerate(first.items):
        rest = [v.items[i] if isinstance(v, TensorList) else v for v in others]
        made.append(run_graph(c, body, [item, *rest]))
    return [TensorList(tuple(column)) for column in zip(*made, strict=True)]
