"""Products with weights of 4 and 8 bits and scales of blocks, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, plan, schedules_of
from webnn_vk.compiler.ops.block_product import packed


def product(
    rows: tuple[int, ...], n: int, k: int, block: int, bits: int, *, offset: bool = False,
    zero: float = 0.0, kind: str = "float32", scale_kind: str = "float16", seed: int = 0,
) -> tuple[Any, dict]:
    """A node and its arrays: activations of about 1, weights of up to about 1. What is stored
    beyond K has the largest weights."""
    rng = np.random.default_rng(seed)
    stored = -(-k // block) * block
    integers = rng.integers(0, 1 << bits, (n, stored)).astype(np.uint8)
    integers[:, k:] = (1 << bits) - 1
    scale = rng.uniform(0.2, 1, (n, stored // block)) / (1 << bits)
    given = {"bits": bits, "zero_point": zero}
    if offset:
        given["offset"] = rng.uniform(-1, 1, scale.shape).astype(scale_kind)
    return node_of(
        "block_matmul", rng.uniform(-1, 1, (*rows, k)).astype(kind), packed(integers, bits),
        scale.astype(scale_kind), **given,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bits", [4, 8])
def test_random_shapes(way: str, bits: int) -> None:
    """Odd numbers of blocks, K within a block, few rows and many, batches."""
    require_vulkan()
    rng = np.random.default_rng(bits)
    for seed in range(12):
        block = int(rng.choice((8, 16, 32, 64, 128)))
        blocks = int(rng.integers(1, 8))
        k = blocks * block - int(rng.choice((0, 0, 1, 4, 5)))
        n = int(rng.choice((1, 3, 8, 36, 70)))
        rows = ((1,), (1,), (2,), (3,), (5,), (2, 1, 4), (33,))[rng.integers(7)]
        node, arrays = product(
            rows, n, k, block, bits, offset=bool(rng.integers(2)),
            zero=float(rng.choice((0, 1 << (bits - 1)))),
            kind=str(rng.choice(("float32", "float16"))),
            scale_kind=str(rng.choice(("float32", "float16"))), seed=seed,
        )
        portion = 1 << 17
        assert_close(node, arrays, profile_for(way, portion), 2e-5)  # sums of up to 900 terms


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("bits", [4, 8])
def test_every_schedule(bits: int, rows: int) -> None:
    require_vulkan()
    for way in ("software", "discrete"):
        profile = profile_for(way)
        node, arrays = product((rows,), 70, 160, 32, bits, zero=8.0)
        schedules = schedules_of(node, profile)
        kernels = {schedule.kernel for schedule in schedules}
        assert kernels == {"matvec_blocks", "matmul", "matmul_tiled"}
        for schedule in schedules:
            assert_close(node, arrays, profile, 1e-5, schedule)


def test_weights_larger_than_a_binding() -> None:
    """They are read by several dispatches, of some columns each."""
    require_vulkan()
    profile = profile_for("portions", 1 << 14)
    node, arrays = product((2,), 700, 96, 32, 4, zero=8.0)  # 33.6 kB
    profile = profile.masked(["texel_buffers"])
    assert len(plan(node, profile)) == 3
    assert_close(node, arrays, profile, 1e-5)
