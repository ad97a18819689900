"""Element-wise chains fused into one kernel equal the operators one by one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases.epilogue import Chain, part
from tests.support.comparing import assert_close, profile_for
from tests.support.matrices import emulating
from tests.support.running import device_profile, run, schedules_of
from tests.support.ulp import assert_as_reference
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import Schedule
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


# How an addend, and operands of fused operators, lie beside 4 columns: as they do, in a row for all
# rows, in a column for all columns, as one number.
BESIDE = (((40,), (33, 40)), ((33, 1), (40,)), ((33, 40), (33, 1)), ((), ()))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("way", ["tiles", "matrices", "parts"])
def test_operands_beside_4_columns_of_a_product(way: str, data_type: str) -> None:
    """What 4 columns need is loaded at once by kernels of GPUs; tiles and rows end at the edge."""
    profile = emulating(data_type=data_type) if way == "matrices" else profile_for("discrete")
    inner = 256 if way == "parts" else 8

    def chosen(schedule: Schedule) -> bool:
        if way == "parts":
            return schedule.parts == 2
        return schedule.parts == 1 and schedule.kernel == {
            "tiles": "matmul_tiled", "matrices": "matmul_coopmat"
        }[way]

    for number, (addend, beside) in enumerate(BESIDE):
        chain = Chain(number)
        emit, operand = chain.emit, chain.operand
        a, b = operand(data_type, (33, inner)), operand(data_type, (inner, 40))
        value = emit.gemm(a, b, c=operand(data_type, addend), alpha=0.5, beta=2.0)
        value = emit.sub(value, operand(data_type, beside))
        value = emit.max(value, operand(data_type, BESIDE[number - 1][1]))
        node = chain.fused(value, profile)
        (expected,) = node.evaluate(chain.arrays.get)
        # Of matrices both small tiles: the larger one's invocations load in two turns.
        for schedule in [*filter(chosen, schedules_of(node, profile))][: 1 + (way == "matrices")]:
            (result,) = run(node, chain.arrays, profile, schedule)
            np.testing.assert_array_equal(result, expected, err_msg=str(schedule))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("kernel", ["conv_tiled", "winograd_tiled"])
def test_operands_beside_4_neighbours_of_a_convolution(kernel: str, layout: str) -> None:
    """In rows that 4 pixels don't divide, which load what rows share one by one; and integers, of
    8 bytes too."""
    profile = profile_for("discrete")
    width = 6 if kernel == "conv_tiled" else 8
    shape = {"n": 2, "c": 64, "h": 2, "w": width}
    outputs = {**shape, "c": 8}
    for number, kept in enumerate(("nchw", "w", "h", "c")):
        chain = Chain(number)
        emit, operand = chain.emit, chain.operand
        x = operand("float32", tuple(shape[d] for d in layout))
        w = emit.constant((chain.rng.integers(-3, 4, (8, 64, 3, 3)) * 0.25).astype(np.float32))
        chain.arrays[w] = w.data
        value = emit.conv2d(
            x, w, padding=[1] * 4, bias=operand("float32", (8,)), input_layout=layout
        )
        side = tuple(outputs[d] if d in kept else 1 for d in layout)
        value = emit.add(value, operand("float32", side))
        if kernel == "conv_tiled":  # whose sums of such numbers are exact
            value = emit.add(emit.cast(value, "int64"), operand("int64", side))
            value = emit.min(emit.cast(value, "int32"), operand("int32", side))
        node = chain.fused(value, profile)
        schedule = next(s for s in schedules_of(node, profile) if s.kernel == kernel)
        assert_close(node, chain.arrays, profile, 1e-5, schedule, least=64.0)
