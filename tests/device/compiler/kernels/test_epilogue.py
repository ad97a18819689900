"""Element-wise chains fused into one kernel equal the operators one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases.epilogue import Chain, part
from tests.support.running import device_profile, run
from tests.support.ulp import assert_as_reference
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.types.data_types import ALL_TYPES, FLOAT_TYPES


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


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("masked", [False, True], ids=["native", "emulated"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_fused_chains_equal_their_operators(producer: str, masked: bool) -> None:
    profile = device_profile(masked)

    # Every chain is a separate module to compile.
    @settings(max_examples=5)
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


@pytest.mark.parametrize(("shape", "side"), [
    ((2, 6, 8), (8,)), ((3, 4, 2, 4), (4, 1, 1)), ((96,), (96,)), ((1, 12, 2, 4), (12, 1, 4)),
])
def test_steps_behind_reshapes(shape: tuple[int, ...], side: tuple[int, ...]) -> None:
    """A fused step indexes its operand by the operand's shape, not the product's."""
    chain = Chain(3)
    total = chain.emit.matmul(chain.operand("float32", (12, 5)), chain.operand("float32", (5, 8)))
    total = chain.emit.sub(chain.operand("float32", side), chain.emit.reshape(total, shape))
    profile = device_profile()
    node = chain.fused(total, profile)
    assert node.title == "matmul + sub"
    assert_as_reference(node, chain.arrays, profile)
