"""The draft's emulation of the recurrent operators: cells from products, sequences from cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.emulation.emulations import emulation

RECURRENT = ("gru", "gru_cell", "lstm", "lstm_cell")


class _Gates:
    """Parts of weights and biases by gate; absent biases are 0."""

    def __init__(self, b, input, weight, recurrent_weight, hidden, size, bias, recurrent_bias):
        self.b, self.input, self.hidden, self.size = b, input, hidden, size
        self.weight, self.recurrent_weight = weight, recurrent_weight
        self.biases = bias, recurrent_bias
        self.zero = b.constant(input.data_type, 0)

    def row(self, vector: Any, index: int) -> Any:
        if vector is None:
            return self.zero
        return self.b.slice(vector, [index * self.size], [self.size])

    def rows(self, matrix: Any, index: int) -> Any:
        """Rows of a gate, transposed."""
        sizes = [self.size, matrix.shape[1]]
        return self.b.transpose(self.b.slice(matrix, [index * self.size, 0], sizes))

    def of_input(self, index: int) -> Any:
        return self.b.matmul(self.input, self.rows(self.weight, index))

    def of_hidden(self, index: int, hidden: Any = None) -> Any:
        hidden = self.hidden if hidden is None else hidden
        return self.b.matmul(hidden, self.rows(self.recurrent_weight, index))

    def bias(self, index: int) -> Any:
        return self.b.add(*(self.row(v, index) for v in self.biases))

    def sum(self, index: int) -> Any:
        products = self.b.add(self.of_input(index), self.of_hidden(index))
        return self.b.add(self.bias(index), products)


@emulation
def gru_cell(
    b, input, weight, recurrent_weight, hidden_state, hidden_size, bias=None,
    recurrent_bias=None, reset_after=True, layout="zrn", activations=("sigmoid", "tanh"),
):
    gates = _Gates(
        b, input, weight, recurrent_weight, hidden_state, hidden_size, bias, recurrent_bias
    )
    gate_function, new_function = (getattr(b, name) for name in activations)
    z = gate_function(gates.sum(layout.index("z")))
    r = gate_function(gates.sum(layout.index("r")))
    n = layout.index("n")
    if reset_after:
        inner = b.add(gates.row(recurrent_bias, n), gates.of_hidden(n))
        outer = b.add(gates.of_input(n), b.mul(r, inner))
        new = new_function(b.add(gates.row(bias, n), outer))
    else:
        products = b.add(gates.of_input(n), gates.of_hidden(n, b.mul(r, hidden_state)))
        new = new_function(b.add(gates.bias(n), products))
    one = b.constant(input.data_type, 1)
    return b.add(b.mul(z, hidden_state), b.mul(new, b.sub(one, z)))


@emulation
def lstm_cell(
    b, input, weight, recurrent_weight, hidden_state, cell_state, hidden_size, bias=None,
    recurrent_bias=None, peephole_weight=None, layout="iofg",
    activations=("sigmoid", "tanh", "tanh"),
):
    gates = _Gates(
        b, input, weight, recurrent_weight, hidden_state, hidden_size, bias, recurrent_bias
    )
    gate_function, cell_function, output_function = (getattr(b, name) for name in activations)

    def gate(letter: str) -> Any:
        # The order of the peepholes is input, output, forget, whatever the layout.
        peephole = b.mul(cell_state, gates.row(peephole_weight, "iof".index(letter)))
        return gate_function(b.add(peephole, gates.sum(layout.index(letter))))

    i, f, o = gate("i"), gate("f"), gate("o")
    g = cell_function(gates.sum(layout.index("g")))
    cell = b.add(b.mul(f, cell_state), b.mul(i, g))
    return [b.mul(o, output_function(cell)), cell]


def _squeeze(b: Any, x: Any) -> Any:
    return b.reshape(x, x.shape[1:])


def _part(b: Any, x: Any, index: int) -> Any:
    """``x[index]``; None stays None."""
    if x is None:
        return None
    starts = [index] + [0] * (len(x.shape) - 1)
    return _squeeze(b, b.slice(x, starts, [1, *x.shape[1:]]))


def _sequence(
    b, cell, input, steps, hidden_size, direction, return_sequence, operands, states, options
):
    """Final states, then the sequence if requested; ``cell`` maps states to states."""
    batch = input.shape[1]
    count = 2 if direction == "both" else 1
    zero = np.zeros((count, batch, hidden_size), input.data_type)
    states = [b.constant(zero) if s is None else s for s in states]
    finals: list[list[Any]] = [[] for _ in states]
    sequences = []
    for index in range(count):
        own = {name: _part(b, x, index) for name, x in operands.items()}
        now = [_part(b, s, index) for s in states]
        backward = index == 1 or direction == "backward"
        made: list[Any] = []
        for step in reversed(range(steps)) if backward else range(steps):
            weights = {name: x for name, x in own.items() if x is not None}
            now = cell(_part(b, input, step), now, weights, options)
            expanded = b.reshape(now[0], [1, 1, batch, hidden_size])
            made.insert(0 if backward else len(made), expanded)
        sequences.append(b.concat(made, 0))
        for final, state in zip(finals, now, strict=True):
            final.append(b.reshape(state, [1, batch, hidden_size]))
    results = [b.concat(final, 0) for final in finals]
    return [*results, b.concat(sequences, 1)] if return_sequence else results


@emulation
def gru(
    b, input, weight, recurrent_weight, steps, hidden_size, bias=None, recurrent_bias=None,
    initial_hidden_state=None, return_sequence=False, direction="forward", **options,
):
    def cell(x, states, weights, options):
        return [b.gru_cell(
            x, hidden_state=states[0], hidden_size=hidden_size, **weights, **options
        )]

    operands = {
        "weight": weight, "recurrent_weight": recurrent_weight, "bias": bias,
        "recurrent_bias": recurrent_bias,
    }
    return _sequence(
        b, cell, input, steps, hidden_size, direction, return_sequence, operands,
        [initial_hidden_state], options,
    )


@emulation
def lstm(
    b, input, weight, recurrent_weight, steps, hidden_size, bias=None, recurrent_bias=None,
    peephole_weight=None, initial_hidden_state=None, initial_cell_state=None,
    return_sequence=False, direction="forward", **options,
):
    def cell(x, states, weights, options):
        hidden, cell_state = states
        return b.lstm_cell(
            x, hidden_state=hidden, cell_state=cell_state, hidden_size=hidden_size, **weights,
            **options,
        )

    operands = {
        "weight": weight, "recurrent_weight": recurrent_weight, "bias": bias,
        "recurrent_bias": recurrent_bias, "peephole_weight": peephole_weight,
    }
    return _sequence(
        b, cell, input, steps, hidden_size, direction, return_sequence, operands,
        [initial_hidden_state, initial_cell_state], options,
    )
