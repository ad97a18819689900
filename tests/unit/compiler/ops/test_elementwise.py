"""Element-wise operators: validation, and references compared with hand-computed values and with
the specification's emulation code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.ulp import ulp_distance
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.lowering import Elementwise, View
from webnn_vk.compiler.ops.special import erf, erfc, gelu
from webnn_vk.compiler.types.data_types import (
    ALL_TYPES,
    FLOAT_TYPES,
    MLOperandDescriptor,
    cast_number,
)

NAN, INF = math.nan, math.inf
ELEMENTWISE = sorted(n for n, o in OPERATORS.items() if isinstance(o.lowering, Elementwise))
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


def run(name: str, *operands: np.ndarray, **arguments: object) -> np.ndarray:
    """The reference of one operator."""
    emit = Emitter()
    given = [emit.constant(a) for a in operands]
    getattr(emit, name)(*given, **arguments)
    (result,) = emit.nodes[-1].evaluate(lambda v: v.data)
    return result


def infer(name: str, *operands: tuple[str, tuple[int, ...]], **arguments: object):
    emit = Emitter()
    given = [Value(MLOperandDescriptor(t, s), name="x") for t, s in operands]
    return getattr(emit, name)(*given, **arguments).descriptor


def compute(emit: Emitter, value: Value) -> np.ndarray:
    """A graph of constants, computed by the references."""
    known: dict[Value, np.ndarray] = {}
    graph = Graph({}, {"out": value}, tuple(emit.nodes))
    for node in graph.nodes:
        arrays = node.evaluate(lambda v: v.data if v.data is not None else known[v])
        known.update(zip(node.outputs, arrays, strict=True))
    return known[value] if value in known else value.data


def same(got: np.ndarray, expected: list, data_type: str) -> None:
    want = np.array(expected, data_type)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


# -- values ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "a", "b", "expected", "data_type"),
    [
        ("add", [250, 255], [10, 1], [4, 0], "uint8"),
        ("add", [127], [1], [-128], "int8"),
        ("sub", [0], [1], [2**64 - 1], "uint64"),
        ("mul", [2**32 + 1], [2**32 + 1], [2**33 + 1], "uint64"),
        ("mul", [-128], [-1], [-128], "int8"),
        ("div", [7, -7, 7, -7, 5], [2, 2, -2, -2, 0], [3, -3, -3, 3, 0], "int32"),
        ("div", [-128, -128], [-1, 3], [-128, -42], "int8"),
        ("div", [INT_MIN, INT_MIN, INT_MAX], [-1, 1, 2], [INT_MIN, INT_MIN, 2**62 - 1], "int64"),
        ("div", [200, 9], [7, 0], [28, 0], "uint8"),
        ("div", [1, -1, 0, INF], [0, 0, 0, INF], [INF, -INF, NAN, NAN], "float32"),
        ("max", [1, NAN, 2], [3, 1, NAN], [3, NAN, NAN], "float32"),
        ("min", [1, NAN, 2], [3, 1, NAN], [1, NAN, NAN], "float16"),
        ("max", [INT_MIN, 2**62 + 1], [INT_MAX, 2**62], [INT_MAX, 2**62 + 1], "int64"),
        ("pow", [3, 2, -2, 0, 0, -1, 7], [4, -1, 3, 0, -2, -3, -1], [81, 0, -8, 1, 0, -1, 0],
         "int32"),
        ("pow", [3], [6], [729 % 256], "uint8"),
        ("pow", [3], [41], [3**41 % 2**64], "uint64"),
        ("pow", [2, 0, -8], [0.5, 0, 1 / 3], [math.sqrt(2), 1, NAN], "float32"),
        ("equal", [1, NAN, 0.0], [1, NAN, -0.0], [1, 0, 1], "float32"),
        ("not_equal", [1, NAN, 0.0], [1, NAN, -0.0], [0, 1, 0], "float32"),
        ("lesser_or_equal", [2**53 + 1], [2**53], [0], "int64"),
        ("greater", [2**63], [1], [1], "uint64"),
        ("greater_or_equal", [NAN, 2], [NAN, 2], [0, 1], "float16"),
        ("lesser", [-1, 3], [0, 3], [1, 0], "int8"),
        ("logical_and", [0, 2, 255], [1, 4, 0], [0, 1, 0], "uint8"),
        ("logical_or", [0, 2, 0], [0, 4, 255], [0, 1, 1], "uint8"),
        ("logical_xor", [2, 2, 0], [0, 4, 255], [1, 0, 1], "uint8"),
        ("prelu", [-4, 0, 3], [3, 3, 3], [-12, 0, 3], "int8"),
    ],
)  # fmt: skip
def test_two_operands(name, a, b, expected, data_type) -> None:
    limit = OPERATORS[name].limit("output").types
    got = run(name, np.array(a, data_type), np.array(b, data_type))
    same(got, expected, data_type if data_type in limit else "uint8")


@pytest.mark.parametrize(
    ("name", "x", "expected", "data_type", "arguments"),
    [
        ("abs", [-5, INT_MIN], [5, INT_MIN], "int64", {}),
        ("abs", [-0.0, -INF], [0.0, INF], "float32", {}),
        ("neg", [5, -128], [-5, -128], "int8", {}),
        ("sign", [-3, 0, INT_MAX], [-1, 0, 1], "int64", {}),
        ("sign", [-0.5, 0.0, NAN], [-1, 0.0, NAN], "float32", {}),
        ("round_even", [0.5, 1.5, -2.5, 2.4], [0.0, 2, -2, 2], "float32", {}),
        ("ceil", [-0.5, 1.25], [-0.0, 2], "float16", {}),
        ("floor", [-0.5, 1.25], [-1, 1], "float32", {}),
        ("reciprocal", [4, -0.0], [0.25, -INF], "float32", {}),
        ("sqrt", [9, -1], [3, NAN], "float32", {}),
        ("log", [1, 0, -1], [0.0, -INF, NAN], "float32", {}),
        ("identity", [1, 255], [1, 255], "uint8", {}),
        ("logical_not", [0, 1, 7], [1, 0, 0], "uint8", {}),
        ("relu", [-3, 4], [0, 4], "int32", {}),
        ("relu", [-3, NAN, 2], [0.0, NAN, 2], "float32", {}),
        ("clamp", [-3, 0, 9], [-1, 0, 5], "int8", {"min_value": -1, "max_value": 5}),
        ("clamp", [-3, NAN, 9], [-1, NAN, 9], "float32", {"min_value": -1}),
        ("clamp", [3, 9], [3, 5], "float16", {"min_value": NAN, "max_value": 5.0}),
        ("clamp", [0, 2**63], [7, 2**63], "uint64", {"min_value": 7}),
        ("clamp", [3, 9], [0, 0], "uint64", {"max_value": -1}),
        ("leaky_relu", [-4, 2], [-1, 2], "float32", {"alpha": 0.25}),
        ("linear", [-4, 2], [-1, 2], "float32", {"alpha": 0.5, "beta": 1}),
        ("hard_sigmoid", [-9, 1, 9], [0.0, 0.75, 1], "float32", {"alpha": 0.25}),
        ("hard_swish", [-4, 3, 9], [-0.0, 3, 9], "float32", {}),
        ("softsign", [-3, 1], [-0.75, 0.5], "float32", {}),
        ("elu", [-INF, 2], [-3, 2], "float32", {"alpha": 3}),
        ("sigmoid", [-INF, 0, INF], [0.0, 0.5, 1], "float32", {}),
        ("softplus", [-INF, 50], [0.0, 50], "float32", {}),
        ("tanh", [-INF, 0.0, 30], [-1, 0.0, 1], "float16", {}),
    ],
)
def test_one_operand(name, x, expected, data_type, arguments) -> None:
    same(run(name, np.array(x, data_type), **arguments), expected, data_type)


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_special_values_are_told(data_type: str) -> None:
    x = np.array([0, 1, -INF, NAN, INF, 65504], data_type)
    same(run("is_nan", x), [0, 0, 0, 1, 0, 0], "uint8")
    same(run("is_infinite", x), [0, 0, 1, 0, 1, 0], "uint8")


@pytest.mark.parametrize(
    ("data_type", "x", "to", "expected"),
    [
        ("float32", [1.9, -1.9, NAN, INF, 3e9, -1], "uint8", [1, 255, 0, 0, 10**9 * 3 % 256, 255]),
        ("float32", [2.0**40 + 2.0**20, -(2.0**31)], "int32", [2**20, -(2**31)]),
        ("float32", [2.0**63, -1.5], "uint64", [2**63, 2**64 - 1]),
        ("float32", [65519, 65520, 1 + 2**-11, 1 + 3 * 2**-11], "float16",
         [65504, INF, 1, 1 + 2 * 2**-10]),
        ("int8", [-1, 127], "uint8", [255, 127]),
        ("int64", [2**32 + 5, -1], "uint32", [5, 2**32 - 1]),
        ("int64", [2**24 + 1, 2**24 + 3, -(2**63)], "float32", [2**24, 2**24 + 4, -(2**63)]),
        ("uint64", [2**64 - 1], "float32", [2.0**64]),
        ("int32", [2049, 65520, -70000], "float16", [2048, INF, -INF]),
        ("float16", [0.5, -7.99], "int64", [0, -7]),
    ],
)  # fmt: skip
def test_cast(data_type, x, to, expected) -> None:
    same(run("cast", np.array(x, data_type), data_type=to), expected, to)


def test_where_broadcasts_three_ways() -> None:
    condition = np.array([[0], [2]], np.uint8)
    got = run("where", condition, np.array([1, 2, 3], np.int64), np.array(9, np.int64))
    same(got, [[9, 9, 9], [1, 2, 3]], "int64")


def test_where_keeps_bits() -> None:
    x = np.array([0x7E01, 0x0001], np.uint16).view(np.float16)
    got = run("where", np.array([1, 1], np.uint8), x, x)
    assert got.tobytes() == x.tobytes()


def test_quantize_rounds_to_even_and_saturates() -> None:
    x = np.array([0.5, 1.5, 2.5, -300, 300, NAN], np.float32)
    one, zero = np.ones(1, np.float32), np.array([3], np.int8)
    same(run("quantize_linear", x, one, zero), [3, 5, 5, -128, 127, 3], "int8")
    same(run("quantize_linear", x, one, np.array([3], np.uint8)), [3, 5, 5, 0, 255, 3], "uint8")


def test_quantize_is_exact_beyond_24_bits() -> None:
    x, one = np.array([1.0, INF, -INF, 1.0], np.float32), np.ones(4, np.float32)
    zero = np.array([2**24, 5, 0, 2**31 - 1], np.int32)
    same(
        run("quantize_linear", x, one, zero),
        [2**24 + 1, 2**31 - 1, -(2**31), 2**31 - 1],
        "int32",
    )
    back = run("dequantize_linear", zero, one, np.array([2**24 - 3, 6, 1, 2**31 - 4], np.int32))
    same(back, [3, -1, -1, 3], "float32")


def test_blocks() -> None:
    x = np.arange(24, dtype=np.uint8).reshape(6, 4)
    scale = np.array([[1, 2], [10, 20]], np.float32)
    zero = np.array([[0, 1], [2, 3]], np.uint8)
    expected = [
        [(int(x[i, j]) - int(zero[i // 3, j // 2])) * scale[i // 3, j // 2] for j in range(4)]
        for i in range(6)
    ]
    got = run("dequantize_linear", x, scale, zero)
    same(got, expected, "float32")
    same(run("quantize_linear", got, scale, zero), x.tolist(), "uint8")


def test_special_functions() -> None:
    x = np.concatenate([np.linspace(-6, 6, 2001), [0.0, 1e-20, -1e-300, INF, -INF]])
    expected = np.array([math.erf(v) for v in x])
    assert_allclose(erf(x), expected, rtol=1e-10)
    tail = np.linspace(-5, 26, 1000)
    assert_allclose(erfc(tail), [math.erfc(v) for v in tail], rtol=1e-9)
    y = np.linspace(-30, 30, 997)
    assert_allclose(
        gelu(y), [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in y], rtol=1e-9
    )
    assert np.isnan(erf(np.array([NAN]))[0]) and np.isnan(gelu(np.array([NAN]))[0])
    same(gelu(np.array([INF, -INF], np.float32)), [INF, -0.0], "float32")


# -- the specification's emulation code -----------------------------------------------------------
SAMPLES = np.concatenate([np.linspace(-8, 8, 129), [0.0, 1e-3, -1e-3]]).astype(np.float32)


def _emulated(name: str, emit: Emitter, x: Value) -> Value:
    def number(value: float) -> Value:
        return emit.constant(value, x.data_type)

    match name:
        case "clamp":
            return emit.min(emit.max(x, number(-1.5)), number(2.25))
        case "elu":
            below = emit.sub(emit.exp(emit.min(number(0), x)), number(1))
            return emit.add(emit.max(number(0), x), emit.mul(number(0.75), below))
        case "gelu":
            scaled = emit.erf(emit.div(x, emit.sqrt(number(2))))
            return emit.mul(emit.mul(x, number(0.5)), emit.add(number(1), scaled))
        case "hard_sigmoid":
            line = emit.add(emit.mul(number(0.3), x), number(0.4))
            return emit.max(emit.min(line, number(1)), number(0))
        case "hard_swish":
            bounded = emit.max(number(0), emit.min(number(6), emit.add(x, number(3))))
            return emit.div(emit.mul(x, bounded), number(6))
        case "leaky_relu":
            below = emit.mul(number(0.125), emit.min(number(0), x))
            return emit.add(emit.max(number(0), x), below)
        case "linear":
            return emit.add(emit.mul(x, number(1.5)), number(-2))
        case "relu":
            return emit.max(number(0), x)
        case "sigmoid":
            return emit.div(number(1), emit.add(emit.exp(emit.neg(x)), number(1)))
        case "softplus":
            return emit.log(emit.add(emit.exp(x), number(1)))
        case "softsign":
            return emit.div(x, emit.add(number(1), emit.abs(x)))
        case "tanh":
            e = emit.exp(emit.mul(number(2), x))
            return emit.div(emit.sub(e, number(1)), emit.add(e, number(1)))
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("clamp", {"min_value": -1.5, "max_value": 2.25}),
        ("elu", {"alpha": 0.75}),
        ("gelu", {}),
        ("hard_sigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("hard_swish", {}),
        ("leaky_relu", {"alpha": 0.125}),
        ("linear", {"alpha": 1.5, "beta": -2.0}),
        ("relu", {}),
        ("sigmoid", {}),
        ("softplus", {}),
        ("softsign", {}),
        ("tanh", {}),
    ],
)
def test_emulation(name: str, arguments: dict) -> None:
    emit = Emitter()
    emulated = _emulated(name, emit, emit.constant(SAMPLES))
    # The emulation cancels near 0.
    assert_allclose(
        run(name, SAMPLES, **arguments), compute(emit, emulated), rtol=1e-5, atol=5e-7
    )


def test_prelu_and_where_emulation() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    slope = rng.normal(size=4).astype(np.float32)
    emit = Emitter()
    a, s, zero = emit.constant(x), emit.constant(slope), emit.constant(0.0, "float32")
    emulated = emit.add(emit.max(zero, a), emit.mul(s, emit.min(zero, a)))
    assert ulp_distance(run("prelu", x, slope), compute(emit, emulated)) == 0
    condition = rng.integers(0, 3, (3, 1)).astype(np.uint8)
    emit = Emitter()
    c = emit.clamp(emit.constant(condition), min_value=0, max_value=1)
    chosen = emit.cast(c, "float32")
    other = emit.cast(emit.logical_not(c), "float32")
    emulated = emit.add(
        emit.mul(emit.constant(x), chosen), emit.mul(emit.constant(slope), other)
    )
    assert ulp_distance(run("where", condition, x, slope), compute(emit, emulated)) == 0


# -- validation -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_inference_accepts_its_own_normal_form(name: str) -> None:
    operator = OPERATORS[name]
    operands = {}
    for p in operator.operands:
        operands[p.name] = MLOperandDescriptor(operator.limit(p.name).types[0], (2, 3))
    arguments = {
        p.name: "int8" if p.name == "data_type" else p.default for p in operator.arguments
    }
    first = operator.validate(operands, arguments)
    assert operator.validate(operands, first.arguments) == first
    assert None not in first.arguments.values()


@pytest.mark.parametrize("name", ["add", "pow", "equal", "prelu"])
def test_mixed_types_and_shapes_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=r"float32\[2, 3\].*int32\[3\]|is float32.*is int32"):
        infer(name, ("float32", (2, 3)), ("int32", (3,)))
    with pytest.raises(TypeError, match=rf"{name}: .*\[2, 3\].*\[2\].*equal or 1"):
        infer(name, ("float32", (2, 3)), ("float32", (2,)))
    with pytest.raises(TypeError, match=rf"{name} \[here\]"):
        infer(name, ("float32", (2, 3)), ("float32", (2,)), label="here")


def test_broadcast_shapes() -> None:
    assert infer("add", ("int8", (4, 1, 3)), ("int8", (5, 1))).shape == (4, 5, 3)
    assert str(infer("lesser", ("int8", ()), ("int8", (5, 1)))) == "uint8[5, 1]"
    three = infer("where", ("uint8", (2, 1)), ("int64", (3,)), ("int64", (4, 1, 1)))
    assert str(three) == "int64[4, 2, 3]"


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("ceil", set(ALL_TYPES) - set(FLOAT_TYPES)),
        ("abs", {"uint8", "uint32", "uint64"}),
        ("relu", {"uint8", "uint32", "uint64"}),
        ("logical_not", set(ALL_TYPES) - {"uint8"}),
        ("is_nan", set(ALL_TYPES) - set(FLOAT_TYPES)),
        ("clamp", set()),
        ("identity", set()),
    ],
)
def test_types(name: str, refused: set[str]) -> None:
    for data_type in ALL_TYPES:
        if data_type in refused:
            with pytest.raises(TypeError, match=rf"{data_type}\[2\].*has to be one of"):
                infer(name, (data_type, (2,)))
        else:
            assert infer(name, (data_type, (2,))).shape == (2,)


def test_clamp_bounds() -> None:
    with pytest.raises(TypeError, match=r"clamp \[c\]: min_value 3 is above max_value 1"):
        infer("clamp", ("float32", (2,)), min_value=3, max_value=1, label="c")
    with pytest.raises(TypeError, match="min_value 3.5 is above max_value 2"):
        infer("clamp", ("int8", (2,)), min_value=3.5, max_value=2)
    # Both are cut to 3.
    assert infer("clamp", ("int8", (2,)), min_value=3.9, max_value=3.1).shape == (2,)


@pytest.mark.parametrize(
    ("scale", "zero_point", "message"),
    [
        (("float32", (4,)), ("int8", (4,)), "same rank"),
        (("float32", (2, 4)), ("int8", (2, 2)), "same shape"),
        (("float32", (2, 3)), ("int8", (2, 3)), "divide"),
        (("float32", (12, 4)), ("int8", (12, 4)), "divide"),
        (("float32", (2, 4)), ("uint8", (2, 4)), "same data type"),
        (("int8", (2, 4)), ("int8", (2, 4)), "one of float32, float16"),
        (("float32", (2, 4)), ("int64", (2, 4)), "one of uint8, int8, uint32, int32"),
    ],
)
def test_dequantize_refuses(scale, zero_point, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        infer("dequantize_linear", ("int8", (6, 4)), scale, zero_point)


def test_quantize_needs_the_scale_in_the_input_s_type() -> None:
    with pytest.raises(TypeError, match="same data type"):
        infer("quantize_linear", ("float32", (4,)), ("float16", (1,)), ("int8", (1,)))
    made = infer("quantize_linear", ("float16", (4,)), ("float16", (2,)), ("uint32", (2,)))
    assert str(made) == "uint32[4]"


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        (1000, "uint8", 255),
        (-1, "uint64", 0),
        (2**70, "int64", INT_MAX),
        (3.9, "int64", 3),
        (-3.9, "int8", -3),
        (NAN, "int32", 0),
        (-INF, "int32", -(2**31)),
        (2**63 + 1, "uint64", 2**63 + 1),
        (1e40, "float32", INF),
        (10**400, "float16", INF),
        (0.1, "float16", float(np.float16(0.1))),
    ],
)
def test_numbers_are_cast(value, data_type, expected) -> None:
    assert cast_number(value, data_type) == expected


def test_identity_shares_memory() -> None:
    assert isinstance(OPERATORS["identity"].lowering, View)
