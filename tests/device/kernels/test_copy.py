"""Movement kernels: bits on the device equal the NumPy reference, plans stay within limits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.moving import (
    assert_every_bit_kept,
    assert_moved_in_parts,
    assert_plans_in_catalogue,
)
from tests.support.profiles import stored_profile
from tests.support.running import assert_same_bits, device_profile, node_of, random_bits, run
from webnn_vk.data_types import ALL_TYPES, MLOperandDescriptor
from webnn_vk.kernels import plan

OPERATORS = (
    "transpose", "slice", "concat", "split", "expand", "tile", "reverse", "pad", "triangular",
)


def _shape(rng: np.random.Generator, low: int = 0) -> tuple[int, ...]:
    rank = int(rng.integers(low, 9))
    # Multiples of 4 and 16 now and then: runs that move as wider elements.
    sizes = (1, 2, 3, 4, 5, 8, 16) if rank < 5 else (1, 2, 3, 4)
    return tuple(int(n) for n in rng.choice(sizes, rank))


def _case(rng: np.random.Generator, name: str, data_type: str) -> tuple:
    """A random node of an operator, its operands' arrays by value."""
    shape = _shape(rng, {"concat": 1, "split": 1, "triangular": 2}.get(name, 0))
    rank = len(shape)
    x = random_bits(rng, data_type, shape)
    axis = int(rng.integers(rank)) if rank else 0
    match name:
        case "transpose":
            permutation = [int(i) for i in rng.permutation(rank)]
            return node_of(name, x, permutation=permutation)
        case "slice":
            starts = [int(rng.integers(n)) for n in shape]
            sizes = [int(rng.integers(1, n - s + 1)) for n, s in zip(shape, starts, strict=True)]
            steps = [int(rng.integers(1, n + 1)) if rng.random() < 0.4 else 1 for n in sizes]
            return node_of(name, x, starts, sizes, strides=steps)
        case "concat":
            others = [
                random_bits(rng, data_type, (*shape[:axis], int(n), *shape[axis + 1 :]))
                for n in rng.choice((1, 2, 4, 7), int(rng.integers(3)))
            ]
            return node_of(name, [x, *others], axis)
        case "split":
            cuts = sorted({int(c) for c in rng.integers(0, shape[axis], 2)} - {0})
            sizes = np.diff([0, *cuts, shape[axis]]).tolist()
            return node_of(name, x, sizes, axis=axis)
        case "expand":
            x = random_bits(rng, data_type, tuple(1 if rng.random() < 0.5 else n for n in shape))
            return node_of(name, x, [*[2] * int(rng.integers(0, min(3, 9 - rank))), *shape])
        case "tile":
            return node_of(name, x, [int(n) for n in rng.choice((1, 1, 2, 3), rank)])
        case "reverse":
            return node_of(name, x, axes=[i for i in range(rank) if rng.random() < 0.5])
        case "pad":
            mode = str(rng.choice(("constant", "edge", "reflection")))
            if rank > 6:
                x = x.reshape(*shape[:5], -1)

            def padding() -> list[int]:
                return [
                    0 if rng.random() < 0.5 else
                    int(rng.integers(0, n if mode == "reflection" else 5)) for n in x.shape
                ]

            value = float(rng.choice((0, 7, -1.5, np.nan, np.inf)))
            return node_of(name, x, padding(), padding(), mode=mode, value=value)
    upper = bool(rng.integers(2))
    return node_of(name, x, upper=upper, diagonal=int(rng.integers(-6, 7)))


def _any_case(rng: np.random.Generator, name: str, i: int) -> tuple:
    return _case(rng, name, ALL_TYPES[i % 8])


@pytest.mark.parametrize("masked", (False, True), ids=("native", "emulated"))
@pytest.mark.parametrize("name", OPERATORS)
def test_random_moves_keep_every_bit(name: str, masked: bool) -> None:
    assert_every_bit_kept(_any_case, name, sum(map(ord, name)), 40, masked)


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_over_the_binding_limit_move_in_parts(name: str) -> None:
    assert_moved_in_parts(_any_case, name, len(name), 12, 12_000, 2)


def test_nan_payloads_survive() -> None:
    bits = np.array([0x7F800001, 0xFFC12345, 0x00000001, 0x80000000], np.uint32)
    node, arrays = node_of("reverse", bits.view(np.float32))
    (out,) = run(node, arrays, device_profile())
    assert out.view(np.uint32).tolist() == bits[::-1].tolist()
    half = np.array([0x7C01, 0xFE12, 0x0001, 0x8000, 0x7E00], np.uint16)
    for masked in (False, True):
        node, arrays = node_of("reverse", half.view(np.float16))
        (out,) = run(node, arrays, device_profile(masked))
        assert out.view(np.uint16).tolist() == half[::-1].tolist()


def test_spec_example_of_padding() -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    node, arrays = node_of("pad", x, [1, 2], [1, 2], mode="reflection")
    (out,) = run(node, arrays, device_profile())
    assert out.tolist() == [
        [6, 5, 4, 5, 6, 5, 4], [3, 2, 1, 2, 3, 2, 1], [6, 5, 4, 5, 6, 5, 4], [3, 2, 1, 2, 3, 2, 1]
    ]


@pytest.mark.parametrize(("value", "expected"), [(2**40 + 5, 2**40 + 5), (-1, -1), (2.9, 2)])
def test_padding_value_of_64_bits(value: float, expected: int) -> None:
    node, arrays = node_of("pad", np.array([7], np.int64), [1], [2], value=value)
    for masked in (False, True):
        (out,) = run(node, arrays, device_profile(masked))
        assert out.tolist() == [expected, 7, expected, expected]


def _variants(name: str, *operands: np.ndarray, **arguments: object) -> list[str]:
    node, _ = node_of(name, *operands, **arguments)
    return [dispatch.variant for dispatch in plan(node, stored_profile("nvidia_h200"))]


def test_runs_move_as_wide_elements() -> None:
    x = np.zeros((2, 12, 128, 32), np.float32)
    assert _variants("transpose", x, permutation=[0, 2, 1, 3]) == ["strided 4d 128 bit"]
    assert _variants("transpose", x, permutation=[0, 1, 3, 2]) == ["strided 3d 32 bit"]
    assert _variants("transpose", x, permutation=[0, 1, 2, 3]) == ["strided 1d 128 bit"]
    assert _variants("slice", x, [1, 0, 0, 0], [1, 12, 128, 32]) == ["strided 1d 128 bit"]
    assert _variants("slice", x, [0, 0, 0, 2], [2, 12, 128, 6]) == ["strided 2d 64 bit"]
    assert _variants("split", x, 3, axis=1) == ["strided 2d 128 bit"] * 3
    assert _variants("pad", x, [0, 0, 1, 0], [0, 0, 1, 0]) == ["constant 2d 128 bit"]
    assert _variants("pad", x, [0, 0, 1, 1], [0, 0, 1, 1], mode="edge") == ["edge 3d 32 bit"]
    # An odd size with its padding is one contiguous copy.
    assert _variants("reverse", np.zeros((3, 5), np.int8), axes=[]) == ["strided 1d 128 bit"]
    assert _variants("concat", [np.zeros(4, np.int8), np.zeros(8, np.int8)], 0) == [
        "strided 1d 32 bit", "strided 1d 32 bit"
    ]


def test_parts_of_a_concat_are_bound_apart() -> None:
    """Along the first dimension the inputs' ranges do not overlap: no barrier between them."""
    x = np.zeros((4, 16), np.float32)
    node, _ = node_of("concat", [x, x, x], 0)
    targets = [dispatch.bindings[1] for dispatch in plan(node, stored_profile("llvmpipe"))]
    assert [(b.offset, b.size) for b in targets] == [(0, 256), (256, 256), (512, 256)]


def test_tile_of_eight_dimensions() -> None:
    x = random_bits(np.random.default_rng(1), "uint8", (2,) * 8)
    node, arrays = node_of("tile", x, [2] * 8)
    # The innermost pair moves as one element.
    assert [d.variant for d in plan(node, device_profile())] == ["strided 16d 16 bit"]
    assert_same_bits(node, arrays, device_profile())


def test_half_a_gibibyte_is_split_at_the_guaranteed_limit() -> None:
    """Plans only: a 512 MiB transpose for a device with 128 MiB bindings."""
    x = MLOperandDescriptor("float32", (8192, 16384))
    profile = stored_profile("adreno_minimum")
    node, _ = node_of("transpose", x)
    dispatches = plan(node, profile)
    assert sum(d.params["count"] for d in dispatches) == x.size
    assert 16 <= len(dispatches) <= 64
    for dispatch in dispatches:
        for binding in dispatch.bindings:
            assert binding.size <= profile.max_storage_buffer_range
            assert binding.offset % 64 == 0
            assert binding.offset + binding.size <= x.byte_length


def test_every_planned_kernel_is_in_the_catalogue() -> None:
    assert_plans_in_catalogue(_any_case, OPERATORS, 40)
