"""Movement kernels: bits on the device equal the NumPy reference, plans stay within limits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.copy import OPERATORS, any_case
from tests.support.moving import assert_moved_in_parts
from tests.support.running import assert_same_bits, device_profile, node_of, plan, random_bits, run


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_over_the_binding_limit_move_in_parts(name: str) -> None:
    assert_moved_in_parts(any_case, name, len(name), 12, 12_000, 2)


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


def test_tile_of_eight_dimensions() -> None:
    x = random_bits(np.random.default_rng(1), "uint8", (2,) * 8)
    node, arrays = node_of("tile", x, [2] * 8)
    # The innermost pair moves as one element.
    assert [d.variant for d in plan(node, device_profile())] == ["strided 16d 16 bit"]
    assert_same_bits(node, arrays, device_profile())


@pytest.mark.parametrize("limits", [{}, {"max_storage_buffer_range": 4096}], ids=["whole", "parts"])
@pytest.mark.parametrize(("shape", "permutation"), [
    ((33, 70), (1, 0)), ((3, 17, 33), (0, 2, 1)), ((2, 40, 65, 3), (0, 2, 1, 3)),
    ((2, 19, 20, 21), (3, 1, 2, 0)), ((2, 16, 48, 2, 40), (1, 0, 4, 3, 2)),
    ((1, 3, 96, 40), (0, 2, 3, 1)),
], ids=str)
def test_transposes_through_shared_memory(
    shape: tuple[int, ...], permutation: tuple[int, ...], limits: dict[str, int]
) -> None:
    """On a GPU; operands with too few rows or columns for a tile move as on other devices."""
    profile = device_profile(device_type="discrete", **limits)
    x = random_bits(np.random.default_rng(3), "float32", shape)
    node, arrays = node_of("transpose", x, permutation=permutation)
    assert_same_bits(node, arrays, profile)


def test_only_gpus_use_tiles_and_only_where_a_tile_is_half_full() -> None:
    gpu = device_profile(device_type="discrete")

    def kernels(profile: object, shape: tuple[int, ...], data_type: str = "float32") -> set[str]:
        x = random_bits(np.random.default_rng(3), data_type, shape)
        node, _ = node_of("transpose", x, permutation=(0, 2, 1))
        return {dispatch.kernel for dispatch in plan(node, profile)}

    assert kernels(gpu, (3, 16, 40)) == kernels(gpu, (3, 16, 40), "int32") == {"transpose"}
    assert kernels(device_profile(device_type="cpu"), (3, 16, 40)) == {"copy"}
    assert kernels(gpu, (3, 15, 400)) == kernels(gpu, (3, 16, 40), "float16") == {"copy"}
    few = device_profile(device_type="discrete", max_workgroup_invocations=128)
    assert kernels(few, (3, 16, 40)) == {"copy"}
