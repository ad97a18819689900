"""Tests shared by the kernels that only move elements (copy, gather, scatter)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bench.isa.catalogue import catalogue
from tests.support.profiles import stored_profile
from tests.support.running import TYPE_FEATURES, assert_same_bits, device_profile, plan
from webnn_vk.compiler.ops import ALL_OPERATORS

#: Draws a node with its operands' arrays; the number selects its types.
Case = Callable[[np.random.Generator, str, int], tuple]


def assert_every_bit_kept(case: Case, name: str, seed: int, count: int, masked: bool) -> None:
    """Random nodes move every bit, NaN payloads included, as the reference does."""
    rng = np.random.default_rng(seed)
    profile = device_profile(masked)
    for i in range(count):
        assert_same_bits(*case(rng, name, i), profile)


def assert_moved_in_parts(
    case: Case, name: str, seed: int, count: int, largest: int, dispatches: int
) -> None:
    """With a binding limit of 512 bytes, small tensors are handled like huge ones; one of them
    needs more than this number of dispatches."""
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


def assert_plans_in_catalogue(case: Case, names: Sequence[str], count: int) -> None:
    rng = np.random.default_rng(5)
    native = stored_profile("llvmpipe")
    families = {ALL_OPERATORS[name].lowering.family for name in names}
    for profile in (native, native.masked(TYPE_FEATURES)):
        known = set(catalogue(profile.features & set(TYPE_FEATURES), *sorted(families)))
        for name in names:
            for i in range(count):
                node, _ = case(rng, name, i)
                assert {d.spec for d in plan(node, profile)} <= known
