"""Plans of the copy kernels, made for stored profiles: no device."""

from __future__ import annotations

import numpy as np

from tests.support.profiles import stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def _variants(name: str, *operands: np.ndarray, **arguments: object) -> list[str]:
    node, _ = node_of(name, *operands, **arguments)
    return [dispatch.variant for dispatch in plan(node, stored_profile("nvidia_ampere"))]


def test_runs_move_as_wide_elements() -> None:
    x = np.zeros((2, 12, 128, 32), np.float32)
    assert _variants("transpose", x, permutation=[0, 2, 1, 3]) == ["strided 4d 128 bit"]
    assert _variants("transpose", x, permutation=[0, 1, 3, 2]) == ["32x32 32 bit"]
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
