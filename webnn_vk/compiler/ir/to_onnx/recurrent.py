"""gru and lstm, and their cells as sequences of one step. With peepholes ONNX's output gate reads
the new cell state and WebNN's the old one: such networks are written step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import onnx_pairs
from .writer import Rule, Tensor, Writer, rule

_DIRECTIONS = {name: kind for kind, name in onnx_pairs.DIRECTIONS.items()}
_ACTIVATIONS = {name: kind for kind, name in onnx_pairs.ACTIVATIONS.items()}


def _ordered(w: Writer, x: Tensor, layout: str, target: str) -> Tensor:
    """The gates along the second dimension in another order."""
    if layout == target:
        return x
    part = x.shape[1] // len(layout)
    parts = dict(zip(layout, w.split(x, [part] * len(layout), 1), strict=True))
    return w.concat([parts[gate] for gate in target], 1)


def _sequence(
    w: Writer, kind: str, gates: tuple[str, str], input: Tensor, weight: Tensor,
    recurrent_weight: Tensor, biases: Sequence[Tensor | None], states: Sequence[Tensor | None],
    hidden_size: int, activations: Sequence[str], direction: str,
    wanted: Sequence[bool], **attributes: Any,
) -> list[Tensor]:
    """ONNX's node over operands with directions; ``wanted``: which of the sequence and the states
    are needed."""
    steps, batch, _ = input.shape
    directions = weight.shape[0]
    bias = None
    if any(b is not None for b in biases):
        zero = w.constant(np.zeros((directions, len(gates[0]) * hidden_size), input.data_type))
        bias = w.concat(
            [_ordered(w, b if b is not None else zero, *gates) for b in biases], 1
        )
    operands = [
        input, _ordered(w, weight, *gates), _ordered(w, recurrent_weight, *gates), bias, None,
        *states,
    ]
    state = (input.data_type, (directions, batch, hidden_size))
    described = [(input.data_type, (steps, directions, batch, hidden_size)), *[state] * len(states)]
    return w.ops(
        kind, *operands,
        results=[d if want else None for d, want in zip(described, wanted, strict=True)],
        hidden_size=hidden_size, direction=_DIRECTIONS[direction],
        activations=[_ACTIVATIONS[a] for a in activations] * directions, **attributes,
    )


@rule("gru")
def gru(
    w: Writer, input: Tensor, weight: Tensor, recurrent_weight: Tensor, bias: Tensor | None,
    recurrent_bias: Tensor | None, initial_hidden_state: Tensor | None, hidden_size: int,
    reset_after: bool, return_sequence: bool, direction: str, layout: str,
    activations: Sequence[str],
) -> list[Tensor]:
    made = _sequence(
        w, "GRU", (layout, "zrn"), input, weight, recurrent_weight, (bias, recurrent_bias),
        [initial_hidden_state], hidden_size, activations, direction,
        (return_sequence, True), linear_before_reset=int(reset_after),
    )
    return [made[1], made[0]] if return_sequence else made


@rule("gru_cell")
def gru_cell(
    w: Writer, hidden_state: Tensor, hidden_size: int, reset_after: bool, layout: str,
    activations: Sequence[str], **operands: Tensor | None,
) -> list[Tensor]:
    return _one_step(
        w, gru, operands | {"initial_hidden_state": hidden_state}, hidden_size=hidden_size,
        reset_after=reset_after, layout=layout, activations=activations,
    )


def _one_step(
    w: Writer, sequence: Rule, operands: Mapping[str, Tensor | None], **arguments: Any
) -> list[Tensor]:
    """A cell, as a sequence of one step: operands get a new first dimension."""
    wide = {name: x and w.reshape(x, [1, *x.shape]) for name, x in operands.items()}
    finals = sequence(w, **wide, **arguments, return_sequence=False, direction="forward")
    return [w.reshape(final, w.result.shape) for final in finals]


@rule("lstm")
def lstm(
    w: Writer, input: Tensor, weight: Tensor, recurrent_weight: Tensor, bias: Tensor | None,
    recurrent_bias: Tensor | None, peephole_weight: Tensor | None,
    initial_hidden_state: Tensor | None, initial_cell_state: Tensor | None, hidden_size: int,
    return_sequence: bool, direction: str, layout: str, activations: Sequence[str],
) -> list[Tensor]:
    if peephole_weight is not None:
        return w.decomposed()
    made = _sequence(
        w, "LSTM", (layout, "iofg"), input, weight, recurrent_weight, (bias, recurrent_bias),
        [initial_hidden_state, initial_cell_state], hidden_size, activations,
        direction, (return_sequence, True, True),
    )
    return [*made[1:], made[0]] if return_sequence else made


@rule("lstm_cell")
def lstm_cell(
    w: Writer, hidden_state: Tensor, cell_state: Tensor, peephole_weight: Tensor | None,
    hidden_size: int, layout: str, activations: Sequence[str], **operands: Tensor | None,
) -> list[Tensor]:
    if peephole_weight is not None:
        return w.decomposed()
    states = {"initial_hidden_state": hidden_state, "initial_cell_state": cell_state}
    return _one_step(
        w, lstm, operands | states, peephole_weight=None, hidden_size=hidden_size, layout=layout,
        activations=activations,
    )
