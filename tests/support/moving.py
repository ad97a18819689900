"""Tests shared by the kernels that only move elements (copy, gather, scatter)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.support.running import assert_same_bits, device_profile, plan

#: Draws a node with its operands' arrays; the number selects its types.
Case = Callable[[np.random.Generator, str, int], tuple]


def assert_moved_in_parts(
    case: Case, name: str, seed: int, count: int, largest: int, dispatches: int
) -> None:
    """With a binding limit of 512 bytes, small tensors are handled like huge ones: every bit is
    moved, NaN payloads included. One of them needs more than this number of dispatches."""
    rng = np.random.default_rng(seed)
    profile = device_profile(max_storage_buffer_range=512)
    most = 0
    for i in range(count):
        while True:
            node, arrays = case(rng, name, i)
            values = (*node.inputs, *node.outputs)
            if 512 < max(v.descriptor.byte_length for v in values) < largest:
                break
        most = max(most, len(plan(node, profile)))
        assert_same_bits(node, arrays, profile)
    assert most > dispatches
