"""Element-wise chains fused into one kernel: equal to the operators one by one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from tests.support.running import device_profile, run
from tests.support.ulp import assert_as_reference
from webnn_vk import kernels
from webnn_vk.data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.device_profile import DeviceProfile
from webnn_vk.graph import Emitter, Fused, Graph, Node, Value
from webnn_vk.kernels import epilogue
from webnn_vk.ops import OPERATORS
from webnn_vk.ops.lowering import Kernel
from webnn_vk.ops.unary import SIGNED_TYPES
from webnn_vk.passes import fuse_elementwise

# Exact in every order and with fused multiply-add, on the numbers of `numbers`.
BINARY = ("add", "sub", "mul", "max", "min")
COMPARISONS = ("equal", "not_equal", "greater", "lesser_or_equal")
UNARY = {
    "abs": SIGNED_TYPES, "neg": SIGNED_TYPES, "relu": SIGNED_TYPES, "sign": SIGNED_TYPES,
    "floor": FLOAT_TYPES, "ceil": FLOAT_TYPES, "round_even": FLOAT_TYPES,
}  # fmt: skip


def numbers(rng: np.random.Generator, data_type: str, shape: tuple[int, ...]) -> np.ndarray:
    if data_type in FLOAT_TYPES:
        return (rng.integers(-12, 13, shape) * 0.25).astype(data_type)
    if data_type.startswith("u"):
        return rng.integers(0, 200, shape).astype(data_type)
    return rng.integers(-100, 101, shape).astype(data_type)


def part(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to ``shape``: whole, one element, or some dimensions of it."""
    kind = rng.integers(4)
    if kind == 0:
        return shape
    if kind == 1:
        return (1,) * int(rng.integers(0, len(shape) + 1))
    kept = tuple(d if rng.random() < 0.6 else 1 for d in shape)
    return kept[int(rng.integers(0, len(shape) + 1)) :]


class Chain:
    """A graph that is one chain, with the arrays of its other operands."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.emit = Emitter()
        self.arrays: dict[Value, np.ndarray] = {}

    def operand(self, data_type: str, shape: tuple[int, ...]) -> Value:
        value = Value(MLOperandDescriptor(data_type, shape), name=f"i{len(self.arrays)}")
        self.arrays[value] = numbers(self.rng, data_type, shape)
        return value

    def step(self, value: Value) -> Value:
        """The value with one more random operator."""
        rng, emit, shape = self.rng, self.emit, value.shape
        unary = [name for name, types in UNARY.items() if value.data_type in types]
        match rng.integers(6):
            case 0 | 1:
                other = self.operand(value.data_type, part(rng, shape))
                pair = (value, other) if rng.random() < 0.5 else (other, value)
                return getattr(emit, str(rng.choice(BINARY)))(*pair)
            case 2 if unary:
                return getattr(emit, str(rng.choice(unary)))(value)
            case 3:
                return emit.cast(value, str(rng.choice(ALL_TYPES)))
            case 4:
                other = self.operand(value.data_type, part(rng, shape))
                return getattr(emit, str(rng.choice(COMPARISONS)))(value, other)
            case _:
                return emit.clamp(value, min_value=2, max_value=90)

    def fused(self, value: Value, profile: DeviceProfile) -> Node:
        inputs = {v.name: v for v in self.arrays}
        graph = Graph(inputs, {"out": value}, tuple(self.emit.nodes))
        done = fuse_elementwise(
            graph, lambda node, step: kernels.accepts(node, step, profile), lambda node: True
        )
        done.verify()
        (node,) = done.nodes
        return node

    def check(self, value: Value, profile: DeviceProfile) -> Node:
        node = self.fused(value, profile)
        assert len(node.epilogue) == len(self.emit.nodes) - 1
        assert_as_reference(node, self.arrays, profile)
        return node


def _sum(chain: Chain) -> Value:
    shape = (2, 3, 4, 5) if chain.rng.random() < 0.5 else (3, 8)
    data_type = str(chain.rng.choice(ALL_TYPES))
    return chain.emit.add(
        chain.operand(data_type, shape), chain.operand(data_type, part(chain.rng, shape))
    )


def _product(chain: Chain) -> Value:
    data_type = str(chain.rng.choice(FLOAT_TYPES))
    return chain.emit.matmul(chain.operand(data_type, (3, 5, 4)), chain.operand(data_type, (4, 8)))


def _convolution(chain: Chain) -> Value:
    x, w = chain.operand("float32", (1, 3, 6, 5)), chain.operand("float32", (4, 3, 3, 3))
    return chain.emit.conv2d(x, w)


def _maximum(chain: Chain) -> Value:
    data_type = str(chain.rng.choice(["float32", "float16", "int32", "int64"]))
    return chain.emit.reduce_max(chain.operand(data_type, (4, 5, 6)), axes=[1])


def _pool(chain: Chain) -> Value:
    return chain.emit.max_pool2d(chain.operand("float16", (1, 4, 5, 6)), window_dimensions=[2, 2])


PRODUCERS: dict[str, Callable[[Chain], Value]] = {
    "elementwise": _sum,
    "matmul": _product,
    "conv": _convolution,
    "reduce": _maximum,
    "pool": _pool,
}


@pytest.mark.parametrize("masked", [False, True], ids=["native", "emulated"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_fused_chains_equal_their_operators(producer: str, masked: bool) -> None:
    profile = device_profile(masked)

    # Every chain is a module of its own to compile.
    @settings(max_examples=12)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 5))
    def check(seed: int, steps: int) -> None:
        chain = Chain(seed)
        value = PRODUCERS[producer](chain)
        for _ in range(steps):
            value = chain.step(value)
        chain.check(value, profile)

    check()


def test_bias_row_activation_and_residual() -> None:
    chain = Chain(1)
    a, b = chain.operand("float32", (7, 16)), chain.operand("float32", (16, 12))
    product = chain.emit.matmul(a, b)
    biased = chain.emit.add(product, chain.operand("float32", (12,)))
    value = chain.emit.add(chain.operand("float32", (7, 12)), chain.emit.relu(biased))
    node = chain.check(value, device_profile())
    assert node.title == "matmul + add + relu + add"


def test_intermediates_wrap_as_their_types() -> None:
    chain = Chain(2)
    x = chain.operand("uint8", (4,))
    chain.arrays[x] = np.array([0, 100, 200, 255], np.uint8)
    value = chain.emit.cast(chain.emit.add(chain.emit.mul(x, x), x), "int32")
    node = chain.check(value, device_profile())
    (result,) = run(node, chain.arrays, device_profile())
    # x * x + x modulo 256
    assert result.tolist() == [0, 116, 8, 0]


def test_float16_intermediates_are_rounded() -> None:
    chain = Chain(3)
    x = chain.operand("float16", (3,))
    chain.arrays[x] = np.array([2049, 60000, 0.1], np.float16)
    value = chain.emit.sub(chain.emit.add(x, x), x)
    node = chain.check(value, device_profile())
    (result,) = run(node, chain.arrays, device_profile())
    # In float32 the sum would not have overflowed.
    assert result[1] == np.inf


def test_a_number_keeps_64_bits() -> None:
    chain = Chain(4)
    x = chain.operand("int64", (3,))
    chain.arrays[x] = np.array([-(2**62), 2**60, 2**62], np.int64)
    low, high = -(2**60) - 1, 2**61 + 1
    value = chain.emit.clamp(chain.emit.abs(x), min_value=low, max_value=high)
    chain.check(value, device_profile())
    chain.check(value, device_profile(True))


def _node(*operands: tuple[int, ...], data_type: str = "float32", **more: Any) -> Node:
    a, b = (Value(MLOperandDescriptor(data_type, s), name="x") for s in operands[:2])
    chain = Emitter()
    chain.matmul(a, b)
    node = chain.nodes[0]
    sides = {
        f"side{i}": Value(MLOperandDescriptor(data_type, s), name="s")
        for i, s in enumerate(operands[2:])
    }
    return Node(node.operator, {**node.operands, **sides}, node.arguments, node.outputs)


def _step(name: str, shape: tuple[int, ...], **operands: str | None) -> Fused:
    return Fused(OPERATORS[name], operands, {}, MLOperandDescriptor("float32", shape))


def test_accepts() -> None:
    h200, adreno = stored_profile("nvidia_h200"), stored_profile("adreno_minimum")
    node = _node((8, 4), (4, 6), (6,))
    add = _step("add", (8, 6), a=None, b="side0")
    assert epilogue.accepts(node, add, h200)
    # What would broadcast the result further cannot join.
    wider = _step("add", (2, 8, 6), a=None, b="side0")
    assert not epilogue.accepts(_node((8, 4), (4, 6), (2, 8, 6)), wider, h200)
    # Blockwise operators keep a kernel of their own.
    quantize = _step("quantize_linear", (8, 6), input=None, scale="side0", zero_point="side0")
    assert not epilogue.accepts(node, quantize, h200)
    # a, b, side, out and the parameters are five buffers.
    few = adreno.replace(max_storage_buffers_per_stage=4)
    assert not epilogue.accepts(node, add, few)
    assert epilogue.accepts(_node((8, 4), (4, 6)), _step("relu", (8, 6), input=None), few)


IMAGE, MATRIX, FILTER, CHANNELS = (2, 4, 5, 6), (4, 4), (4, 4, 3, 3), (4,)
# Operands' shapes and arguments of every operator whose kernel takes a chain in.
FUSING: dict[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    **{name: ((IMAGE,), {}) for name in OPERATORS if name.startswith("reduce_")},
    **{name: ((IMAGE,), {}) for name in OPERATORS if name.endswith("pool2d")},
    "arg_max": ((IMAGE,), {"axis": 1}),
    "arg_min": ((IMAGE,), {"axis": 1}),
    "softmax": ((IMAGE,), {"axis": 1}),
    "resample2d": ((IMAGE,), {"scales": [2, 2]}),
    "matmul": ((MATRIX, MATRIX), {}),
    "gemm": ((MATRIX, MATRIX), {}),
    "conv2d": ((IMAGE, FILTER), {}),
    "conv_transpose2d": ((IMAGE, FILTER), {}),
    "batch_normalization": ((IMAGE, CHANNELS, CHANNELS), {}),
    "instance_normalization": ((IMAGE,), {}),
    "layer_normalization": ((IMAGE,), {"axes": [3, 1], "scale": (6, 4)}),
}


def test_the_operators_of_fusing_families_are_all_known() -> None:
    families = {
        name: import_module(f"webnn_vk.kernels.{o.lowering.family}")
        for name, o in OPERATORS.items() if isinstance(o.lowering, Kernel)
    }
    assert {n for n, f in families.items() if getattr(f, "EPILOGUE", False)} == set(FUSING)


@pytest.mark.parametrize("name", FUSING)
def test_fused_kernels_keep_to_the_descriptors(name: str) -> None:
    shapes, arguments = FUSING[name]
    for limit in range(6, 11):
        device = stored_profile("adreno_minimum").replace(max_storage_buffers_per_stage=limit)
        chain = Chain(0)
        options = {
            key: chain.operand("float32", value) if key == "scale" else value
            for key, value in arguments.items()
        }
        operands = [chain.operand("float32", shape) for shape in shapes]
        y = getattr(chain.emit, name)(*operands, **options)
        for _ in range(10):
            y = chain.emit.add(y, chain.operand(y.data_type, y.shape))
        graph = Graph({v.name: v for v in chain.arrays}, {"y": y}, tuple(chain.emit.nodes))
        done = fuse_elementwise(
            graph, lambda node, step, to=device: kernels.accepts(node, step, to), lambda _: True
        )
        for node in done.nodes:
            for dispatch in kernels.plan(node, device):
                assert dispatch.spec.binding_count <= limit, node.title
    assert len(done.nodes[0].epilogue) > 1


def test_large_tensors_are_not_fused_into_kernels_that_bind_them_whole() -> None:
    small = stored_profile("adreno_minimum").replace(max_storage_buffer_range=2**27)
    large = _node((2**13, 4), (4, 2**13))
    relu = _step("relu", (2**13, 2**13), input=None)
    assert not epilogue.accepts(large, relu, small)
    assert epilogue.accepts(large, relu, small.replace(max_storage_buffer_range=2**28))
