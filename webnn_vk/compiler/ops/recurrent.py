"""Recurrent networks: gru, gru_cell, lstm and lstm_cell.

On a device they are decomposed (see ``recurrent_decomposition``); the references here follow the
equations step by step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Bool, Enum, Operand, SequenceOf
from .record import Check, Inferred, Like, Limits, operator
from .recurrent_decomposition import GruSteps, LstmSteps, one_step, sequence

Activations = SequenceOf(Enum("relu", "sigmoid", "tanh"))
Direction = Enum("forward", "backward", "both")
GruLayout = Enum("zrn", "rzn")
LstmLayout = Enum("iofg", "ifgo")


def _rows(rank: int, *names: str) -> dict[str, Like]:
    return {name: Like("input", rank=(rank, rank)) for name in names}


def _hidden_size(check: Check, hidden_size: int, factor: int) -> None:
    """Some platforms concatenate both biases, whose length has to be a valid dimension."""
    check.dimensions(
        [hidden_size * factor], f"hidden_size is {hidden_size}; {factor} times it would be"
    )


def _check_sequence(
    check: Check, gates: int, input: Operand, weight: Operand, recurrent_weight: Operand,
    steps: int, hidden_size: int, direction: str, bias: Operand, recurrent_bias: Operand,
    states: dict[str, Operand], peephole_weight: Operand = None,
) -> tuple[int, ...]:
    """Check steps and shapes of a gru or lstm. Returns the shape of a final state."""
    check.that(steps != 0, "steps is 0; at least 1 is expected")
    check.that(
        input.shape[0] == steps, f"input is {input}; its first dimension has to be steps ({steps})"
    )
    return _check_cell(
        check, gates, input, weight, recurrent_weight, states, hidden_size, bias, recurrent_bias,
        peephole_weight, (2 if direction == "both" else 1,),
    )


def _check_cell(
    check: Check, gates: int, input: Operand, weight: Operand, recurrent_weight: Operand,
    states: dict[str, Operand], hidden_size: int, bias: Operand, recurrent_bias: Operand,
    peephole_weight: Operand = None, directions: tuple[int, ...] = (),
) -> tuple[int, ...]:
    """Check types and shapes of one step, or of all steps in some ``directions``, which are then
    the first dimension of every shape. Returns the shape of a state."""
    check.same_type(
        input=input, weight=weight, recurrent_weight=recurrent_weight, bias=bias,
        recurrent_bias=recurrent_bias, peephole_weight=peephole_weight, **states,
    )
    batch, size = input.shape[-2:]
    rows, shape = (*directions, gates * hidden_size), (*directions, batch, hidden_size)
    check.shape("weight", weight, (*rows, size))
    check.shape("recurrent_weight", recurrent_weight, (*rows, hidden_size))
    for name, state in states.items():
        check.shape(name, state, shape)
    _hidden_size(check, hidden_size, 2 * gates)
    check.shape("bias", bias, rows)
    check.shape("recurrent_bias", recurrent_bias, rows)
    check.shape("peephole_weight", peephole_weight, (*directions, 3 * hidden_size))
    return shape


# -- records


@operator(
    "§8.9.25",
    input=Limits(FLOAT_TYPES, (3, 3)),
    **_rows(3, "weight", "recurrent_weight"),
    **_rows(2, "bias", "recurrent_bias"),
    **_rows(3, "initial_hidden_state", "output0"),
    **_rows(4, "output1"),
)
def gru(
    check: Check,
    input: Operand,
    weight: Operand,
    recurrent_weight: Operand,
    steps: U32,
    hidden_size: U32,
    *,
    bias: Operand = None,
    recurrent_bias: Operand = None,
    initial_hidden_state: Operand = None,
    reset_after: Bool = True,
    return_sequence: Bool = False,
    direction: Direction = "forward",
    layout: GruLayout = "zrn",
    activations: Activations = None,
):
    """Gated recurrent unit over a sequence.

    input [steps, batch, inputs], weight [directions, 3 · hidden_size, inputs], recurrent_weight
    [directions, 3 · hidden_size, hidden_size], biases [directions, 3 · hidden_size], state
    [directions, batch, hidden_size]. Outputs: the last state and, with ``return_sequence``, the
    states of all steps [steps, directions, batch, hidden_size]. ``activations``: for the update and
    reset gates, and for the new gate.
    """
    activations = check.items("activations", activations, ("sigmoid", "tanh"))
    state = _check_sequence(
        check, 3, input, weight, recurrent_weight, steps, hidden_size, direction, bias,
        recurrent_bias, {"initial_hidden_state": initial_hidden_state},
    )
    outputs = [MLOperandDescriptor(input.data_type, state)]
    if return_sequence:
        outputs.append(MLOperandDescriptor(input.data_type, (steps, *state)))
    return Inferred(tuple(outputs), {"activations": activations})


@operator(
    "§8.9.26",
    input=Limits(FLOAT_TYPES, (2, 2)),
    **_rows(2, "weight", "recurrent_weight", "hidden_state"),
    **_rows(1, "bias", "recurrent_bias"),
    output=Like("input"),
)
def gru_cell(
    check: Check,
    input: Operand,
    weight: Operand,
    recurrent_weight: Operand,
    hidden_state: Operand,
    hidden_size: U32,
    *,
    bias: Operand = None,
    recurrent_bias: Operand = None,
    reset_after: Bool = True,
    layout: GruLayout = "zrn",
    activations: Activations = None,
):
    """One step of a gated recurrent unit.

    input [batch, inputs], weight [3 · hidden_size, inputs], recurrent_weight [3 · hidden_size,
    hidden_size], hidden_state [batch, hidden_size], biases [3 · hidden_size]. Output: the new
    hidden state.
    """
    state = _check_cell(
        check, 3, input, weight, recurrent_weight, {"hidden_state": hidden_state}, hidden_size,
        bias, recurrent_bias,
    )
    activations = check.items("activations", activations, ("sigmoid", "tanh"))
    return Inferred((MLOperandDescriptor(input.data_type, state),), {"activations": activations})


@operator(
    "§8.9.33",
    input=Limits(FLOAT_TYPES, (3, 3)),
    **_rows(3, "weight", "recurrent_weight"),
    **_rows(2, "bias", "recurrent_bias", "peephole_weight"),
    **_rows(3, "initial_hidden_state", "initial_cell_state", "output0", "output1"),
    **_rows(4, "output2"),
)
def lstm(
    check: Check,
    input: Operand,
    weight: Operand,
    recurrent_weight: Operand,
    steps: U32,
    hidden_size: U32,
    *,
    bias: Operand = None,
    recurrent_bias: Operand = None,
    peephole_weight: Operand = None,
    initial_hidden_state: Operand = None,
    initial_cell_state: Operand = None,
    return_sequence: Bool = False,
    direction: Direction = "forward",
    layout: LstmLayout = "iofg",
    activations: Activations = None,
):
    """Long short-term memory over a sequence.

    input [steps, batch, inputs], weight [directions, 4 · hidden_size, inputs], recurrent_weight
    [directions, 4 · hidden_size, hidden_size], biases [directions, 4 · hidden_size],
    peephole_weight [directions, 3 · hidden_size] (input, output, forget gate), states [directions,
    batch, hidden_size]. Outputs: the last hidden state, the last cell state and, with
    ``return_sequence``, the hidden states of all steps [steps, directions, batch, hidden_size].
    ``activations``: for the input, forget and output gates, for the cell gate, and for the cell
    state in the computation of the hidden state.
    """
    activations = check.items("activations", activations, ("sigmoid", "tanh", "tanh"))
    state = _check_sequence(
        check, 4, input, weight, recurrent_weight, steps, hidden_size, direction, bias,
        recurrent_bias,
        {"initial_hidden_state": initial_hidden_state, "initial_cell_state": initial_cell_state},
        peephole_weight,
    )
    outputs = [MLOperandDescriptor(input.data_type, state)] * 2
    if return_sequence:
        outputs.append(MLOperandDescriptor(input.data_type, (steps, *state)))
    return Inferred(tuple(outputs), {"activations": activations})


@operator(
    "§8.9.34",
    input=Limits(FLOAT_TYPES, (2, 2)),
    **_rows(2, "weight", "recurrent_weight", "hidden_state", "cell_state"),
    **_rows(1, "bias", "recurrent_bias", "peephole_weight"),
    **_rows(2, "output0", "output1"),
)
def lstm_cell(
    check: Check,
    input: Operand,
    weight: Operand,
    recurrent_weight: Operand,
    hidden_state: Operand,
    cell_state: Operand,
    hidden_size: U32,
    *,
    bias: Operand = None,
    recurrent_bias: Operand = None,
    peephole_weight: Operand = None,
    layout: LstmLayout = "iofg",
    activations: Activations = None,
):
    """One step of a long short-term memory.

    input [batch, inputs], weight [4 · hidden_size, inputs], recurrent_weight [4 · hidden_size,
    hidden_size], states [batch, hidden_size], biases [4 · hidden_size], peephole_weight
    [3 · hidden_size]. Outputs: the new hidden state and the new cell state.
    """
    state = _check_cell(
        check, 4, input, weight, recurrent_weight,
        {"hidden_state": hidden_state, "cell_state": cell_state}, hidden_size, bias,
        recurrent_bias, peephole_weight,
    )
    activations = check.items("activations", activations, ("sigmoid", "tanh", "tanh"))
    outputs = (MLOperandDescriptor(input.data_type, state),) * 2
    return Inferred(outputs, {"activations": activations})


# -- lowerings

gru.lowers_to(sequence(GruSteps, "initial_hidden_state"))
gru_cell.lowers_to(one_step(GruSteps, "hidden_state"))
lstm.lowers_to(sequence(LstmSteps, "initial_hidden_state", "initial_cell_state"))
lstm_cell.lowers_to(one_step(LstmSteps, "hidden_state", "cell_state"))


# -- references: the equations, step by step

_ACTIVATE = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def _biases(gates: int, size: int, *biases: np.ndarray | None) -> list[np.ndarray]:
    zero = np.zeros(gates * size, np.float32)
    return [zero if b is None else b for b in biases]


@gru_cell.reference
def _(
    out, input, weight, recurrent_weight, hidden_state, hidden_size, bias, recurrent_bias,
    reset_after, layout, activations,
):
    gate_function, new_function = (_ACTIVATE[a] for a in activations)
    bias, recurrent_bias = _biases(3, hidden_size, bias, recurrent_bias)
    part = {g: slice(i * hidden_size, (i + 1) * hidden_size) for i, g in enumerate(layout)}

    def of_input(gate: str) -> np.ndarray:
        return input @ weight[part[gate]].T + bias[part[gate]]

    def of_state(gate: str, state: np.ndarray) -> np.ndarray:
        return state @ recurrent_weight[part[gate]].T + recurrent_bias[part[gate]]

    z = gate_function(of_input("z") + of_state("z", hidden_state))
    r = gate_function(of_input("r") + of_state("r", hidden_state))
    if reset_after:
        n = new_function(of_input("n") + r * of_state("n", hidden_state))
    else:
        n = new_function(of_input("n") + of_state("n", r * hidden_state))
    return z * hidden_state + (1 - z) * n


@lstm_cell.reference
def _(
    out, input, weight, recurrent_weight, hidden_state, cell_state, hidden_size, bias,
    recurrent_bias, peephole_weight, layout, activations,
):
    gate_function, cell_function, output_function = (_ACTIVATE[a] for a in activations)
    bias, recurrent_bias = _biases(4, hidden_size, bias, recurrent_bias)
    sums = input @ weight.T + bias + (hidden_state @ recurrent_weight.T + recurrent_bias)
    gates = dict(zip(layout, np.split(sums, 4, axis=1), strict=True))
    if peephole_weight is not None:
        for gate, of_cell in zip("iof", np.split(peephole_weight, 3), strict=True):
            gates[gate] = gates[gate] + cell_state * of_cell
    i, o, f = (gate_function(gates[gate]) for gate in "iof")
    cell = f * cell_state + i * cell_function(gates["g"])
    return [o * output_function(cell), cell]


def _step_through(
    cell: Any, operands: list[np.ndarray | None], states: list[np.ndarray | None],
    input: np.ndarray, hidden_size: int, direction: str,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Final states [directions, batch, size] each, and the hidden states of all steps."""
    steps, batch, _ = input.shape
    directions = 2 if direction == "both" else 1
    shape = (directions, batch, hidden_size)
    finals = [np.zeros(shape, np.float32) if s is None else s.copy() for s in states]
    sequence = np.empty((steps, *shape), np.float32)
    for index in range(directions):
        weights = [None if o is None else o[index] for o in operands]
        backward = index == 1 or direction == "backward"
        for step in reversed(range(steps)) if backward else range(steps):
            now = cell(input[step], *weights, [s[index] for s in finals])
            for state, value in zip(finals, now, strict=True):
                state[index] = value
            sequence[step, index] = finals[0][index]
    return finals, sequence


@gru.reference
def _(
    out, input, weight, recurrent_weight, steps, hidden_size, bias, recurrent_bias,
    initial_hidden_state, reset_after, return_sequence, direction, layout, activations,
):
    def cell(x, weight, recurrent_weight, bias, recurrent_bias, states):
        return [gru_cell.compute(
            None, x, weight, recurrent_weight, *states, hidden_size, bias, recurrent_bias,
            reset_after, layout, activations,
        )]

    finals, sequence = _step_through(
        cell, [weight, recurrent_weight, bias, recurrent_bias], [initial_hidden_state], input,
        hidden_size, direction,
    )
    return [*finals, sequence] if return_sequence else finals


@lstm.reference
def _(
    out, input, weight, recurrent_weight, steps, hidden_size, bias, recurrent_bias,
    peephole_weight, initial_hidden_state, initial_cell_state, return_sequence, direction, layout,
    activations,
):
    def cell(x, weight, recurrent_weight, bias, recurrent_bias, peephole_weight, states):
        return lstm_cell.compute(
            None, x, weight, recurrent_weight, *states, hidden_size, bias, recurrent_bias,
            peephole_weight, layout, activations,
        )

    finals, sequence = _step_through(
        cell, [weight, recurrent_weight, bias, recurrent_bias, peephole_weight],
        [initial_hidden_state, initial_cell_state], input, hidden_size, direction,
    )
    return [*finals, sequence] if return_sequence else finals
