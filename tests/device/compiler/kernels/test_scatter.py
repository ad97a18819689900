"""Scatter kernels equal the reference, duplicates included."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.scatter import OPERATORS, any_case
from tests.support.moving import assert_moved_in_parts
from tests.support.running import device_profile, node_of, run
from webnn_vk.compiler.ir import Emitter


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_over_the_binding_limit_are_covered_in_ranges(name: str) -> None:
    assert_moved_in_parts(any_case, name, len(name), 18, 8_000, 6)


def test_the_last_of_several_updates_wins() -> None:
    """Many updates for each of two elements, from concurrent workgroups."""
    count = 300_000
    indices = np.arange(count, dtype=np.int32) % 2
    updates = np.arange(count, dtype=np.int32)
    node, arrays = node_of("scatter_elements", np.full(4, -1, np.int32), indices, updates)
    for _ in range(5):
        (out,) = run(node, arrays, device_profile())
        assert out.tolist() == [count - 2, count - 1, -1, -1]


def test_whole_slices_come_from_one_update() -> None:
    """Rows for one place are never mixed, though their elements are written separately."""
    updates = np.repeat(np.arange(64, dtype=np.float16)[:, None], 48, 1)
    node, arrays = node_of(
        "scatter_nd", np.zeros((3, 48), np.float16), np.ones((64, 1), np.int64), updates
    )
    for masked in (False, True):
        (out,) = run(node, arrays, device_profile(masked))
        assert out.sum(1, dtype=np.float32).tolist() == [0, 63 * 48, 0]


def test_one_value_as_input_and_updates() -> None:
    emit = Emitter()
    x = emit.constant(np.array([10, 20, 30], np.int32))
    indices = emit.constant(np.array([2, 2, 0], np.int32))
    emit.scatter_elements(x, indices, x)
    (out,) = run(emit.nodes[-1], {x: x.data, indices: indices.data}, device_profile())
    assert out.tolist() == [30, 20, 20]
