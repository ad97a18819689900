"""bfloat16, 8-bit floats and 4-bit integers (experimental "low-precision", webnn#956), against
ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from webnn_vk import MLGraphBuilder, MLOperandDescriptor
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import ALL_TYPES, LOW_PRECISION, elements

FLOATS = {
    "bfloat16": ml_dtypes.bfloat16, "float8e4m3": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
}
INTEGERS = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}
TYPES = FLOATS | INTEGERS


DEVICES = {
    "cpu": ("cpu", {}),
    "vulkan": ("vulkan", {}),
    # Without 8-bit and 16-bit types, and with bindings so small that tensors need several.
    "masked": ("vulkan", {"mask": ("float16", "int8", "int16", "int64")}),
    "small_bindings": ("vulkan", {"limits": {"max_storage_buffer_range": 4096}}),
}


@pytest.fixture(
    scope="module",
    params=["cpu", *(pytest.param(d, marks=pytest.mark.device) for d in DEVICES if d != "cpu")],
)
def context(request):
    device, options = DEVICES[request.param]
    with open_context(device, experimental=("low-precision",), **options) as opened:
        yield opened


def every(name: str) -> np.ndarray:
    """Every element of a type."""
    if name in INTEGERS:
        return (np.arange(16) - 8 * (name == "int4")).astype(np.int8).astype(TYPES[name])
    bits = np.arange(2**16).astype(np.uint16) if name == "bfloat16" else np.arange(256)
    return bits.astype(np.uint16 if name == "bfloat16" else np.uint8).view(TYPES[name])


def saturated(x: np.ndarray, name: str) -> np.ndarray:
    """float32 numbers rounded to a float type; 8-bit floats saturate."""
    with np.errstate(invalid="ignore"):
        if name != "bfloat16":
            largest = float(ml_dtypes.finfo(TYPES[name]).max)
            x = np.clip(x, -largest, largest)
        return x.astype(TYPES[name])


def built(context, outputs, **inputs):
    builder = MLGraphBuilder(context)
    operands = [
        builder.input(name, {"data_type": x.dtype, "shape": x.shape}) for name, x in inputs.items()
    ]
    graph = builder.build(outputs(builder, *operands)).result()
    if context.device_info.is_vulkan:
        assert {step.device for step in graph.report().steps} <= {"vulkan"}
    return context.compute(graph, inputs)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("name", TYPES)
def test_every_element_is_cast_and_moved(context, name):
    x = every(name)
    found = built(
        context,
        lambda b, x: {
            "as_float": b.cast(x, "float32"), "same": b.identity(x), "back": b.reverse(x),
            "half": b.cast(x, "float16"),
        },
        x=x,
    )
    same(found["as_float"], x.astype(np.float32))
    same(found["back"], x[::-1])
    with np.errstate(over="ignore"):
        same(found["half"], x.astype(np.float32).astype(np.float16))
    assert found["same"].tobytes() == x.tobytes()


def awkward(name: str) -> np.ndarray:
    """float32 numbers: every element of a type, the numbers halfway between neighbours, those next
    to these, and huge and tiny ones."""
    numbers = np.unique(every(name).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    if numbers.size > 4096:
        numbers = np.random.default_rng(3).choice(numbers, 4096)
        numbers = np.unique(np.concatenate([numbers, np.float32([0, 1, -1])]))
    middle = ((numbers[1:].astype(np.float64) + numbers[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(to)) for to in (np.inf, -np.inf)]
    special = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-40, 448, 464, 465])
    return np.concatenate([numbers, middle, *near, special])


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_to_nearest_even(context, name):
    x = awkward(name)
    found = built(context, lambda b, x: {"y": b.cast(x, name)}, x=x)["y"]
    same(found, saturated(x, name))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(saturated(x, name)))


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_keep_their_low_bits(context, name):
    x = np.arange(-128, 128).astype(np.int8)
    found = built(context, lambda b, x: {"y": b.cast(x, name)}, x=x)["y"]
    bits = x.view(np.uint8) & 15
    expected = (bits.view(np.int8) ^ 8) - 8 if name == "int4" else bits
    same(found, expected.astype(TYPES[name]))


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 1), (1,), ()])
@pytest.mark.parametrize("name", INTEGERS)
def test_two_elements_lie_in_a_byte(context, name, shape):
    size = int(np.prod(shape))
    x = every(name)[(np.arange(size) * 5 + 3) % 16].reshape(shape)
    assert MLOperandDescriptor(name, shape).byte_length == (size + 1) // 2
    packed = np.zeros((size + 1) // 2 * 2, np.uint8)
    packed[:size] = x.reshape(-1).astype(np.int8).view(np.uint8) & 15
    packed = packed[::2] | (packed[1::2] << 4)
    builder = MLGraphBuilder(context)
    operand = builder.input("x", {"data_type": name, "shape": shape})
    constant = builder.constant({"data_type": name, "shape": shape}, packed.tobytes())
    outputs = {"x": builder.identity(operand), "c": builder.identity(constant)}
    graph = builder.build(outputs).result()
    assert graph.inputs == {"x": MLOperandDescriptor(name, shape)}
    for given in (x, packed, packed.tobytes()):
        found = context.compute(graph, {"x": given})
        same(found["x"], x)
        same(found["c"], x)


@pytest.mark.parametrize("name", TYPES)
def test_tensors(context, name):
    x = every(name)
    described = {"data_type": name, "shape": x.shape, "readable": True, "writable": True}
    source, target = (context.create_tensor(described).result() for _ in range(2))
    weight = context.create_constant_tensor({"data_type": name, "shape": x.shape}, x).result()
    builder = MLGraphBuilder(context)
    operand = builder.input("x", {"data_type": name, "shape": x.shape})
    flag = builder.input("flag", {"data_type": "uint8", "shape": []})
    chosen = builder.where(flag, operand, builder.reverse(builder.constant(weight)))
    graph = builder.build({"y": chosen}).result()
    context.write_tensor(source, x)
    for flag, expected in ((1, x), (0, x[::-1])):
        flags = context.create_tensor(
            {"data_type": "uint8", "shape": [], "writable": True}
        ).result()
        context.write_tensor(flags, np.uint8(flag))
        context.dispatch(graph, {"x": source, "flag": flags}, {"y": target})
        same(context.read_tensor(target).result(), expected)
    raw = np.zeros(MLOperandDescriptor(name, x.shape).byte_length, np.uint8)
    context.read_tensor(target, raw).result()
    same(elements(raw, MLOperandDescriptor(name, x.shape)), x[::-1])


@pytest.mark.parametrize("name", TYPES)
def test_operators_of_constants_alone(context, name):
    """They are computed at build time."""
    numbers = every(name)[1:13].reshape(3, 4)

    def both(builder, x):
        turned = builder.transpose(builder.constant(numbers))
        column = builder.expand(builder.constant(numbers[:1, :1]), [4, 1])
        joined = builder.concat([turned, column], 1)
        return {"y": builder.concat([builder.cast(joined, "float32"), x], 0), "z": joined}

    found = built(context, both, x=np.ones((1, 4), np.float32))
    wanted = np.concatenate([numbers.T, np.broadcast_to(numbers[:1, :1], (4, 1))], 1)
    same(found["z"], wanted)
    same(found["y"], np.concatenate([wanted.astype(np.float32), np.ones((1, 4), np.float32)]))


@pytest.mark.parametrize("shapes", [((5, 7), (7, 6)), ((4, 8), (8, 4)), ((64, 64), (64, 128))])
def test_bfloat16_is_computed_in_float32_and_rounded_once(context, shapes):
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=s).astype(ml_dtypes.bfloat16) for s in shapes)
    found = built(
        context, lambda g, a, b: {"y": g.matmul(a, b), "z": g.softmax(g.tanh(a), 1)}, a=a, b=b
    )
    wide = a.astype(np.float64) @ b.astype(np.float64)
    assert_allclose(found["y"].astype(np.float64), wide, rtol=2**-8, atol=1e-5)
    tanh = np.tanh(a.astype(np.float64)).astype(ml_dtypes.bfloat16).astype(np.float64)
    soft = np.exp(tanh) / np.exp(tanh).sum(1, keepdims=True)
    assert_allclose(found["z"].astype(np.float64), soft, rtol=2**-8)


UNARY = [
    name for name, record in OPERATORS.items()
    if [p.name for p in record.operands] == ["input"]
    and "output" in record.limits and "float16" in record.limit("input").types
    and not [p for p in record.arguments if not p.optional]
    and record.limit("input").rank[0] == 0
    and record.limit("output").types == record.limit("input").types
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_operators_take_bfloat16(context, name):
    """As float32 computes them, with options cast to the operand's type, rounded once."""
    x = np.linspace(-4, 4, 64, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(8, 8)
    options = {
        p.name: float(ml_dtypes.bfloat16(p.default)) for p in OPERATORS[name].arguments
        if type(p.default) is float
    }

    def both(builder, x):
        method = getattr(builder, name)
        return {"y": method(x), "wide": method(builder.cast(x, "float32"), **options)}

    found = built(context, both, x=x)
    same(found["y"], found["wide"].astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", [n for n in TYPES if n != "bfloat16"])
@pytest.mark.parametrize("blocks", [(1, 1), (2, 1), (2, 4), (4, 2)])
def test_quantisation(context, name, blocks):
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.normal(size=(3, 8)) * 4, rng.normal(size=(1, 8)) * 1e4])
    x = x.astype(np.float32)
    scale = rng.uniform(0.1, 2, blocks).astype(np.float32)
    zero = every(name)[rng.integers(1, 8, blocks)]
    found = built(
        context,
        lambda b, x, s, z: {
            "q": b.quantize_linear(x, s, z),
            "d": b.dequantize_linear(b.quantize_linear(x, s, z), s, z),
        },
        x=x, s=scale, z=zero,
    )
    wide, zeros = (
        np.repeat(np.repeat(v.astype(np.float32), 4 // blocks[0], 0), 8 // blocks[1], 1)
        for v in (scale, zero)
    )
    if name in FLOATS:
        quotient = saturated(x / wide + zeros, name)
    else:
        low, high = (-8, 7) if name == "int4" else (0, 15)
        quotient = np.clip(np.rint(x / wide) + zeros, low, high).astype(np.int8).astype(TYPES[name])
    same(found["q"], quotient)
    same(found["d"], (quotient.astype(np.float32) - zeros) * wide)


def test_weights_of_four_bits_stay_packed(context):
    """As those in int8 that fit in 4 bits."""
    rng = np.random.default_rng(11)
    weights = rng.integers(-8, 8, (256, 128)).astype(np.int8)
    scale = rng.uniform(0.5, 1, (8, 128)).astype(np.float32)
    x = rng.normal(size=(1, 256)).astype(np.float32)
    sizes = []
    for kind in (np.int8, ml_dtypes.int4):
        builder = MLGraphBuilder(context)
        zero = builder.constant(np.zeros(scale.shape, np.int8).astype(kind))
        matrix = builder.dequantize_linear(
            builder.constant(weights.astype(kind)), builder.constant(scale), zero
        )
        operand = builder.input("x", MLOperandDescriptor("float32", x.shape))
        graph = builder.build({"y": builder.matmul(operand, matrix)}).result()
        sizes.append(graph.report().weight_bytes)
        wide = weights.astype(np.float64) * np.repeat(scale, 32, 0)
        found = context.compute(graph, {"x": x})["y"]
        assert_allclose(found, x @ wide, rtol=1e-4, atol=1e-3)
    assert sizes[0] == sizes[1]
    if context.device_info.is_vulkan:
        assert sizes[1] < weights.size


def test_limits_have_the_types_where_the_draft_has_them(context, cpu_context):
    limits, plain = context.op_support_limits(), cpu_context.op_support_limits()
    assert limits["input"]["data_types"] == [*ALL_TYPES, *LOW_PRECISION]
    assert plain["input"]["data_types"] == [*ALL_TYPES]
    quantized = [n for n in LOW_PRECISION if n != "bfloat16"]
    assert limits["quantize_linear"]["zero_point"]["data_types"][-4:] == quantized
    for name in OPERATORS:
        for operand, row in limits[name].items():
            more = set(row["data_types"]) - set(plain[name][operand]["data_types"])
            if "float16" in row["data_types"]:
                assert "bfloat16" in more
            elif "int32" not in row["data_types"]:
                assert not more


@pytest.mark.parametrize("name", TYPES)
def test_other_contexts_refuse_the_types(cpu_context, name):
    described = {"data_type": name, "shape": [4]}
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": "float32", "shape": [4]})
    for call in (
        lambda: builder.input("y", described),
        lambda: builder.constant(described, bytes(8)),
        lambda: builder.constant(name, 1),
        lambda: builder.cast(x, name),
        lambda: cpu_context.create_tensor(described).result(),
    ):
        with pytest.raises(TypeError, match=r"experimental=\['low-precision'\]"):
            call()


def test_what_carries_bits_is_no_data_type(context):
    builder = MLGraphBuilder(context)
    for name in ("bits16", "uint16", "float8"):
        with pytest.raises(TypeError, match="is not a data type; one of float32"):
            builder.input("x", {"data_type": name, "shape": [4]})


@pytest.mark.parametrize("name", ["matmul", "conv2d", "sin"])
def test_eight_bits_do_not_compute(context, name):
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float8e4m3", "shape": [2, 2, 4, 4]})
    arguments = [x] if name == "sin" else [x, x]
    with pytest.raises(TypeError, match="its data type has to be one of float32, float16"):
        getattr(builder, name)(*arguments)


def test_numbers_become_elements(context):
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "bfloat16", "shape": [2]})
    graph = builder.build({"y": x * 3 + builder.constant("bfloat16", 0.5)}).result()
    found = context.compute(graph, {"x": [1, 2.5]})["y"]
    same(found, np.array([3.5, 8], ml_dtypes.bfloat16))
    with pytest.raises(TypeError, match="8 is no int4"):
        builder = MLGraphBuilder(context)
        builder.constant({"data_type": "int4", "shape": [2]}, [7, 8])
