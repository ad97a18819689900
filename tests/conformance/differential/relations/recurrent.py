"""Relations of recurrent networks."""

from __future__ import annotations

from typing import Any

from tests.conformance.differential.drafting import Draft
from tests.conformance.differential.example import Example
from tests.conformance.differential.relations.record import relation


def _activations(d: Draft, count: int) -> dict[str, Any]:
    kinds = ("relu", "sigmoid", "tanh")
    return {"activations": [d.choose(kinds) for _ in range(count)]} if d.flag() else {}


def _recurrent(d: Draft, gates: int, layouts: tuple[str, ...], states: tuple[str, ...]) -> Example:
    steps, batch, inputs, size = (d.integer(1, n) for n in (4, 3, 5, 5))
    given: dict[str, Any] = {"steps": steps, "hidden_size": size}
    given |= _activations(d, gates - 1)
    if d.flag():
        given["layout"] = d.choose(layouts)
    always = ("return_sequence",) if d.whole else ()
    for name, options in (
        ("direction", ("forward", "backward", "both")),
        ("return_sequence", (True,) if d.whole else (False, True)),
        ("reset_after", (False, True)),
    ):
        if any(p.name == name for p in d.record.arguments) and (name in always or d.flag()):
            given[name] = d.choose(options)
    directions = 2 if given.get("direction") == "both" else 1
    shapes: dict[str, Any] = {
        "input": (steps, batch, inputs),
        "weight": (directions, gates * size, inputs),
        "recurrent_weight": (directions, gates * size, size),
    }
    for name in ("bias", "recurrent_bias"):
        shapes[name] = (directions, gates * size) if d.present() else None
    if gates == 4:
        shapes["peephole_weight"] = (directions, 3 * size) if d.present() else None
    for name in states:
        shapes[name] = (directions, batch, size) if d.present() else None
    return d.example(shapes, given)


@relation("gru")
def _(d: Draft) -> Example:
    return _recurrent(d, 3, ("zrn", "rzn"), ("initial_hidden_state",))


@relation("lstm")
def _(d: Draft) -> Example:
    return _recurrent(d, 4, ("iofg", "ifgo"), ("initial_hidden_state", "initial_cell_state"))


def _cell(d: Draft, gates: int, layouts: tuple[str, ...], states: tuple[str, ...]) -> Example:
    batch, inputs, size = (d.integer(1, n) for n in (4, 6, 6))
    given: dict[str, Any] = {"hidden_size": size} | _activations(d, gates - 1)
    if d.flag():
        given["layout"] = d.choose(layouts)
    if gates == 3 and d.flag():
        given["reset_after"] = d.flag()
    shapes: dict[str, Any] = {
        "input": (batch, inputs),
        "weight": (gates * size, inputs),
        "recurrent_weight": (gates * size, size),
    }
    shapes |= dict.fromkeys(states, (batch, size))
    for name in ("bias", "recurrent_bias"):
        shapes[name] = (gates * size,) if d.present() else None
    if gates == 4:
        shapes["peephole_weight"] = (3 * size,) if d.present() else None
    return d.example(shapes, given)


@relation("gru_cell")
def _(d: Draft) -> Example:
    return _cell(d, 3, ("zrn", "rzn"), ("hidden_state",))


@relation("lstm_cell")
def _(d: Draft) -> Example:
    return _cell(d, 4, ("iofg", "ifgo"), ("hidden_state", "cell_state"))


def _recurrence(
    d: Draft, gates: int, layouts: tuple[str, ...], bias: str, rows: int, states: tuple[str, ...]
) -> Example:
    """States of whole vectors of units have a kernel, others are loops."""
    batch, size = d.integer(1, 6), d.choose((4, 8, 12, 3))
    given: dict[str, Any] = _activations(d, gates - 1)
    # With relu alone, states grow beyond all numbers.
    steps = d.integer(1, 2 if "relu" in given.get("activations", ()) else 4)
    always = ("return_sequence",) if d.whole else ()
    for name, options in (
        ("layout", layouts), ("direction", ("forward", "backward", "both")),
        ("return_sequence", (True,) if d.whole else (False, True)),
        ("reset_after", (True,) if d.whole else (False, True)),  # without it there is no bias
    ):
        if any(p.name == name for p in d.record.arguments) and (name in always or d.flag()):
            given[name] = d.choose(options)
    if d.flag():
        given["units"] = d.integer(1, size)
    directions = 2 if given.get("direction") == "both" else 1
    shapes: dict[str, Any] = {
        "projected": (steps, batch, directions, gates * size),
        "recurrent_weight": (directions, size, gates * size),
        bias: (directions, rows * size) if given.get("reset_after", True) and d.present() else None,
    }
    for name in states:
        shapes[name] = (directions, batch, size) if d.present() else None
    return d.example(shapes, given)


@relation("gru_recurrence")
def _(d: Draft) -> Example:
    return _recurrence(d, 3, ("zrn", "rzn"), "recurrent_bias", 3, ("initial_hidden_state",))


@relation("lstm_recurrence")
def _(d: Draft) -> Example:
    return _recurrence(
        d, 4, ("iofg", "ifgo"), "peephole_weight", 3,
        ("initial_hidden_state", "initial_cell_state"),
    )


@relation("repeat")
def _(d: Draft) -> Example:
    """States that change places, slices in both directions, and a captured operand."""
    count, shape = d.integer(1, 5), d.shape(1, 3)
    states = d.integer(1, 2)

    def call(operator: str, *numbers: int, **arguments: Any) -> tuple[Any, ...]:
        names = ("input",) if len(numbers) == 1 else ("a", "b")
        return operator, "", tuple(zip(names, numbers, strict=True)), tuple(arguments.items())

    # The body's values: the states, the slice, what is captured, and the calls' results.
    piece, captured, first = states, states + 1, states + 2
    calls = (
        call("reverse", states - 1, axes=(0,)), call("max", 0, first),
        call("reverse", piece, axes=(0,)), call("min", piece, first + 2),
        call("reverse", captured, axes=(0,)),
    )
    results = (*range(1, states), first + 1, first + 3, first + 4)
    return d.example(
        {"states": [shape] * states, "scanned": [(count, *shape)], "captured": [shape]},
        {"count": count, "body": (calls, results),
         "backward": [d.flag() for _ in range(3)] if d.flag() else ()},
    )
