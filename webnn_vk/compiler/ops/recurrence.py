"""lstm_recurrence and gru_recurrence: the recurrent parts of lstm and gru, all steps and directions
in one operator. Compiler operators, made by `recurrent_decomposition.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..types.data_types import MLOperandDescriptor
from .arguments import U32, Bool, Enum, Operand, SequenceOf
from .lowering import Recurrence
from .record import Check, Inferred, Like, Limits, compiler_operator
from .recurrent_decomposition import GruSteps, LstmSteps, looped

Activations = SequenceOf(Enum("relu", "sigmoid", "tanh"))
Direction = Enum("forward", "backward", "both")
GruLayout = Enum("zrn", "rzn")
LstmLayout = Enum("iofg", "ifgo")
#: The gates in the order in which the peephole weights lie.
PEEPHOLES = "iof"


def _rows(rank: int, *names: str) -> dict[str, Like]:
    return {name: Like("projected", (rank, rank)) for name in names}


def _inferred(
    check: Check, gates: int, states: int, activations: tuple[str, ...] | None,
    default: tuple[str, ...], direction: str, return_sequence: bool, units: int | None,
    projected: MLOperandDescriptor, recurrent_weight: MLOperandDescriptor,
    **operands: MLOperandDescriptor | None,
) -> Inferred:
    steps, batch, directions, width = projected.shape
    size = width // gates
    check.that(
        width == gates * size and directions == (2 if direction == "both" else 1),
        f"projected is {projected}; [steps, batch, directions, {gates} · size] is expected",
    )
    units = size if units is None else units
    check.that(0 < units <= size, f"units is {units}; 1 to {size} are expected")
    check.shape("recurrent_weight", recurrent_weight, (directions, size, width))
    for name, operand in operands.items():
        rows = {"recurrent_bias": gates, "peephole_weight": len(PEEPHOLES)}
        shape = (rows[name] * size,) if name in rows else (batch, size)
        check.shape(name, operand, (directions, *shape))
    state = (directions, batch, size)
    sequence = [(steps, *state)] if return_sequence else []
    return Inferred.like(
        projected, *[state] * states, *sequence,
        activations=check.items("activations", activations, default), units=units,
    )


@compiler_operator(
    projected=Limits(("float32",), (4, 4)),
    **_rows(3, "recurrent_weight", "initial_hidden_state", "initial_cell_state"),
    **_rows(2, "peephole_weight"),
    **_rows(3, "output0", "output1"),
    **_rows(4, "output2"),
)
def lstm_recurrence(
    check: Check,
    projected: Operand,
    recurrent_weight: Operand,
    *,
    peephole_weight: Operand = None,
    initial_hidden_state: Operand = None,
    initial_cell_state: Operand = None,
    units: U32 = None,
    return_sequence: Bool = False,
    direction: Direction = "forward",
    layout: LstmLayout = "iofg",
    activations: Activations = None,
):
    """An lstm whose inputs are ``projected`` [steps, batch, directions, 4 · size]: what the gates
    have of the input and of both biases. recurrent_weight [directions, size, 4 · size] has a row
    for each unit of the state, of which those from ``units`` on stay 0. The rest is as for lstm."""
    return _inferred(
        check, 4, 2, activations, ("sigmoid", "tanh", "tanh"), direction, return_sequence,
        units, projected, recurrent_weight, peephole_weight=peephole_weight,
        initial_hidden_state=initial_hidden_state, initial_cell_state=initial_cell_state,
    )


@compiler_operator(
    projected=Limits(("float32",), (4, 4)),
    **_rows(3, "recurrent_weight", "initial_hidden_state"),
    **_rows(2, "recurrent_bias"),
    **_rows(3, "output0"),
    **_rows(4, "output1"),
)
def gru_recurrence(
    check: Check,
    projected: Operand,
    recurrent_weight: Operand,
    *,
    recurrent_bias: Operand = None,
    initial_hidden_state: Operand = None,
    reset_after: Bool = True,
    units: U32 = None,
    return_sequence: Bool = False,
    direction: Direction = "forward",
    layout: GruLayout = "zrn",
    activations: Activations = None,
):
    """A gru whose inputs are ``projected`` [steps, batch, directions, 3 · size]: what the gates
    have of the input and its bias. recurrent_weight [directions, size, 3 · size] has a row for
    each unit of the state, of which those from ``units`` on stay 0. recurrent_bias
    [directions, 3 · size] is given only with ``reset_after``; else it is a part of ``projected``.
    The rest is as for gru."""
    check.that(
        reset_after or recurrent_bias is None,
        "without reset_after, recurrent_bias is a part of projected",
    )
    return _inferred(
        check, 3, 1, activations, ("sigmoid", "tanh"), direction, return_sequence,
        units, projected, recurrent_weight, recurrent_bias=recurrent_bias,
        initial_hidden_state=initial_hidden_state,
    )


lstm_recurrence.lowers_to(
    Recurrence("lstm", looped(LstmSteps, "initial_hidden_state", "initial_cell_state"))
)
gru_recurrence.lowers_to(Recurrence("gru", looped(GruSteps, "initial_hidden_state")))


# -- references: the equations of one step, and the steps

_ACTIVATE = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def lstm_step(
    sums: np.ndarray, cell: np.ndarray, peephole: np.ndarray | None, layout: str,
    activations: Sequence[str],
) -> list[np.ndarray]:
    """The new hidden state and cell state, from what all gates have of input and hidden state."""
    gate_function, cell_function, output_function = (_ACTIVATE[a] for a in activations)
    gates = dict(zip(layout, np.split(sums, 4, axis=1), strict=True))
    if peephole is not None:
        for gate, of_cell in zip(PEEPHOLES, np.split(peephole, 3), strict=True):
            gates[gate] = gates[gate] + cell * of_cell
    i, o, f = (gate_function(gates[gate]) for gate in "iof")
    cell = f * cell + i * cell_function(gates["g"])
    return [o * output_function(cell), cell]


def gru_step(
    of_input: np.ndarray, hidden: np.ndarray, weight: np.ndarray, bias: np.ndarray,
    reset_after: bool, layout: str, activations: Sequence[str], units: int | None = None,
) -> list[np.ndarray]:
    """The new hidden state, from what the gates have of the input. weight [size, 3 · size]."""
    gate_function, new_function = (_ACTIVATE[a] for a in activations)
    inputs, weights, biases = (
        dict(zip(layout, np.split(x, 3, axis=-1), strict=True)) for x in (of_input, weight, bias)
    )

    def of_state(gate: str, state: np.ndarray) -> np.ndarray:
        return state @ weights[gate] + biases[gate]

    z, r = (gate_function(inputs[gate] + of_state(gate, hidden)) for gate in "zr")
    if reset_after:
        n = new_function(inputs["n"] + r * of_state("n", hidden))
    else:
        reset = np.zeros_like(hidden)
        reset[:, :units] = (r * hidden)[:, :units]
        n = new_function(inputs["n"] + of_state("n", reset))
    return [z * hidden + (1 - z) * n]


def all_steps(
    step: Callable[..., list[np.ndarray]], projected: np.ndarray, initial: list[Any], size: int,
    direction: str, return_sequence: bool, units: int | None = None,
) -> list[np.ndarray]:
    """The results of a recurrence. ``step(direction's number, its part of an input, *states)``
    computes the new states."""
    steps, batch, directions, _ = projected.shape
    shape = (directions, batch, size)
    states = [np.zeros(shape, np.float32) for _ in initial]
    for state, given in zip(states, initial, strict=True):
        if given is not None:
            state[..., :units] = given[..., :units]
    sequence = np.empty((steps, *shape), np.float32)
    for index in range(directions):
        backward = index == 1 or direction == "backward"
        for at in reversed(range(steps)) if backward else range(steps):
            now = step(index, projected[at, :, index], *(s[index] for s in states))
            for state, value in zip(states, now, strict=True):
                state[index, :, :units] = value[:, :units]
            sequence[at, index] = states[0][index]
    return [*states, sequence] if return_sequence else states


@lstm_recurrence.reference
def _(
    out, projected, recurrent_weight, peephole_weight, initial_hidden_state, initial_cell_state,
    units, return_sequence, direction, layout, activations,
):
    def step(index, of_input, hidden, cell):
        peephole = None if peephole_weight is None else peephole_weight[index]
        sums = of_input + hidden @ recurrent_weight[index]
        return lstm_step(sums, cell, peephole, layout, activations)

    return all_steps(
        step, projected, [initial_hidden_state, initial_cell_state], recurrent_weight.shape[1],
        direction, return_sequence, units,
    )


@gru_recurrence.reference
def _(
    out, projected, recurrent_weight, recurrent_bias, initial_hidden_state, reset_after,
    units, return_sequence, direction, layout, activations,
):
    directions, size, width = recurrent_weight.shape
    # In float32, as the rest: in float64 an infinite gate times 1e-80 is infinite, not NaN.
    bias = np.zeros((directions, width), np.float32) if recurrent_bias is None else recurrent_bias

    def step(index, of_input, hidden):
        return gru_step(
            of_input, hidden, recurrent_weight[index], bias[index], reset_after, layout,
            activations, units,
        )

    return all_steps(
        step, projected, [initial_hidden_state], size, direction, return_sequence, units
    )
