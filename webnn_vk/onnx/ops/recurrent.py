"""LSTM, GRU and RNN: WebNN's own where they fit, else loops of element-wise operators, which are
unrolled if they are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.api.loops import loop_over
from webnn_vk.compiler.ir.onnx_pairs import ACTIVATIONS, DIRECTIONS
from webnn_vk.support.dataclass import dataclass

from ..context import NodeContext
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Tensor
from .control import LOOPED_FROM, MAX_LOOPED

Cell = Callable[..., tuple[MLOperand, ...]]
#: Activations with parameters: the defaults of alpha and beta, and the function.
_PARAMETRIC: dict[str, tuple[tuple[float, ...], Callable[..., MLOperand]]] = {
    "Affine": ((1.0, 0.0), lambda c, v, a, b: c.b.linear(v, alpha=a, beta=b)),
    "Elu": ((1.0,), lambda c, v, a: c.b.elu(v, alpha=a)),
    "HardSigmoid": ((0.2, 0.5), lambda c, v, a, b: c.b.hard_sigmoid(v, alpha=a, beta=b)),
    "LeakyRelu": ((0.01,), lambda c, v, a: c.b.leaky_relu(v, alpha=a)),
    "ScaledTanh": ((1.0, 1.0), lambda c, v, a, b: c.b.mul(c.b.tanh(c.b.mul(v, b)), a)),
    "ThresholdedRelu": ((1.0,), lambda c, v, a: c.b.where(c.b.greater(v, a), v, 0.0)),
}


@dataclass(frozen=True)
class RecurrentAttributes:
    """The attributes that LSTM, GRU and RNN have in common."""

    activations: list[str] | None = None
    activation_alpha: list[float] | None = None
    activation_beta: list[float] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int = 0


@dataclass
class _Layer:
    """A recurrent layer: inputs [steps, batch, …] and weights per direction."""

    c: NodeContext
    x: MLOperand
    w: MLOperand
    r: MLOperand
    bias: MLOperand | None
    lengths: np.ndarray | MLOperand | None
    states: list[MLOperand | None]
    hidden: int
    direction: str
    activations: list[Callable[[MLOperand], MLOperand]]
    native: list[str] | None
    clip: float | None
    batch_first: bool
    #: Applied to a state before its product with the recurrent weights, if not None.
    rounded: Callable[[MLOperand], MLOperand] | None = None

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1


def _layer(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    states: list[Tensor | None], default: list[str], given: RecurrentAttributes, layout: int,
) -> _Layer:
    direction, batch_first = given.direction, bool(layout)
    refuse_if(direction not in DIRECTIONS, f"direction {direction!r} is unknown")
    turn = (lambda v: c.transpose(v, [1, 0, 2])) if batch_first else c.operand
    steps = x.shape[1] if batch_first else x.shape[0]
    refuse_if(steps > MAX_LOOPED, f"{steps} steps, {MAX_LOOPED} at most")
    directions = 2 if direction == "bidirectional" else 1
    names = given.activations or default * directions
    alphas, betas = list(given.activation_alpha or []), list(given.activation_beta or [])
    if len(names) != len(default) * directions:
        raise Unsupported(f"{len(names)} activations, {len(default) * directions} are expected")
    functions = [_activation(c, name, alphas, betas) for name in names]
    native: list[str] | None = None
    if all(n in ACTIVATIONS for n in names) and names[: len(default)] == names[-len(default) :]:
        native = [ACTIVATIONS[n] for n in names[: len(default)]]
    known = None
    if lengths is not None:
        known = lengths.array if lengths.known else c.cast(lengths, "int32")
        if isinstance(known, np.ndarray) and (known == steps).all():
            known = None
    return _Layer(
        c, turn(x), w.operand, r.operand, None if bias is None else bias.operand, known,
        [None if s is None else turn(s) for s in states], given.hidden_size or r.shape[-1],
        direction, functions, native, given.clip, batch_first,
    )


def _activation(
    c: NodeContext, name: str, alphas: list[float], betas: list[float]
) -> Callable[[MLOperand], MLOperand]:
    """An activation; it takes its parameters from the front of the lists."""
    if name in (*ACTIVATIONS, "Softsign", "Softplus"):
        return getattr(c.b, name.lower())
    refuse_if(name not in _PARAMETRIC, f"activation {name!r} is not supported")
    defaults, function = _PARAMETRIC[name]
    taken = [
        values.pop(0) if values else default
        for values, default in zip((alphas, betas), defaults, strict=False)
    ]
    return lambda v: function(c, v, *taken)


def _halves(layer: _Layer, gates: int) -> tuple[MLOperand | None, MLOperand | None]:
    if layer.bias is None:
        return None, None
    size = gates * layer.hidden
    return layer.c.slice(layer.bias, 1, 0, size), layer.c.slice(layer.bias, 1, size, size)


def _outputs(
    layer: _Layer, sequence: MLOperand, *states: MLOperand
) -> list[MLOperand | None]:
    """Y [steps, directions, batch, hidden] and the last states, in the node's layout."""
    c = layer.c
    if layer.batch_first:
        sequence = c.transpose(sequence, [2, 0, 1, 3])
        states = tuple(c.transpose(s, [1, 0, 2]) for s in states)
    return [sequence, *states]


def _in_a_row(
    c: NodeContext, body: Callable[..., Any], states: list[MLOperand], scanned: list[MLOperand],
    backward: list[bool],
) -> list[MLOperand]:
    """What `loop_over` returns, by one step after the other."""
    count, made = scanned[0].shape[0], []
    for t in range(count):
        states, new = body(states, [
            c.reshape(c.slice(v, 0, count - 1 - t if back else t, 1), v.shape[1:])
            for v, back in zip(scanned, backward, strict=False)
        ])
        made.append([c.reshape(v, [1, *v.shape]) for v in new])
    stacked = [
        [*(rows[::-1] if back else rows)]
        for rows, back in zip(zip(*made, strict=True), backward[len(scanned) :], strict=True)
    ]
    return [*states, *(rows[0] if count == 1 else c.b.concat(rows, 0) for rows in stacked)]


def _by_steps(layer: _Layer, count: int, cell: Callable[[_Layer, int], Cell]) -> list[MLOperand]:
    """Y and the ``count`` last states, with the steps of both directions side by side."""
    c = layer.c
    steps, batch = layer.x.shape[:2]
    zero = c.b.expand(c.constant(0, layer.x.data_type), [batch, layer.hidden])
    cells = [cell(layer, d) for d in range(layer.directions)]
    backward = [layer.direction == "reverse" or d == 1 for d in range(layer.directions)]
    states = [
        c.b.identity(zero) if s is None
        else c.reshape(c.slice(s, 0, d, 1), [batch, layer.hidden])
        for d in range(layer.directions) for s in layer.states
    ]
    scanned = [layer.x] * layer.directions
    if layer.lengths is not None:
        scanned += [_insides(layer)] * layer.directions

    def body(
        now: list[MLOperand], slices: list[MLOperand]
    ) -> tuple[list[MLOperand], list[MLOperand]]:
        following, made = [], []
        for d, step in enumerate(cells):
            state = now[d * count : (d + 1) * count]
            new = list(step(slices[d], *state))
            made.append(new[0])
            if layer.lengths is not None:
                inside = slices[layer.directions + d]
                made[-1] = c.b.where(inside, new[0], zero)
                new = [c.b.where(inside, n, s) for n, s in zip(new, state, strict=True)]
            following += new
        return following, made

    both = backward * (len(scanned) // layer.directions) + backward
    if steps < LOOPED_FROM:
        results = _in_a_row(c, body, states, scanned, both)
    else:
        results = loop_over(c.conversion.builder, body, states, scanned, both, c.node.title)
    last, whole = results[: len(states)], results[len(states) :]
    shape = [steps, 1, batch, layer.hidden]
    sequences = [c.reshape(value, shape) for value in whole]
    sequence = sequences[0] if len(sequences) == 1 else c.b.concat(sequences, 1)
    ends = []
    for i in range(count):
        parts = [c.reshape(v, [1, batch, layer.hidden]) for v in last[i::count]]
        ends.append(parts[0] if len(parts) == 1 else c.b.concat(parts, 0))
    return [sequence, *ends]


def _insides(layer: _Layer) -> MLOperand:
    """Whether each sequence of the batch is longer than t, for each t: [steps, batch, 1]."""
    steps, batch = layer.x.shape[:2]
    c = layer.c
    times = np.arange(steps).reshape(steps, 1, 1)
    if isinstance(layer.lengths, np.ndarray):
        return c.constant(layer.lengths.reshape(1, batch, 1) > times, "uint8")
    assert layer.lengths is not None
    lengths = c.reshape(layer.lengths, [1, batch, 1])
    return c.b.greater(lengths, c.constant(times, lengths.data_type))


def _affine(
    layer: _Layer, d: int, gates: int
) -> tuple[Callable[[MLOperand], MLOperand], Callable[[MLOperand], MLOperand]]:
    """x·Wᵀ + b and h·Rᵀ + b of one direction, for all gates."""
    c = layer.c
    made = []
    for weight, bias in zip((layer.w, layer.r), _halves(layer, gates), strict=True):
        matrix = c.reshape(c.slice(weight, 0, d, 1), weight.shape[1:])
        options = {}
        if bias is not None:
            options["c"] = c.reshape(c.slice(bias, 0, d, 1), [bias.shape[1]])
        made.append(
            lambda v, m=matrix, o=options: c.b.gemm(v, m, b_transpose=True, **o)
        )
    from_input, from_state = made
    if layer.rounded is None:
        return from_input, from_state
    return from_input, lambda v: from_state(layer.rounded(v))


def _clipped(layer: _Layer, v: MLOperand) -> MLOperand:
    if not layer.clip:
        return v
    return layer.c.b.clamp(v, min_value=-layer.clip, max_value=layer.clip)


def _native(
    layer: _Layer, method: Callable[..., Any], gates: int, names: list[str], **options: Any
) -> list[MLOperand | None]:
    """The outputs by WebNN's operator; ``names`` are its options for the initial states."""
    b, rb = _halves(layer, gates)
    *states, sequence = method(
        layer.x, layer.w, layer.r, layer.x.shape[0], layer.hidden, bias=b, recurrent_bias=rb,
        return_sequence=True, direction=DIRECTIONS[layer.direction], activations=layer.native,
        **dict(zip(names, layer.states, strict=True)), **options,
    )
    return _outputs(layer, sequence, *states)


# -- LSTM ----------------------------------------------------------------------------------------
@onnx_operator("LSTM", first=7)
def lstm(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial_h: Tensor | None = None,
    initial_c: Tensor | None = None, peephole: Tensor | None = None, *,
    given: RecurrentAttributes, input_forget: int = 0, layout: int = 0,
) -> list[MLOperand | None]:
    return lstm_layer(
        c, x, w, r, bias, lengths, [initial_h, initial_c], peephole, input_forget, given, layout
    )


def lstm_layer(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    states: list[Tensor | None], peephole: Tensor | None, input_forget: int,
    given: RecurrentAttributes, layout: int = 0,
    rounded: Callable[[MLOperand], MLOperand] | None = None,
) -> list[MLOperand | None]:
    """Y and the last states. ``rounded`` is applied to each state before its product."""
    layer = _layer(
        c, x, w, r, bias, lengths, states, ["Sigmoid", "Tanh", "Tanh"], given, layout
    )
    layer.rounded = rounded
    plain = layer.native is not None and layer.lengths is None and rounded is None
    # ONNX's output gate sees the new state of the cell, WebNN's the old one.
    if not plain or layer.clip or input_forget or peephole is not None:
        return _outputs(layer, *_by_steps(layer, 2, _lstm_cell(peephole, input_forget)))
    return _native(layer, c.b.lstm, 4, ["initial_hidden_state", "initial_cell_state"])


def _lstm_cell(peephole: Tensor | None, input_forget: int) -> Callable[[_Layer, int], Cell]:
    def direction(layer: _Layer, d: int) -> Cell:
        c, size = layer.c, layer.hidden
        from_input, from_state = _affine(layer, d, 4)
        f, g, h_act = layer.activations[3 * d : 3 * d + 3]
        peeps: list[MLOperand] | None = None
        if peephole is not None:
            own = c.slice(peephole, 0, d, 1)
            peeps = [c.slice(own, 1, i * size, size) for i in range(3)]  # i, o, f

        def peep(v: MLOperand, index: int, state: MLOperand) -> MLOperand:
            return v if peeps is None else c.b.add(v, c.b.mul(peeps[index], state))

        def cell(x: MLOperand, h: MLOperand, state: MLOperand) -> tuple[MLOperand, ...]:
            total = c.b.add(from_input(x), from_state(h))
            i, o, forget, new = c.b.split(total, 4, axis=1)
            i = f(_clipped(layer, peep(i, 0, state)))
            if input_forget:
                forget = c.b.linear(i, alpha=-1.0, beta=1.0)
            else:
                forget = f(_clipped(layer, peep(forget, 2, state)))
            state = c.b.add(c.b.mul(forget, state), c.b.mul(i, g(_clipped(layer, new))))
            o = f(_clipped(layer, peep(o, 1, state)))
            return c.b.mul(o, h_act(state)), state

        return cell

    return direction


# -- GRU -----------------------------------------------------------------------------------------
@onnx_operator("GRU", first=7)
def gru(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial_h: Tensor | None = None, *,
    given: RecurrentAttributes, layout: int = 0, linear_before_reset: int = 0,
) -> list[MLOperand | None]:
    layer = _layer(c, x, w, r, bias, lengths, [initial_h], ["Sigmoid", "Tanh"], given, layout)
    reset_after = bool(linear_before_reset)
    if layer.native is None or layer.lengths is not None or layer.clip:
        return _outputs(layer, *_by_steps(layer, 1, _gru_cell(reset_after)))
    return _native(layer, c.b.gru, 3, ["initial_hidden_state"], reset_after=reset_after)


def _gru_cell(reset_after: bool) -> Callable[[_Layer, int], Cell]:
    def direction(layer: _Layer, d: int) -> Cell:
        c, size = layer.c, layer.hidden
        from_input, from_state = _affine(layer, d, 3)
        f, g = layer.activations[2 * d : 2 * d + 2]
        matrix = c.reshape(c.slice(layer.r, 0, d, 1), layer.r.shape[1:])
        new_matrix = c.slice(matrix, 0, 2 * size, size)
        _, recurrent = _halves(layer, 3)
        options = {}
        if recurrent is not None:
            own = c.reshape(c.slice(recurrent, 0, d, 1), [3 * size])
            options["c"] = c.slice(own, 0, 2 * size, size)

        def cell(x: MLOperand, h: MLOperand) -> tuple[MLOperand, ...]:
            xz, xr, xn = c.b.split(from_input(x), 3, axis=1)
            hz, hr, hn = c.b.split(from_state(h), 3, axis=1)
            z = f(_clipped(layer, c.b.add(xz, hz)))
            reset = f(_clipped(layer, c.b.add(xr, hr)))
            if reset_after:
                inner = c.b.mul(reset, hn)
            else:
                inner = c.b.gemm(c.b.mul(reset, h), new_matrix, b_transpose=True, **options)
            new = g(_clipped(layer, c.b.add(xn, inner)))
            keep = c.b.linear(z, alpha=-1.0, beta=1.0)
            return (c.b.add(c.b.mul(keep, new), c.b.mul(z, h)),)

        return cell

    return direction


# -- RNN -----------------------------------------------------------------------------------------
@onnx_operator("RNN", first=7)
def rnn(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None,
    lengths: Tensor | None = None, initial_h: Tensor | None = None, *,
    given: RecurrentAttributes, layout: int = 0,
) -> list[MLOperand | None]:
    layer = _layer(c, x, w, r, bias, lengths, [initial_h], ["Tanh"], given, layout)

    def of(layer: _Layer, d: int) -> Cell:
        from_input, from_state = _affine(layer, d, 1)
        f = layer.activations[d]
        return lambda v, h: (f(_clipped(layer, c.b.add(from_input(v), from_state(h)))),)

    return _outputs(layer, *_by_steps(layer, 1, of))
