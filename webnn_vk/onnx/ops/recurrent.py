"""LSTM, GRU and RNN: WebNN's own where they fit, else unrolled from element-wise operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..errors import Unsupported
from ..records import onnx_operator
from ..values import Tensor

#: Steps that are unrolled at most.
MAX_STEPS = 2048
_NATIVE = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
_DIRECTIONS = {"forward": "forward", "reverse": "backward", "bidirectional": "both"}
Cell = Callable[..., tuple[MLOperand, ...]]


@dataclass
class _Layer:
    """What the three have in common: [steps, batch, …] inputs, weights per direction."""

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
    #: What a product with recurrent weights is given of a state, where not the state itself.
    rounded: Callable[[MLOperand], MLOperand] | None = None

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1


def _layer(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    states: list[Tensor | None], default: list[str], attributes: dict[str, Any],
) -> _Layer:
    direction = attributes["direction"]
    if direction not in _DIRECTIONS:
        raise Unsupported(f"direction {direction!r} is unknown")
    batch_first = bool(attributes["layout"])
    turn = (lambda v, order: c.transpose(v, order)) if batch_first else (lambda v, _: c.operand(v))
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
    if steps > MAX_STEPS:
        raise Unsupported(f"{steps} steps, {MAX_STEPS} at most")
    directions = 2 if direction == "bidirectional" else 1
    names = attributes["activations"] or default * directions
    alphas = list(attributes["activation_alpha"] or [])
    betas = list(attributes["activation_beta"] or [])
    if len(names) != len(default) * directions:
        raise Unsupported(f"{len(names)} activations, {len(default) * directions} are expected")
    functions = [_activation(c, name, alphas, betas) for name in names]
    native: list[str] | None = None
    if all(n in _NATIVE for n in names) and names[: len(default)] == names[-len(default) :]:
        native = [_NATIVE[n] for n in names[: len(default)]]
    known = None
    if lengths is not None:
        known = lengths.array if lengths.known else c.cast(lengths, "int32")
        if isinstance(known, np.ndarray) and (known == steps).all():
            known = None
    return _Layer(
        c, turn(x, [1, 0, 2]), w.operand, r.operand, None if bias is None else bias.operand, known,
        [None if s is None else turn(s, [1, 0, 2]) for s in states],
        attributes["hidden_size"] or r.shape[-1], direction, functions, native,
        attributes["clip"], batch_first,
    )


def _activation(
    c: NodeContext, name: str, alphas: list[float], betas: list[float]
) -> Callable[[MLOperand], MLOperand]:
    """An activation, its parameters taken from the lists in order."""

    def take(values: list[float], default: float) -> float:
        return values.pop(0) if values else default

    if name in _NATIVE:
        return getattr(c.b, _NATIVE[name])
    if name in ("Softsign", "Softplus"):
        return getattr(c.b, name.lower())
    if name == "Affine":
        a, b = take(alphas, 1.0), take(betas, 0.0)
        return lambda v: c.b.linear(v, alpha=a, beta=b)
    if name == "LeakyRelu":
        a = take(alphas, 0.01)
        return lambda v: c.b.leaky_relu(v, alpha=a)
    if name == "ThresholdedRelu":
        a = take(alphas, 1.0)
        return lambda v: c.b.where(c.b.greater(v, a), v, 0.0)
    if name == "ScaledTanh":
        a, b = take(alphas, 1.0), take(betas, 1.0)
        return lambda v: c.b.mul(c.b.tanh(c.b.mul(v, b)), a)
    if name == "HardSigmoid":
        a, b = take(alphas, 0.2), take(betas, 0.5)
        return lambda v: c.b.hard_sigmoid(v, alpha=a, beta=b)
    if name == "Elu":
        a = take(alphas, 1.0)
        return lambda v: c.b.elu(v, alpha=a)
    raise Unsupported(f"activation {name!r} is not supported")


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


def _unrolled(layer: _Layer, count: int, cell: Callable[[_Layer, int], Cell]) -> list[MLOperand]:
    """Y and the ``count`` last states, one step after the other."""
    c = layer.c
    steps, batch = layer.x.shape[:2]
    kind = layer.x.data_type
    zero = c.b.expand(c.constant(0, kind), [batch, layer.hidden])
    by_direction = []
    for d in range(layer.directions):
        backward = layer.direction == "reverse" or d == 1
        step = cell(layer, d)
        state = [
            zero if s is None else c.reshape(c.slice(s, 0, d, 1), [batch, layer.hidden])
            for s in layer.states
        ]
        made: list[MLOperand | None] = [None] * steps
        for t in range(steps - 1, -1, -1) if backward else range(steps):
            x = c.reshape(c.slice(layer.x, 0, t, 1), [batch, layer.x.shape[2]])
            new = step(x, *state)
            inside = _inside(layer, t, batch)
            if inside is None:
                state = list(new)
                made[t] = new[0]
            else:
                made[t] = c.b.where(inside, new[0], zero)
                state = [c.b.where(inside, n, s) for n, s in zip(new, state, strict=True)]
        rows = [c.reshape(v, [1, 1, batch, layer.hidden]) for v in made]
        sequence = rows[0] if steps == 1 else c.b.concat(rows, 0)
        by_direction.append([sequence, *(c.reshape(s, [1, batch, layer.hidden]) for s in state)])
    if layer.directions == 1:
        return by_direction[0]
    return [
        c.b.concat([a, b], 1 if i == 0 else 0)
        for i, (a, b) in enumerate(zip(*by_direction, strict=True))
    ]


def _inside(layer: _Layer, t: int, batch: int) -> MLOperand | None:
    """Which sequences of the batch are longer than t; None when all are."""
    if layer.lengths is None:
        return None
    c = layer.c
    if isinstance(layer.lengths, np.ndarray):
        mask = layer.lengths.reshape(batch, 1) > t
        return None if mask.all() else c.constant(mask, "uint8")
    return c.b.greater(c.reshape(layer.lengths, [batch, 1]), t)


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


def _gates(c: NodeContext, v: MLOperand, count: int) -> Sequence[MLOperand]:
    return c.b.split(v, count, axis=1)


# -- LSTM ----------------------------------------------------------------------------------------
@onnx_operator("LSTM", first=7)
def lstm(
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peephole: Tensor | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> list[MLOperand | None]:
    attributes = {
        "activations": activations, "activation_alpha": activation_alpha, "activation_beta":
        activation_beta, "clip": clip, "direction": direction, "hidden_size": hidden_size,
        "layout": layout,
    }
    return lstm_layer(
        c, x, w, r, bias, lengths, initial_h, initial_c, peephole, input_forget, attributes
    )


def lstm_layer(
    c: NodeContext, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, lengths: Tensor | None,
    initial_h: Tensor | None, initial_c: Tensor | None, peephole: Tensor | None, input_forget: int,
    attributes: dict[str, Any], rounded: Callable[[MLOperand], MLOperand] | None = None,
) -> list[MLOperand | None]:
    """Y and the last states. ``rounded`` is applied to each state before its product."""
    layer = _layer(
        c, x, w, r, bias, lengths, [initial_h, initial_c], ["Sigmoid", "Tanh", "Tanh"], attributes
    )
    layer.rounded = rounded
    plain = layer.native is not None and layer.lengths is None and rounded is None
    # ONNX's output gate sees the new state of the cell, WebNN's the old one.
    if not plain or layer.clip or input_forget or peephole is not None:
        return _outputs(layer, *_unrolled(layer, 2, _lstm_cell(peephole, input_forget)))
    b, rb = _halves(layer, 4)
    options = {
        "bias": b, "recurrent_bias": rb,
        "initial_hidden_state": layer.states[0], "initial_cell_state": layer.states[1],
    }
    h, state, sequence = c.b.lstm(
        layer.x, layer.w, layer.r, layer.x.shape[0], layer.hidden, return_sequence=True,
        direction=_DIRECTIONS[layer.direction], activations=layer.native,
        **{k: v for k, v in options.items() if v is not None},
    )
    return _outputs(layer, sequence, h, state)


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
            i, o, forget, new = _gates(c, total, 4)
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
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> list[MLOperand | None]:
    attributes = {
        "activations": activations, "activation_alpha": activation_alpha, "activation_beta":
        activation_beta, "clip": clip, "direction": direction, "hidden_size": hidden_size,
        "layout": layout,
    }
    layer = _layer(c, x, w, r, bias, lengths, [initial_h], ["Sigmoid", "Tanh"], attributes)
    if layer.native is None or layer.lengths is not None or clip:
        return _outputs(layer, *_unrolled(layer, 1, _gru_cell(bool(linear_before_reset))))
    b, rb = _halves(layer, 3)
    options = {"bias": b, "recurrent_bias": rb, "initial_hidden_state": layer.states[0]}
    h, sequence = c.b.gru(
        layer.x, layer.w, layer.r, layer.x.shape[0], layer.hidden, return_sequence=True,
        reset_after=bool(linear_before_reset), direction=_DIRECTIONS[direction],
        activations=layer.native, **{k: v for k, v in options.items() if v is not None},
    )
    return _outputs(layer, sequence, h)


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
            xz, xr, xn = _gates(c, from_input(x), 3)
            hz, hr, hn = _gates(c, from_state(h), 3)
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
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activations: list[str] | None = None,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> list[MLOperand | None]:
    attributes = {
        "activations": activations, "activation_alpha": activation_alpha, "activation_beta":
        activation_beta, "clip": clip, "direction": direction, "hidden_size": hidden_size,
        "layout": layout,
    }
    layer = _layer(c, x, w, r, bias, lengths, [initial_h], ["Tanh"], attributes)

    def of(layer: _Layer, d: int) -> Cell:
        from_input, from_state = _affine(layer, d, 1)
        f = layer.activations[d]
        return lambda v, h: (f(_clipped(layer, c.b.add(from_input(v), from_state(h)))),)

    return _outputs(layer, *_unrolled(layer, 1, of))
