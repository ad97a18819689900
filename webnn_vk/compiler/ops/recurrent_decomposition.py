"""Decomposition of recurrent networks (gru, gru_cell, lstm and lstm_cell) into other operators.

One product projects the inputs of all steps. The steps are a recurrence (`recurrence.py`), which
has a kernel. Where a device can't run it, it is a loop, and each step one product with the
recurrent weights and a few element-wise operators, as are gru_cell and lstm_cell. float16 networks
are computed in float32 and rounded once at the end, as the references do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .lowering import Decompose


class Steps:
    """The weights of one direction, and the computation of one step from projected input and
    state."""

    gates = 0

    def __init__(self, emit: Any, operands: dict[str, Any], arguments: dict[str, Any]) -> None:
        self.emit = emit
        self.size = arguments["hidden_size"]
        self.weight = operands["weight"]
        self.recurrent_weight = operands["recurrent_weight"]
        self.bias = operands["bias"]
        self.recurrent_bias = operands["recurrent_bias"]
        self.activations = arguments["activations"]
        #: Makes the units of a state 0 that do not count.
        self.kept: Callable[[Any], Any] = lambda state: state

    def activate(self, index: int, x: Any) -> Any:
        return getattr(self.emit, self.activations[index])(x)

    def product(self, x: Any, weight: Any, addend: Any = None) -> Any:
        return self.emit.gemm(x, weight, c=addend, b_transpose=True)

    def summed_bias(self) -> Any:
        if self.bias is None or self.recurrent_bias is None:
            return self.recurrent_bias if self.bias is None else self.bias
        return self.emit.add(self.bias, self.recurrent_bias)

    def project(self, x: Any) -> Any:
        """The input's part of all gates: [steps · batch, gates · size]."""
        return self.product(x, self.weight, self.summed_bias())

    def split(self, x: Any, gates: int, axis: int = 1) -> list[Any]:
        return self.emit.split(x, [self.size] * gates, axis=axis)


class GruSteps(Steps):
    gates = 3

    def __init__(self, emit: Any, operands: dict[str, Any], arguments: dict[str, Any]) -> None:
        super().__init__(emit, operands, arguments)
        self.reset_after = arguments["reset_after"]
        self.update_first = arguments["layout"] == "zrn"
        self.one = emit.constant(1, "float32")
        if not self.reset_after:
            columns = [2 * self.size, self.size]
            self.gate_weight, self.new_weight = emit.split(self.recurrent_weight, columns, axis=0)

    def project(self, x: Any) -> Any:
        # The recurrent bias of the new gate is inside the reset when that comes after.
        return self.product(x, self.weight, self.bias) if self.reset_after else super().project(x)

    def step(self, projected: Any, state: list[Any]) -> list[Any]:
        emit, (hidden,), size = self.emit, state, self.size
        projected, new = emit.split(projected, [2 * size, size], axis=1)
        if self.reset_after:
            product = self.product(hidden, self.recurrent_weight, self.recurrent_bias)
            product, new_product = emit.split(product, [2 * size, size], axis=1)
            gates = self.activate(0, emit.add(projected, product))
        else:
            gates = self.activate(0, self.product(hidden, self.gate_weight, projected))
        first, second = self.split(gates, 2)
        update, reset = (first, second) if self.update_first else (second, first)
        if self.reset_after:
            new = emit.add(new, emit.mul(reset, new_product))
        else:
            new = self.product(self.kept(emit.mul(reset, hidden)), self.new_weight, new)
        new = self.activate(1, new)
        complement = emit.sub(self.one, update)
        return [emit.add(emit.mul(update, hidden), emit.mul(new, complement))]


class LstmSteps(Steps):
    gates = 4

    def __init__(self, emit: Any, operands: dict[str, Any], arguments: dict[str, Any]) -> None:
        super().__init__(emit, operands, arguments)
        peephole = operands["peephole_weight"]
        self.peephole = peephole and self.split(peephole, 3, axis=0)
        self.order = arguments["layout"]

    def step(self, projected: Any, state: list[Any]) -> list[Any]:
        emit, (hidden, cell) = self.emit, state
        gates = dict(zip(
            self.order,
            self.split(self.product(hidden, self.recurrent_weight, projected), 4),
            strict=True,
        ))
        for gate, weight in zip("iof", self.peephole or (), strict=False):
            gates[gate] = emit.add(emit.mul(cell, weight), gates[gate])
        i, o, f = (self.activate(0, gates[gate]) for gate in "iof")
        cell = emit.add(emit.mul(f, cell), emit.mul(i, self.activate(1, gates["g"])))
        return [emit.mul(o, self.activate(2, cell)), cell]


def _in_float32(expand: Any) -> Any:
    """Casts float16 operands to float32 and the results back."""

    def expand_cast(emit: Any, operands: dict[str, Any], arguments: Any, outputs: Any) -> Any:
        data_type = operands["input"].data_type
        if data_type == "float32":
            return expand(emit, operands, arguments)
        wide = {
            name: value and emit.cast(value, "float32") for name, value in operands.items()
        }
        return tuple(emit.cast(value, data_type) for value in expand(emit, wide, arguments))

    return expand_cast


def one_step(kind: type[Steps], *states: str) -> Decompose:
    @_in_float32
    def expand(emit: Any, operands: dict[str, Any], arguments: dict[str, Any]) -> tuple:
        cell = kind(emit, operands, arguments)
        return tuple(cell.step(cell.project(operands["input"]), [operands[s] for s in states]))

    return Decompose(expand)


#: Units of a recurrence are computed in vectors of this length.
_VECTOR = 4


def sequence(cell: str, gates: int) -> Decompose:
    """One product with the inputs of all steps, for all directions, and a recurrence."""

    @_in_float32
    def expand(emit: Any, operands: dict[str, Any], arguments: dict[str, Any]) -> tuple:
        steps, batch, inputs = operands["input"].shape
        size, directions = arguments["hidden_size"], operands["weight"].shape[0]
        wide = size + -size % _VECTOR
        width = gates * wide

        def units(name: str, rows: int, *shape: int) -> Any:
            """An operand [directions, rows · size, …] in this shape, its units made up to whole
            vectors."""
            value = operands.get(name)
            if value is None:
                return None
            if wide > size:
                trailing = value.descriptor.size // (directions * rows * size)
                value = emit.reshape(value, [directions, rows, size, trailing])
                value = emit.pad(value, [0] * 4, [0, 0, wide - size, 0])
            return emit.reshape(value, shape) if value.shape != shape else value

        weight = units("weight", gates, directions * width, inputs)
        bias, of_state = (
            units(name, gates, directions, width) for name in ("bias", "recurrent_bias")
        )
        given = {}
        if arguments.get("reset_after"):
            # The recurrent bias of the new gate is inside the reset.
            given["recurrent_bias"] = of_state
        elif bias is None or of_state is None:
            bias = of_state if bias is None else bias
        else:
            bias = emit.add(bias, of_state)
        if "peephole_weight" in operands:
            given["peephole_weight"] = units("peephole_weight", 3, directions, 3 * wide)
        for name in ("initial_hidden_state", "initial_cell_state"):
            if name in operands:
                given[name] = units(name, batch, directions, batch, wide)
        recurrent = units("recurrent_weight", gates, directions, width, size)
        if wide > size:
            recurrent = emit.pad(recurrent, [0] * 3, [0, 0, wide - size])
        projected = emit.gemm(
            emit.reshape(operands["input"], [steps * batch, inputs]), weight,
            c=bias and emit.reshape(bias, [directions * width]), b_transpose=True,
        )
        results = getattr(emit, f"{cell}_recurrence")(
            emit.reshape(projected, [steps, batch, directions, width]),
            emit.transpose(recurrent, permutation=[0, 2, 1]), units=size, **given,
            **{name: value for name, value in arguments.items()
               if name not in ("steps", "hidden_size")},
        )
        results = results if isinstance(results, list) else [results]
        if wide > size:
            results = [
                emit.slice(value, [0] * len(value.shape), [*value.shape[:-1], size])
                for value in results
            ]
        return tuple(results)

    return Decompose(expand)


# -- recurrences


def looped(kind: type[Steps], *states: str) -> Callable[..., list[Any]]:
    """The decomposition of a recurrence: a loop over its steps by operators of the specification,
    with both directions side by side."""

    def expand(
        emit: Any, operands: dict[str, Any], arguments: dict[str, Any], outputs: Any
    ) -> list[Any]:
        direction = arguments["direction"]
        directions = 2 if direction == "both" else 1
        backward = [index == 1 or direction == "backward" for index in range(directions)]
        cells = [_cell(emit, kind, operands, arguments, index) for index in range(directions)]
        steps, batch, _, width = operands["projected"].shape
        size, count = width // kind.gates, len(states)
        initial, scanned = [], []
        for index, cell in enumerate(cells):
            for name in states:
                given = _part(emit, operands[name], index)
                if given is None:
                    given = emit.constant(np.zeros((batch, size), np.float32))
                initial.append(cell.kept(given))
            part = emit.slice(
                operands["projected"], [0, 0, index, 0], [steps, batch, 1, width]
            )
            scanned.append(emit.reshape(part, [steps, batch, width]))

        def body(
            inner: Any, now: list[Any], slices: list[Any]
        ) -> tuple[list[Any], list[Any]]:
            following, hidden = [], []
            for index, cell in enumerate(cells):
                cell.emit = inner
                state = now[index * count : (index + 1) * count]
                new = [cell.kept(value) for value in cell.step(slices[index], state)]
                following += new
                hidden.append(new[0])
            return following, hidden if arguments["return_sequence"] else []

        stacked = backward if arguments["return_sequence"] else []
        results = emit.loop(body, initial, scanned, [*backward, *stacked])
        last, whole = results[: len(initial)], results[len(initial) :]
        made = [
            _concat(emit, [emit.reshape(value, [1, batch, size]) for value in last[i::count]], 0)
            for i in range(count)
        ]
        if whole:
            shape = [steps, 1, batch, size]
            made.append(_concat(emit, [emit.reshape(value, shape) for value in whole], 1))
        return made

    return expand


def _part(emit: Any, value: Any, index: int) -> Any:
    """A direction's part of an operand [directions, …]."""
    if value is None:
        return None
    shape = value.shape[1:]
    if value.shape[0] > 1:
        value = emit.slice(value, [index, *[0] * len(shape)], [1, *shape])
    return emit.reshape(value, list(shape))


def _cell(
    emit: Any, kind: type[Steps], operands: dict[str, Any], arguments: dict[str, Any], index: int
) -> Steps:
    """The steps of one direction of a recurrence."""
    batch, width = operands["projected"].shape[1], operands["projected"].shape[3]
    size, units = width // kind.gates, arguments["units"]
    names = ("weight", "bias", "recurrent_bias", "peephole_weight")
    cell = kind(
        emit,
        {name: _part(emit, operands.get(name), index) for name in names} | {
            "recurrent_weight": emit.transpose(_part(emit, operands["recurrent_weight"], index))
        },
        arguments | {"hidden_size": size},
    )

    def kept(value: Any) -> Any:
        """A state in which the units that do not count are 0."""
        if units == size:
            return value
        counting = cell.emit.slice(value, [0, 0], [batch, units])
        return cell.emit.pad(counting, [0, 0], [0, size - units])

    cell.kept = kept
    return cell


def _concat(emit: Any, values: list[Any], axis: int) -> Any:
    return emit.concat(values, axis) if len(values) > 1 else values[0]
