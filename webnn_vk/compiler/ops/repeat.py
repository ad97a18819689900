"""repeat: a body of operators, a fixed number of times. A compiler operator, made by the ONNX
importer (Loop, Scan) and by the decomposition of recurrences that have no kernel.

A body is plain data, so that it has a text form and fits in a file:
``((operator, label, ((operand, number), …), ((argument, value), …)), …), (number, …)``: calls, and
the numbers of the results. Values are numbered: the operands of ``repeat`` as the body sees them,
then the results of the calls, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..types.data_types import ALL_TYPES, MAX_RANK, MLOperandDescriptor, shown
from .arguments import U32, Bool, Converted, Operands, SequenceOf
from .lowering import Repeat
from .record import ALL_OPERATORS, Check, Inferred, Like, Limits, compiler_operator

#: Calls that a repetition may become where a device can't run it as a loop.
MAX_UNROLLED = 60_000
_ANY = Limits(ALL_TYPES)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _to_body(value: Any, what: str) -> tuple[Any, ...]:
    body = _tuples(value)
    match body:
        case (tuple(calls), tuple(results)) if all(type(number) is int for number in results):
            for call in calls:
                match call:
                    case (str(name), str(), tuple(operands), tuple(arguments)):
                        paired = all(
                            isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is str
                            for pair in (*operands, *arguments)
                        )
                        if name in ALL_OPERATORS and paired and all(
                            type(number) is int for _, number in operands
                        ):
                            continue
                raise TypeError(f"{what}: {shown(call)} is no call of an operator")
            return body
    raise TypeError(f"{what}: (calls, results) is expected, not {shown(value)}")


Body = Converted("tuple", _to_body)


def slice_of(scanned: MLOperandDescriptor) -> MLOperandDescriptor:
    """The part of a scanned operand that one repetition reads."""
    return MLOperandDescriptor(scanned.data_type, scanned.shape[1:])


def through(
    body: tuple[Any, ...], values: Sequence[Any],
    call: Callable[[Any, dict[str, Any], dict[str, Any], str], Sequence[Any]],
) -> list[Any]:
    """The body's results: ``call(operator, operands, arguments, label)`` gives a call's results.
    ValueError for a number that no value has."""
    calls, results = body
    known = list(values)

    def value(number: int) -> Any:
        if not 0 <= number < len(known):
            raise ValueError(f"there is no value {number}")
        return known[number]

    for name, label, operands, arguments in calls:
        operator = ALL_OPERATORS[name]
        given = operator.grouped({key: value(number) for key, number in operands})
        known.extend(call(operator, given, dict(arguments), label))
    return [value(number) for number in results]


@compiler_operator(
    states=_ANY, scanned=Limits(ALL_TYPES, (1, MAX_RANK)), captured=_ANY, outputs=Like("states"),
)
def repeat(
    check: Check,
    states: Operands,
    scanned: Operands,
    captured: Operands,
    *,
    count: U32,
    body: Body,
    backward: SequenceOf(Bool) = (),
):
    """``body``, ``count`` times. It sees the ``states``, a slice along the first dimension of each
    ``scanned`` operand, and the ``captured`` operands. Its results are the next states, and slices
    that are stacked along a new first dimension. Returns the last states and what was stacked.
    ``backward``: for each scanned operand, then for each stacked result, whether slices go from the
    last to the first."""
    check.that(count > 0, "count is 0; at least 1 is needed")
    for operand in scanned:
        check.that(
            operand.shape[0] == count,
            f"scanned is {operand}; {count} slices along the first dimension are expected",
        )

    def infer(operator: Any, operands: Any, arguments: Any, label: str) -> Any:
        made = operator.validate(operands, arguments, label)
        check.that(
            dict(made.arguments) == arguments,
            f"the arguments of {operator.title(label)} in the body are not complete",
        )
        return made.outputs

    seen = [*states, *map(slice_of, scanned), *captured]
    try:
        results = through(body, seen, infer)
    except ValueError as error:
        check.fail(f"body: {error}")
    check.that(len(results) >= len(states), "the body has fewer results than there are states")
    for number, (state, result) in enumerate(zip(states, results, strict=False)):
        check.that(state == result, f"state {number} is {state}, and the body makes it {result}")
    stacked = results[len(states) :]
    backward = check.items(
        "backward", backward or None, (False,) * (len(scanned) + len(stacked))
    )
    outputs = [MLOperandDescriptor(s.data_type, (count, *s.shape)) for s in stacked]
    check.that(bool(states or outputs), "the body has no results")
    return Inferred((*map(Check.same_as, states), *outputs), {"backward": backward})


def _unrolled(
    emit: Any, operands: dict[str, Any], arguments: dict[str, Any], outputs: Any
) -> list[Any]:
    """Every repetition's nodes, one after the other."""
    count, body = arguments["count"], arguments["body"]
    state, scanned = list(operands["states"]), operands["scanned"]
    backward = arguments["backward"]
    made: list[list[Any]] = []

    def call(operator: Any, given: Any, named: Any, label: str) -> Any:
        return emit.apply(operator, given, named, label)

    for step in range(count):
        slices = []
        for value, back in zip(scanned, backward, strict=False):
            at = count - 1 - step if back else step
            shape = value.shape[1:]
            part = emit.slice(value, [at, *[0] * len(shape)], [1, *shape])
            slices.append(emit.reshape(part, list(shape)))
        results = through(body, [*state, *slices, *operands["captured"]], call)
        state = results[: len(state)]
        made.append([
            emit.reshape(value, [1, *value.shape]) for value in results[len(state) :]
        ])
    stacked = []
    columns = zip(*made, strict=True)
    for parts, back in zip(columns, backward[len(scanned) :], strict=True):
        ordered = parts[::-1] if back else parts
        stacked.append(emit.concat(list(ordered), 0) if count > 1 else ordered[0])
    return [*state, *stacked]


repeat.lowers_to(Repeat(_unrolled))


@repeat.reference(promotes=False)
def _(out, states, scanned, captured, count, body, backward):
    described = out if isinstance(out, tuple) else (out,)
    stacked = [np.empty(d.shape, d.numpy_dtype) for d in described[len(states) :]]

    def call(operator, given, arguments, label):
        seen = {
            name: None if v is None
            else tuple(map(_described, v)) if isinstance(v, list) else _described(v)
            for name, v in given.items()
        }
        return operator.evaluate(
            operator.validate(seen, arguments, label).outputs, given, arguments
        )

    for step in range(count):
        slices = [
            x[count - 1 - step if back else step]
            for x, back in zip(scanned, backward, strict=False)
        ]
        results = through(body, [*states, *slices, *captured], call)
        states = results[: len(states)]
        for whole, value, back in zip(
            stacked, results[len(states) :], backward[len(scanned) :], strict=True
        ):
            whole[count - 1 - step if back else step] = value
    return [*states, *stacked]


def _described(array: np.ndarray) -> MLOperandDescriptor:
    return MLOperandDescriptor(array.dtype.name, array.shape)
