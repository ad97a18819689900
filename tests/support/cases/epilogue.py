"""Nodes for the tests of epilogues' plans and kernels."""

from __future__ import annotations

import numpy as np

from tests.support.ulp import assert_as_reference
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.ops.unary import SIGNED_TYPES
from webnn_vk.compiler.types.data_types import ALL_TYPES, FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

# Exact in every order and with fused multiply-add, for the numbers of `numbers`.
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
    """A shape that broadcasts to ``shape``: all dimensions, one element, or some dimensions."""
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
        """The value after one more random operator."""
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

    def fused(self, value: Value, profile: DeviceProfile) -> KernelNode:
        inputs = {v.name: v for v in self.arrays}
        graph = Graph(inputs, {"out": value}, tuple(self.emit.nodes))
        done = fuse(kernelize(graph), profile)
        done.verify()
        (node,) = done.nodes
        assert isinstance(node, KernelNode)
        return node

    def check(self, value: Value, profile: DeviceProfile) -> KernelNode:
        node = self.fused(value, profile)
        assert len(node.epilogue) == len(self.emit.nodes) - 1
        assert_as_reference(node, self.arrays, profile)
        return node
