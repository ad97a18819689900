"""Element-wise kernels: plans, and values against the references over types, shapes and slices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.kernels import compile_spec
from tests.support.pretended import pretended_context
from tests.support.profiles import NAMES, stored_profile
from tests.support.running import device_profile, node_of, run
from tests.support.ulp import assert_as_reference
from webnn_vk import MLGraphBuilder
from webnn_vk.codegen.spirv import capabilities
from webnn_vk.data_types import DATA_TYPES, MLOperandDescriptor
from webnn_vk.graph import Node, Value
from webnn_vk.kernels import Unsupported, elementwise
from webnn_vk.kernels.elementwise import Mode
from webnn_vk.kernels.expression import reciprocal
from webnn_vk.ops import OPERATORS
from webnn_vk.ops.lowering import Elementwise

MASKED = pytest.mark.parametrize("masked", [False, True], ids=["native", "emulated"])
# Where the reference rounds otherwise than the kernel, in units of the last place of float32.
ULP = {
    "cos": 4, "erf": 4, "exp": 3, "gelu": 6, "log": 4, "pow": 8, "sin": 4, "tan": 4, "elu": 4,
    "sigmoid": 4, "softplus": 4, "tanh": 4, "hard_sigmoid": 2, "linear": 2, "hard_swish": 3,
    "dequantize_linear": 1, "softsign": 2,
}  # fmt: skip
OPERATOR_NAMES = sorted(
    name for name, o in OPERATORS.items() if isinstance(o.lowering, Elementwise)
)


def values(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes with the type's special ones among them."""
    dtype = DATA_TYPES[data_type].numpy
    count = math.prod(shape)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        small = rng.integers(max(-9, info.min), 10, count)
        large = rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
        array = np.where(rng.random(count) < 0.5, small.astype(dtype), large)
        special = np.array([0, 1, info.min, info.max, info.max // 2], dtype)
    else:
        array = rng.normal(size=count) * 10.0 ** rng.integers(-3, 3, count)
        special = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, np.inf, -np.inf, np.nan])
    chosen = rng.random(count) < 0.15
    array = np.where(chosen, special[rng.integers(0, len(special), count)], array)
    return array.astype(dtype).reshape(shape)


@st.composite
def shapes(draw: st.DrawFn, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast to each other, of rank 0 to 8."""
    rank = draw(st.integers(0, 8))
    size = st.sampled_from([1, 1, 2, 3, 4, 5, 8] if rank > 4 else [1, 2, 3, 4, 7, 12, 16])
    full: list[int] = []
    for _ in range(rank):
        d = draw(size)
        full.append(d if math.prod(full) * d <= 4096 else 1)
    result = []
    for _ in range(count):
        kept = draw(st.integers(0, rank)) if draw(st.booleans()) else rank
        mask = draw(st.lists(st.booleans(), min_size=rank, max_size=rank))
        whole = draw(st.booleans())
        shape = tuple(d if m or whole else 1 for d, m in zip(full, mask, strict=True))
        result.append(shape[rank - kept :])
    return result


@st.composite
def blocks(draw: st.DrawFn) -> list[tuple[int, ...]]:
    """A shape and one that divides it, twice."""
    rank = draw(st.integers(0, 8))
    counts = [draw(st.sampled_from([1, 2, 3] if rank < 5 else [1, 2])) for _ in range(rank)]
    sizes = [draw(st.sampled_from([1, 2, 3, 4] if rank < 5 else [1, 2])) for _ in range(rank)]
    full = tuple(c * s for c, s in zip(counts, sizes, strict=True))
    return [full, tuple(counts), tuple(counts)]


@st.composite
def nodes(draw: st.DrawFn, name: str) -> tuple[Node, dict[Value, np.ndarray]]:
    """Any allowed node of the operator with random elements."""
    operator = OPERATORS[name]
    count = len(operator.operands)
    chosen = draw(blocks() if operator.lowering.blockwise else shapes(count))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    types: dict[str, str] = {}
    for p in operator.operands:
        types[p.name] = draw(st.sampled_from(operator.limit(p.name).types))
    for p in operator.operands:
        row = operator.limits[p.name]
        types[p.name] = types.get(getattr(row, "operand", ""), types[p.name])
    operands = {
        p.name: values(rng, types[p.name], shape)
        for p, shape in zip(operator.operands, chosen, strict=True)
    }
    if name in ("quantize_linear", "dequantize_linear"):
        scale = np.abs(operands["scale"])
        operands["scale"] = np.where(np.isfinite(scale) & (scale > 0.01), scale, 1).astype(
            scale.dtype
        )
    arguments: dict[str, object] = {}
    for p in operator.arguments:
        if p.name == "data_type":
            arguments["data_type"] = draw(st.sampled_from(list(DATA_TYPES)))
        elif p.name == "min_value":
            arguments["min_value"] = draw(st.integers(0, 3) | st.just(float("-inf")))
        elif p.name == "max_value":
            arguments["max_value"] = draw(st.integers(3, 300) | st.just(float("nan")))
        else:
            arguments[p.name] = draw(st.sampled_from([0.0, 0.5, -1.25, 3.0]))
    return node_of(name, *operands.values(), **arguments)


@MASKED
@pytest.mark.parametrize("name", OPERATOR_NAMES)
def test_kernels_compute_what_the_references_do(name: str, masked: bool) -> None:
    device = device_profile(masked)

    @settings(max_examples=40)
    @given(nodes(name))
    def check(made: tuple[Node, dict[Value, np.ndarray]]) -> None:
        assert_as_reference(*made, device, ULP.get(name, 0))

    check()


@pytest.mark.parametrize(
    ("shape", "other", "modes"),
    [
        ((4, 6), (4, 6), "flat+flat"),
        ((4, 6), (), "flat+scalar"),
        ((4, 6), (6,), "flat+gather"),
        ((4, 8), (8,), "flat+vector"),
        ((3, 8), (3, 1), "flat+splat"),
        ((8, 1), (1, 8), "splat+vector"),
        ((2, 3, 5), (3, 1), "flat+gather"),
        ((1, 8), (8,), "flat+flat"),
    ],
)
def test_modes(shape: tuple[int, ...], other: tuple[int, ...], modes: str) -> None:
    node, _ = node_of("add", np.zeros(shape, np.float32), np.zeros(other, np.float32))
    (dispatch,) = elementwise.plan(node, stored_profile("llvmpipe"))
    assert dispatch.variant == modes


def test_vectors_need_types_of_at_most_32_bits() -> None:
    node, _ = node_of("add", np.zeros((4, 8), np.int64), np.zeros(8, np.int64))
    (dispatch,) = elementwise.plan(node, stored_profile("llvmpipe"))
    assert dispatch.constants["M_x1"] == Mode.GATHER
    assert [b.width for b in dispatch.spec.buffers] == [1, 1, 1]


def test_one_module_serves_all_shapes() -> None:
    specs = set()
    for a, b in [((5,), (5,)), ((3, 1, 4), (2, 1)), ((2,) * 8, (2, 1) * 4), ((), ())]:
        node, _ = node_of("mul", np.zeros(a, np.float16), np.zeros(b, np.float16))
        (dispatch,) = elementwise.plan(node, stored_profile("llvmpipe"))
        specs.add(dispatch.spec)
    assert len(specs) == 1


def test_rank_8_with_alternating_broadcasts() -> None:
    rng = np.random.default_rng(1)
    condition = rng.integers(0, 2, (2, 1) * 4).astype(np.uint8)
    true_value = rng.normal(size=(1, 3) * 4).astype(np.float32)
    false_value = rng.normal(size=(2, 3, 1, 1) * 2).astype(np.float32)
    node, arrays = node_of("where", condition, true_value, false_value)
    (dispatch,) = elementwise.plan(node, device_profile())
    assert dispatch.constants["RANK"] == 8
    assert_as_reference(node, arrays, device_profile())


@MASKED
def test_catalogue_holds_every_unfused_plan(masked: bool) -> None:
    device = stored_profile("nvidia_h200").masked(("int64",) if masked else ())
    known = set(elementwise.catalogue(device.features))
    for name in OPERATOR_NAMES:

        @settings(max_examples=20)
        @given(nodes(name))
        def check(made: tuple[Node, dict[Value, np.ndarray]]) -> None:
            assert {d.spec for d in elementwise.plan(made[0], device)} <= known

        check()


def test_catalogue_is_small() -> None:
    features = stored_profile("nvidia_h200").features
    both = {*elementwise.catalogue(frozenset()), *elementwise.catalogue(features)}
    assert len(both) < 450


def test_masked_features_are_not_used() -> None:
    for spec in elementwise.catalogue(frozenset()):
        assert capabilities(compile_spec(spec)) == {"Shader"}, spec.option("statements")


def test_division_by_reciprocals() -> None:
    """The arithmetic of lib/divide.glsl.j2 over all of its range."""
    rng = np.random.default_rng(7)
    d = np.concatenate([np.arange(2, 2000), rng.integers(2, 2**31, 20000), [2**31 - 1]])
    multiple = d * rng.integers(0, 2**31 // d, endpoint=True)
    numbers = [multiple - 1, multiple, multiple + 1, np.full_like(d, 2**31 - 1), d - 1]
    magic = np.array([reciprocal(int(n)) for n in d], np.uint64)
    assert magic.max() < 2**32
    for n in numbers:
        n = np.clip(n, 0, 2**31 - 1)
        estimate = ((n.astype(np.uint64) * magic) >> np.uint64(32)).astype(np.int64)
        remainder = (n - estimate * d) % 2**32
        quotient = np.where(remainder < d, estimate, estimate - 1)
        np.testing.assert_array_equal(quotient, n // d)


@pytest.mark.parametrize("name", NAMES)
def test_plans_respect_every_device(name: str) -> None:
    device = stored_profile(name)
    # 1.2 GiB: several slices where a binding holds 128 MiB.
    shape = (300, 1024, 1024)
    a, b = (MLOperandDescriptor("float32", s) for s in (shape, (1024, 1)))
    node, _ = node_of("add", a, b)
    size = node.output.descriptor.byte_length
    dispatches = elementwise.plan(node, device)
    assert len(dispatches) == math.ceil(size / device.max_storage_buffer_range)
    position = 0
    for dispatch in dispatches:
        binding = dispatch.bindings[-1]
        assert binding.offset == position
        length = binding.size or size - position
        assert length <= device.max_storage_buffer_range
        position += length
        limits = zip(dispatch.groups, device.max_workgroup_count, strict=True)
        assert all(groups <= most for groups, most in limits)
        invocations = math.prod(dispatch.groups) * dispatch.constants["LX"]
        assert invocations * 4 >= dispatch.params["high"]
    assert position == size


SLICED = [
    ("float32", (7, 1000), (7, 1000)),
    ("float32", (3, 5000), (1, 5000)),  # b exceeds a binding and repeats: slices end at its borders
    ("float32", (4001, 3), (4001, 1)),
    ("float16", (9, 1777), (1777,)),
    ("uint8", (5, 40001), (5, 40001)),
    ("uint8", (3, 30003), (30003,)),
    ("int64", (2, 3, 1501), (3, 1501)),
    ("int64", (5, 701), (701,)),
    ("float32", (2, 5, 3001), (2, 1, 3001)),
]


@pytest.mark.parametrize(("data_type", "a", "b"), SLICED, ids=str)
@MASKED
def test_slices(data_type: str, a: tuple[int, ...], b: tuple[int, ...], masked: bool) -> None:
    rng = np.random.default_rng(5)
    device = device_profile(masked, max_storage_buffer_range=16384)
    node, arrays = node_of("add", values(rng, data_type, a), values(rng, data_type, b))
    assert len(elementwise.plan(node, device)) > 1
    assert_as_reference(node, arrays, device)


def test_slices_of_blocks() -> None:
    rng = np.random.default_rng(6)
    device = device_profile(max_storage_buffer_range=16384)
    scale = rng.uniform(0.1, 2, (60, 450)).astype(np.float32)
    zero_point = values(rng, "uint8", (60, 450))
    node, arrays = node_of(
        "dequantize_linear", values(rng, "uint8", (60, 900)), scale, zero_point
    )
    assert len(elementwise.plan(node, device)) > 3
    assert_as_reference(node, arrays, device, 1)


def test_numbers_beyond_53_bits() -> None:
    array = np.array([-(2**63), -(2**62) - 2, 2**62, 2**62 + 3, 2**63 - 1], np.int64)
    node, arrays = node_of("clamp", array, min_value=-(2**62) - 1, max_value=2**62 + 1)
    (result,) = run(node, arrays, device_profile())
    assert result.tolist() == [-(2**62) - 1, -(2**62) - 1, 2**62, 2**62 + 1, 2**62 + 1]


def test_bindings_too_small_to_slice_are_refused() -> None:
    with pretended_context(max_storage_buffer_range=1024) as context:
        builder = MLGraphBuilder(context)
        a = builder.input("a", {"data_type": "int64", "shape": [4096]})
        (step,) = builder.build({"y": builder.abs(a)}).result().report().steps
        assert step.device == "cpu"
        assert "bindings of 1024 bytes are too small" in step.reason


def test_too_many_operands_are_refused() -> None:
    # With 16 dimensions the parameters take a buffer beside the three operands and the result.
    x, scale = (MLOperandDescriptor("float32", (n,) * 8) for n in (4, 2))
    node, _ = node_of("quantize_linear", x, scale, MLOperandDescriptor("int8", (2,) * 8))
    device = stored_profile("adreno_minimum")
    assert elementwise.plan(node, device.replace(max_storage_buffers_per_set=5))
    with pytest.raises(Unsupported, match="needs 5 storage buffers"):
        elementwise.plan(node, device.replace(max_storage_buffers_per_set=4))
