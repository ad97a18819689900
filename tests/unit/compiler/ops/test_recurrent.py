"""Recurrent networks: validation, the references compared with the specification's emulation code
(its slips corrected), and the decompositions compared with the references."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

BATCH, INPUTS, SIZE, STEPS = 3, 2, 4, 5
FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def _arrays(name: str, seed: int = 0, directions: int = 1, data_type: str = "float32") -> dict:
    """Every operand of an operator, small enough that relu does not grow without bound."""
    rng = np.random.default_rng(seed)
    gates = 3 if name.startswith("gru") else 4
    shapes = {
        "weight": (gates * SIZE, INPUTS), "recurrent_weight": (gates * SIZE, SIZE),
        "bias": (gates * SIZE,), "recurrent_bias": (gates * SIZE,), "peephole_weight": (3 * SIZE,),
        **dict.fromkeys(
            ("hidden_state", "cell_state", "initial_hidden_state", "initial_cell_state"),
            (BATCH, SIZE),
        ),
    }
    if not name.endswith("_cell"):
        shapes = {key: (directions, *shape) for key, shape in shapes.items()}
    shapes["input"] = (BATCH, INPUTS) if name.endswith("_cell") else (STEPS, BATCH, INPUTS)
    operands = [p.name for p in OPERATORS[name].operands]
    return {key: rng.uniform(-0.8, 0.8, shapes[key]).astype(data_type) for key in operands}


def _arguments(name: str, **given) -> dict:
    sizes = {"steps": STEPS, "hidden_size": SIZE}
    return {
        p.name: given.get(p.name, sizes.get(p.name, p.default)) for p in OPERATORS[name].arguments
    }


def _infer(name: str, arrays: dict, arguments: dict):
    operator = OPERATORS[name]
    described = {
        key: None if a is None else MLOperandDescriptor(a.dtype.name, a.shape)
        for key, a in arrays.items()
    }
    inferred = operator.validate(described, arguments, "here")
    # The verifier infers again from the normal form.
    assert operator.validate(described, dict(inferred.arguments)) == inferred
    return inferred


def _compute(name: str, arrays: dict, **given) -> list[np.ndarray]:
    inferred = _infer(name, arrays, _arguments(name, **given))
    return OPERATORS[name].evaluate(inferred.outputs, arrays, inferred.arguments)


def _expanded(name: str, arrays: dict, **given) -> list[np.ndarray]:
    """The decomposition, each node computed by its own reference."""
    inferred = _infer(name, arrays, _arguments(name, **given))
    emit = Emitter()
    operands = {key: None if a is None else emit.constant(a) for key, a in arrays.items()}
    results = OPERATORS[name].lowering.decompose(
        emit, operands, inferred.arguments, inferred.outputs
    )
    known: dict[Value, np.ndarray] = {}

    def lookup(value: Value) -> np.ndarray:
        return value.data if value.is_constant else known[value]

    for node in emit.nodes:
        known.update(zip(node.outputs, node.evaluate(lookup), strict=True))
    assert [v.descriptor for v in results] == list(inferred.outputs)
    return [lookup(v) for v in results]


# -- the specification's emulation, gate by gate, with its constants and layouts filled in


def _gate(arrays: dict, x, h, index: int) -> tuple[np.ndarray, np.ndarray]:
    rows = slice(index * SIZE, (index + 1) * SIZE)
    bias = 0 if arrays["bias"] is None else arrays["bias"][rows]
    other = 0 if arrays["recurrent_bias"] is None else arrays["recurrent_bias"][rows]
    own = bias + x @ arrays["weight"][rows].T
    return own, other + h @ arrays["recurrent_weight"][rows].T


def _gru_cell(arrays: dict, x, h, reset_after: bool, layout: str, activations) -> np.ndarray:
    first, second = (FUNCTIONS[a] for a in activations)
    z = first(sum(_gate(arrays, x, h, layout.index("z"))))
    r = first(sum(_gate(arrays, x, h, layout.index("r"))))
    if reset_after:
        own, other = _gate(arrays, x, h, 2)
        n = second(own + r * other)
    else:
        n = second(sum(_gate(arrays, x, r * h, 2)))
    return z * h + n * (1 - z)


def _lstm_cell(arrays: dict, x, h, c, layout: str, activations) -> tuple[np.ndarray, np.ndarray]:
    first, second, third = (FUNCTIONS[a] for a in activations)
    peephole = arrays["peephole_weight"]
    p_i, p_o, p_f = (0, 0, 0) if peephole is None else peephole.reshape(3, SIZE)
    i, o, f, g = (sum(_gate(arrays, x, h, layout.index(gate))) for gate in "iofg")
    i, o, f = first(c * p_i + i), first(c * p_o + o), first(c * p_f + f)
    cell = f * c + i * second(g)
    return o * third(cell), cell


def _sequence(name: str, arrays: dict, direction: str, step) -> list[np.ndarray]:
    """Final states and all hidden states; ``step(weights, x, states)`` is the cell."""
    directions = 2 if direction == "both" else 1
    names = ["initial_hidden_state"] + ["initial_cell_state"] * (name == "lstm")
    finals, sequence = [], np.zeros((STEPS, directions, BATCH, SIZE), np.float32)
    for d in range(directions):
        weights = {k: None if v is None else v[d] for k, v in arrays.items() if k != "input"}
        states = [np.zeros((BATCH, SIZE)) if weights[n] is None else weights[n] for n in names]
        backward = d == 1 or direction == "backward"
        for t in range(STEPS)[:: -1 if backward else 1]:
            states = step(weights, arrays["input"][t], states)
            sequence[t, d] = states[0]
        finals.append(states)
    return [*(np.stack(states) for states in zip(*finals, strict=True)), sequence]


def _close(results: list[np.ndarray], expected: list[np.ndarray], error: float = 2e-6) -> None:
    assert len(results) == len(expected)
    for own, other in zip(results, expected, strict=True):
        assert_allclose(own, other, rtol=error, atol=error)


GRU_OPTIONS = list(itertools.product(
    [True, False], ["zrn", "rzn"], [("sigmoid", "tanh"), ("relu", "sigmoid"), ("tanh", "relu")]
))
LSTM_OPTIONS = list(itertools.product(
    ["iofg", "ifgo"],
    [("sigmoid", "tanh", "tanh"), ("relu", "sigmoid", "tanh"), ("tanh", "relu", "sigmoid")],
))
ABSENT = [(), ("bias",), ("recurrent_bias",), ("bias", "recurrent_bias")]


@pytest.mark.parametrize(("reset_after", "layout", "activations"), GRU_OPTIONS)
@pytest.mark.parametrize("absent", ABSENT)
def test_gru_cell(reset_after, layout, activations, absent) -> None:
    arrays = _arrays("gru_cell") | dict.fromkeys(absent)
    options = {"reset_after": reset_after, "layout": layout, "activations": activations}
    expected = _gru_cell(arrays, arrays["input"], arrays["hidden_state"], **options)
    _close(_compute("gru_cell", arrays, **options), [expected])
    _close(_expanded("gru_cell", arrays, **options), [expected])


@pytest.mark.parametrize(("layout", "activations"), LSTM_OPTIONS)
@pytest.mark.parametrize("absent", [*ABSENT, ("peephole_weight",)])
def test_lstm_cell(layout, activations, absent) -> None:
    arrays = _arrays("lstm_cell") | dict.fromkeys(absent)
    options = {"layout": layout, "activations": activations}
    expected = list(_lstm_cell(
        arrays, arrays["input"], arrays["hidden_state"], arrays["cell_state"], **options
    ))
    _close(_compute("lstm_cell", arrays, **options), expected)
    _close(_expanded("lstm_cell", arrays, **options), expected)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("return_sequence", [False, True])
@pytest.mark.parametrize("absent", [(), ("initial_hidden_state", "bias")])
@pytest.mark.parametrize("reset_after", [False, True])
def test_gru(direction, return_sequence, absent, reset_after) -> None:
    arrays = _arrays("gru", 1, 2 if direction == "both" else 1) | dict.fromkeys(absent)
    options = {"reset_after": reset_after, "layout": "rzn", "activations": ("sigmoid", "tanh")}

    def step(weights, x, states):
        return [_gru_cell(weights, x, *states, **options)]

    expected = _sequence("gru", arrays, direction, step)[: 1 + return_sequence]
    options |= {"direction": direction, "return_sequence": return_sequence}
    _close(_compute("gru", arrays, **options), expected)
    _close(_expanded("gru", arrays, **options), expected)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
@pytest.mark.parametrize("return_sequence", [False, True])
@pytest.mark.parametrize(
    "absent", [(), ("initial_hidden_state", "recurrent_bias"), ("initial_cell_state",)]
)
def test_lstm(direction, return_sequence, absent) -> None:
    arrays = _arrays("lstm", 1, 2 if direction == "both" else 1) | dict.fromkeys(absent)
    options = {"layout": "ifgo", "activations": ("sigmoid", "tanh", "relu")}

    def step(weights, x, states):
        return list(_lstm_cell(weights, x, *states, **options))

    expected = _sequence("lstm", arrays, direction, step)[: 2 + return_sequence]
    options |= {"direction": direction, "return_sequence": return_sequence}
    _close(_compute("lstm", arrays, **options), expected)
    _close(_expanded("lstm", arrays, **options), expected)


@pytest.mark.parametrize("name", ["gru", "gru_cell", "lstm", "lstm_cell"])
def test_float16_is_rounded_once(name: str) -> None:
    arrays = _arrays(name, 2, data_type="float16")
    wide = {key: a.astype(np.float32) for key, a in arrays.items()}
    for own, expanded, other in zip(
        _compute(name, arrays), _expanded(name, arrays), _compute(name, wide), strict=True
    ):
        assert own.dtype == expanded.dtype == np.float16
        np.testing.assert_array_equal(own, other.astype(np.float16))
        # The order of the sums may change a rounding.
        assert_allclose(expanded, own, rtol=1e-3)


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_steps_and_directions_share_one_projection(name: str) -> None:
    arrays = _arrays(name, directions=2)
    emit = Emitter()
    operands = {key: emit.constant(a) for key, a in arrays.items()}
    inferred = _infer(name, arrays, _arguments(name, direction="both"))
    OPERATORS[name].lowering.decompose(emit, operands, inferred.arguments, inferred.outputs)
    (product,) = (n for n in emit.nodes if n.operator.name == "gemm")
    gates = 3 if name == "gru" else 4
    assert product.output.shape == (STEPS * BATCH, 2 * gates * SIZE)
    assert [n.operator.name for n in emit.nodes if "recurrence" in n.operator.name] == [
        f"{name}_recurrence"
    ]


@pytest.mark.parametrize(
    ("name", "wrong", "arguments", "message"),
    [
        ("gru", {}, {"steps": 4}, r"input is float32\[5, 3, 2\]; its first dimension .*\(4\)"),
        ("gru", {}, {"hidden_size": 5}, r"weight is .*; shape \[1, 15, 2\] is expected"),
        ("gru", {}, {"activations": ("relu",)}, "activations .* 2 are expected"),
        ("gru", {}, {"direction": "both"}, r"shape \[2, 12, 2\] is expected"),
        ("gru", {"bias": (1, 13)}, {}, r"bias is .*; shape \[1, 12\] is expected"),
        ("gru", {"initial_hidden_state": (2, 3, 4)}, {}, r"shape \[1, 3, 4\] is expected"),
        ("gru_cell", {"hidden_state": (2, 4)}, {}, r"hidden_state is .*; shape \[3, 4\]"),
        ("gru_cell", {"recurrent_bias": (4, 3)}, {}, "recurrent_bias is .*rank has to be 1"),
        ("gru_cell", {"input": (3, 3)}, {}, r"weight is .*; shape \[12, 3\]"),
        ("lstm", {}, {"steps": 0}, "steps is 0"),
        ("lstm", {}, {"activations": ("relu", "tanh")}, "2 items; 3 are expected"),
        ("lstm", {"peephole_weight": (1, 16)}, {}, r"shape \[1, 12\] is expected"),
        ("lstm", {"recurrent_weight": (1, 16, 5)}, {}, r"shape \[1, 16, 4\] is expected"),
        ("lstm_cell", {"cell_state": (3, 5)}, {}, r"cell_state is .*; shape \[3, 4\]"),
        ("lstm_cell", {"recurrent_bias": (15,)}, {}, r"shape \[16\] is expected"),
        ("lstm_cell", {}, {"hidden_size": 0}, r"shape \[0, 2\] is expected"),
    ],
)
def test_rejects(name: str, wrong: dict, arguments: dict, message: str) -> None:
    arrays = _arrays(name)
    arrays |= {key: np.zeros(shape, np.float32) for key, shape in wrong.items()}
    with pytest.raises(TypeError, match=rf"{name} \[here\]: .*{message}"):
        _infer(name, arrays, _arguments(name, **arguments))


def test_types_have_to_agree() -> None:
    arrays = _arrays("gru_cell")
    arrays["bias"] = arrays["bias"].astype(np.float16)
    with pytest.raises(TypeError, match="bias is float16"):
        _infer("gru_cell", arrays, _arguments("gru_cell"))


def test_hidden_size_times_gates_is_a_dimension() -> None:
    size = 400_000_000
    described = {p.name: None for p in OPERATORS["lstm_cell"].operands} | {
        "input": MLOperandDescriptor("float32", (1, 1)),
        "weight": MLOperandDescriptor("float32", (4 * size, 1)),
        "recurrent_weight": MLOperandDescriptor("float32", (4 * size, size)),
        "hidden_state": MLOperandDescriptor("float32", (1, size)),
        "cell_state": MLOperandDescriptor("float32", (1, size)),
    }
    with pytest.raises(TypeError, match="hidden_size is 400000000; 8 times it"):
        OPERATORS["lstm_cell"].validate(
            described, _arguments("lstm_cell", hidden_size=size), "here"
        )


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_the_length_of_a_sequence_costs_no_nodes(name: str) -> None:
    def nodes(steps: int) -> list[str]:
        arrays = _arrays(name, directions=2)
        arrays["input"] = np.zeros((steps, BATCH, INPUTS), np.float32)
        emit = Emitter()
        inferred = _infer(name, arrays, _arguments(name, steps=steps, direction="both"))
        operands = {key: emit.constant(a) for key, a in arrays.items()}
        OPERATORS[name].lowering.decompose(emit, operands, inferred.arguments, inferred.outputs)
        return [n.operator.name for n in emit.nodes]

    assert nodes(1) == nodes(1000)


@pytest.mark.parametrize(("name", "arguments"), [
    ("gru", {}), ("gru", {"reset_after": False, "layout": "rzn"}),
    ("lstm", {}), ("lstm", {"layout": "ifgo"}),
])
@pytest.mark.parametrize("direction", ["backward", "both"])
@pytest.mark.parametrize("units", [None, 3])
def test_recurrences_as_loops(name: str, arguments: dict, direction: str, units: Any) -> None:
    """The computation on devices whose limits forbid the kernel."""
    rng = np.random.default_rng(5)
    directions, gates = 2 if direction == "both" else 1, 3 if name == "gru" else 4
    emit = Emitter()

    def numbers(*shape: int) -> Value:
        return emit.constant(rng.uniform(-0.8, 0.8, shape).astype(np.float32))

    more = {"initial_hidden_state": numbers(directions, BATCH, SIZE)}
    if name == "lstm":
        more["peephole_weight"] = numbers(directions, 3 * SIZE)
    elif arguments.get("reset_after", True):
        more["recurrent_bias"] = numbers(directions, 3 * SIZE)
    getattr(emit, f"{name}_recurrence")(
        numbers(STEPS, BATCH, directions, gates * SIZE), numbers(directions, SIZE, gates * SIZE),
        direction=direction, return_sequence=True, units=units, **more, **arguments,
    )
    (node,) = emit.nodes
    expected = node.evaluate(lambda value: value.data)
    parts = Emitter()
    results = node.operator.lowering.decompose(
        parts, node.gather(lambda v: v), node.arguments, node.results
    )
    known: dict[Value, np.ndarray] = {}
    for part in parts.nodes:
        computed = part.evaluate(lambda v: v.data if v.is_constant else known[v])
        known.update(zip(part.outputs, computed, strict=True))
    for value, wanted in zip(results, expected, strict=True):
        assert_allclose(known[value], wanted, atol=2e-6)
