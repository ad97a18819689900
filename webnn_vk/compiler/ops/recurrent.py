"""Recurrent networks: gru, gru_cell, lstm and lstm_cell.

On a device they are decomposed into a product for the inputs of all steps and a recurrence (see
``recurrent_decomposition``, ``recurrence``); the references follow the equations step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Bool, Operand
from .record import Check, Inferred, Like, Limits, Operator, operator
from .recurrence import (
    Activations,
    Direction,
    GruLayout,
    LstmLayout,
    all_steps,
    gru_step,
    lstm_step,
)
from .recurrent_decomposition import GruSteps, LstmSteps, one_step, sequence


def _rows(rank: int, *names: str) -> dict[str, Like]:
    return {name: Like("input", rank=(rank, rank)) for name in names}


def _check_shapes(
    check: Check, gates: int, hidden_size: int, *directions: int,
    **operands: MLOperandDescriptor | None,
) -> tuple[int, ...]:
    """Check types and shapes of the operands of one step, or of all steps in some ``directions``,
    whose number is then the first dimension of every shape but the input's. Returns the shape of a
    state."""
    check.same_type(**operands)
    *_, batch, size = operands["input"].shape
    rows, state = (*directions, gates * hidden_size), (*directions, batch, hidden_size)
    shapes = {
        "weight": (*rows, size), "recurrent_weight": (*rows, hidden_size), "bias": rows,
        "recurrent_bias": rows, "peephole_weight": (*directions, 3 * hidden_size),
    }
    for name, operand in operands.items():
        if name != "input":
            check.shape(name, operand, shapes.get(name, state))
    # Some platforms concatenate both biases, whose length has to be a valid dimension.
    check.dimensions(
        [hidden_size * 2 * gates], f"hidden_size is {hidden_size}; {2 * gates} times it would be"
    )
    return state


def _check_sequence(
    check: Check, gates: int, steps: int, hidden_size: int, direction: str,
    input: MLOperandDescriptor, **operands: MLOperandDescriptor | None,
) -> tuple[int, ...]:
    """Check steps and shapes of a gru or lstm. Returns the shape of a final state."""
    check.that(steps != 0, "steps is 0; at least 1 is expected")
    check.that(
        input.shape[0] == steps, f"input is {input}; its first dimension has to be steps ({steps})"
    )
    directions = 2 if direction == "both" else 1
    return _check_shapes(check, gates, hidden_size, directions, input=input, **operands)


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
        check, 3, steps, hidden_size, direction, input, weight=weight,
        recurrent_weight=recurrent_weight, bias=bias, recurrent_bias=recurrent_bias,
        initial_hidden_state=initial_hidden_state,
    )
    sequence = [(steps, *state)] if return_sequence else []
    return Inferred.like(input, state, *sequence, activations=activations)


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
    state = _check_shapes(
        check, 3, hidden_size, input=input, weight=weight, recurrent_weight=recurrent_weight,
        hidden_state=hidden_state, bias=bias, recurrent_bias=recurrent_bias,
    )
    activations = check.items("activations", activations, ("sigmoid", "tanh"))
    return Inferred.like(input, state, activations=activations)


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
        check, 4, steps, hidden_size, direction, input, weight=weight,
        recurrent_weight=recurrent_weight, bias=bias, recurrent_bias=recurrent_bias,
        peephole_weight=peephole_weight, initial_hidden_state=initial_hidden_state,
        initial_cell_state=initial_cell_state,
    )
    sequence = [(steps, *state)] if return_sequence else []
    return Inferred.like(input, state, state, *sequence, activations=activations)


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
    state = _check_shapes(
        check, 4, hidden_size, input=input, weight=weight, recurrent_weight=recurrent_weight,
        hidden_state=hidden_state, cell_state=cell_state, bias=bias,
        recurrent_bias=recurrent_bias, peephole_weight=peephole_weight,
    )
    activations = check.items("activations", activations, ("sigmoid", "tanh", "tanh"))
    return Inferred.like(input, state, state, activations=activations)


# -- lowerings

gru.lowers_to(sequence("gru", 3))
gru_cell.lowers_to(one_step(GruSteps, "hidden_state"))
lstm.lowers_to(sequence("lstm", 4))
lstm_cell.lowers_to(one_step(LstmSteps, "hidden_state", "cell_state"))


# -- references: the equations, step by step


def _biases(gates: int, size: int, *biases: np.ndarray | None) -> list[np.ndarray]:
    zero = np.zeros(gates * size, np.float32)
    return [zero if b is None else b for b in biases]


@gru_cell.reference
def _(
    out, input, weight, recurrent_weight, hidden_state, hidden_size, bias, recurrent_bias,
    reset_after, layout, activations,
):
    bias, recurrent_bias = _biases(3, hidden_size, bias, recurrent_bias)
    return gru_step(
        input @ weight.T + bias, hidden_state, recurrent_weight.T, recurrent_bias, reset_after,
        layout, activations,
    )


@lstm_cell.reference
def _(
    out, input, weight, recurrent_weight, hidden_state, cell_state, hidden_size, bias,
    recurrent_bias, peephole_weight, layout, activations,
):
    bias, recurrent_bias = _biases(4, hidden_size, bias, recurrent_bias)
    sums = input @ weight.T + bias + (hidden_state @ recurrent_weight.T + recurrent_bias)
    return lstm_step(sums, cell_state, peephole_weight, layout, activations)


def _sequence_of(cell: Operator, *states: str) -> Callable[..., list[np.ndarray]]:
    """The reference of all steps, by the reference of one step, whose states are ``states``: final
    states [directions, batch, size] each and, if wanted, the first one's states at all steps."""

    def compute(
        out: Any, input: np.ndarray, steps: int, hidden_size: int, direction: str,
        return_sequence: bool, **given: Any,
    ) -> list[np.ndarray]:
        initial = [given.pop(f"initial_{name}") for name in states]
        weights = {p.name: given.pop(p.name) for p in cell.operands if p.name in given}

        def step(index: int, now: np.ndarray, *before: np.ndarray) -> list[np.ndarray]:
            own = {name: None if w is None else w[index] for name, w in weights.items()}
            return cell.compute(
                None, input=now, hidden_size=hidden_size, **own, **given,
                **dict(zip(states, before, strict=True)),
            )

        directions = 2 if direction == "both" else 1
        inputs = np.broadcast_to(
            input[:, :, np.newaxis], (*input.shape[:2], directions, input.shape[2])
        )
        return all_steps(step, inputs, initial, hidden_size, direction, return_sequence)

    return compute


gru.reference(_sequence_of(gru_cell, "hidden_state"))
lstm.reference(_sequence_of(lstm_cell, "hidden_state", "cell_state"))
