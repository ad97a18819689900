"""Products with weights of 4 and 8 bits and scales of blocks, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.comparing import GPU_WAYS, assert_close, profile_for
from tests.support.drivers import require_vulkan
from tests.support.matrices import SHAPES, emulating, with_denormals
from tests.support.running import node_of, plan, run, schedules_of
from webnn_vk.compiler.kernels import KernelNode, coopmat, solver_of
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.compiler.ops.block_product import packed, unpacked
from webnn_vk.driver.device_profile import DeviceProfile


@pytest.fixture(autouse=True)
def matrices(vulkan: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with_denormals(monkeypatch)


def product(
    rows: tuple[int, ...], n: int, k: int, block: int, bits: int, *, offset: bool = False,
    zero: float = 0.0, kind: str = "float32", scale_kind: str = "float16", seed: int = 0,
    largest: float = 1.0,
) -> tuple[Any, dict]:
    """A node and its arrays: activations of about 1, weights of up to about ``largest``. What is
    stored beyond K has the largest weights."""
    rng = np.random.default_rng(seed)
    stored = -(-k // block) * block
    integers = rng.integers(0, 1 << bits, (n, stored)).astype(np.uint8)
    integers[:, k:] = (1 << bits) - 1
    scale = largest * rng.uniform(0.2, 1, (n, stored // block)) / (1 << bits)
    given = {"bits": bits, "zero_point": zero}
    if offset:
        given["offset"] = (largest * rng.uniform(-1, 1, scale.shape)).astype(scale_kind)
    return node_of(
        "block_matmul", rng.uniform(-1, 1, (*rows, k)).astype(kind), packed(integers, bits),
        scale.astype(scale_kind), **given,
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_random_shapes(bits: int) -> None:
    """Odd numbers of blocks, K within a block, few rows and many, batches."""
    require_vulkan()
    rng = np.random.default_rng(bits)
    for seed in range(4):
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
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way, 1 << 17), 2e-5)  # sums of up to 900 terms


def profiles() -> tuple[DeviceProfile, ...]:
    """Of a processor, a GPU, and one on which bytes become floats without conversions."""
    gpu = profile_for("discrete")
    return profile_for("software"), gpu, gpu.replace(vendor_id=0x10DE)


@pytest.mark.sample(0.34)
@pytest.mark.parametrize(("bits", "rows", "offset"), [
    (4, 1, True), (4, 3, False), (4, 40, True), (8, 1, False), (8, 3, True), (8, 40, False),
])
def test_every_schedule(bits: int, rows: int, offset: bool) -> None:
    """With an offset, rows end within a block and are not whole vectors. To save time, each case
    has a part of the schedules, of which the two GPUs have one half each, and the processor one;
    with other bits, or rows for the kernels that any number of them have, it is the others' turn.
    """
    require_vulkan()
    turn = (1, 3, 40).index(rows)
    for gpu, profile in enumerate(profiles()):
        node, arrays = product((rows,), 70, 160 - 10 * offset, 32, bits, zero=8.0, offset=offset)
        schedules = schedules_of(node, profile)
        kernels = {schedule.kernel for schedule in schedules}
        assert kernels == {"matvec_blocks", "matmul", "matmul_tiled"}
        vectors = [s for s in schedules if s.kernel == "matvec_blocks"][(bits // 4 + turn) % 2 :: 2]
        own = [*vectors, *[s for s in schedules if s.kernel != "matvec_blocks"][turn::3]]
        for schedule in own[gpu % 2 :: 2]:
            assert_close(node, arrays, profile, 1e-5, schedule)


@pytest.mark.parametrize("bits", [4, 8])
def test_every_integer_is_exact(bits: int) -> None:
    """Each at each place of a word, by every kernel for one row: these sums have no roundings."""
    require_vulkan()
    rng, count = np.random.default_rng(bits), 1 << bits
    integers = ((np.arange(count)[:, None] + np.arange(64)) % count).astype(np.uint8)
    scale = np.float16(2.0) ** rng.integers(-3, 3, (count, 2)).astype(np.float16)
    a = rng.integers(-8, 9, (1, 64)).astype(np.float32)
    node, arrays = node_of(
        "block_matmul", a, packed(integers, bits), scale, bits=bits, zero_point=count - 1.0,
    )
    for gpu, profile in enumerate(profiles()):
        schedules = [s for s in schedules_of(node, profile) if s.kernel == "matvec_blocks"]
        for schedule in schedules[gpu - 1 :: 2] if gpu else schedules:  # the GPUs share
            assert_close(node, arrays, profile, 0, schedule)


def test_weights_larger_than_a_binding() -> None:
    """They are read by several dispatches, of some columns each."""
    require_vulkan()
    profile = profile_for("portions", 1 << 14)
    node, arrays = product((2,), 700, 96, 32, 4, zero=8.0)  # 33.6 kB
    profile = profile.masked(["texel_buffers"])
    assert len(plan(node, profile)) == 3
    assert_close(node, arrays, profile, 1e-5)


# -- by cooperative matrices, whose weights are float16
def halves(rows: int, n: int, k: int, block: int, bits: int, offset: bool, **more: Any) -> Any:
    """Operands as graphs of float16 have them."""
    return product(
        (rows,), n, k, block, bits, offset=offset, kind="float16",
        scale_kind="float32" if offset else "float16", **more,
    )


def assert_by_matrices(node: Any, arrays: dict, profile: DeviceProfile) -> None:
    """Each tiling gives what NumPy does with weights rounded to float16, but for the rounding of
    sums in float32, and about what the plain kernel does."""
    a, words, scale, *offset = (arrays[value] for value in node.inputs)
    weights = unpacked(words, node.arguments["bits"]).astype(np.float32)
    weights = weights.reshape(*scale.shape, -1) - np.float32(node.arguments["zero_point"])
    weights *= scale.astype(np.float32)[..., None]
    if offset:
        weights += offset[0][..., None]
    rounded = weights.reshape(len(words), -1)[:, : a.shape[1]].astype(np.float16)
    a = a.astype(np.float64)
    expected = a @ rounded.astype(np.float64).T
    sizes = np.abs(a) @ np.abs(rounded).astype(np.float64).T
    # Of normal weights, and of denormal ones.
    rounding = 2.0**-11 * sizes + 2.0**-25 * np.abs(a).sum(1)[:, None]
    schedules = schedules_of(node, profile)
    tilings = [s for s in schedules if s.kernel == coopmat.KERNEL]
    assert tilings, "the profile lists no shape for this product"
    (plain,) = run(node, arrays, profile, next(s for s in schedules if s.kernel == "matmul"))
    for tiling in tilings:
        (own,) = run(node, arrays, profile, tiling)
        what = f"{node.title} {dict(node.arguments)} by {tiling}"
        assert own.dtype == np.float32
        assert (np.abs(own - expected) <= 1e-6 * sizes).all(), what
        assert (np.abs(own - plain) <= rounding + 2e-6 * sizes).all(), what


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_halves_by_matrices(bits: int, offset: bool) -> None:
    """Sizes below, at and past the sizes of fragments, tiles and steps; K ends within a block."""
    require_vulkan()
    zeros = 0.0, float(1 << bits - 1), float((1 << bits) - 1)
    for case, (rows, n, k, block) in enumerate((
        (32, 32, 32, 32), (3, 8, 8, 8), (33, 41, 40, 32), (70, 36, 96, 16), (8, 64, 200, 128),
        (40, 70, 1000, 64),
    )):
        node, arrays = halves(rows, n, k, block, bits, offset, zero=zeros[case % 3])
        assert_by_matrices(node, arrays, emulating())


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_matrices(shape: str) -> None:
    require_vulkan()
    for bits, offset in ((4, False), (8, True)):
        node, arrays = halves(33, 40, 72, 8, bits, offset, zero=8.0)
        assert_by_matrices(node, arrays, emulating(shape))


def test_many_steps_by_matrices() -> None:
    require_vulkan()
    for bits, offset in ((4, False), (8, True)):
        node, arrays = halves(5, 9, 4096, 32, bits, offset, zero=8.0)
        profile = emulating("16x16x16, subgroups of 32").replace(device_type="discrete")
        assert_by_matrices(node, arrays, profile)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_the_range_of_halves(bits: int, offset: bool) -> None:
    """Denormals, and almost the largest numbers."""
    require_vulkan()
    for largest in (2.0**-14, 2.0**-20, 3e4):
        node, arrays = halves(9, 20, 72, 32, bits, offset, zero=float(1 << bits - 1),
                              largest=largest)
        assert_by_matrices(node, arrays, emulating())


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_that_overflow(bits: int, offset: bool) -> None:
    """Beyond K they don't count; else their columns are infinite."""
    require_vulkan()
    node, arrays = halves(9, 20, 40, 32, bits, offset, largest=1e5)
    a, words, scale, *offsets = node.inputs
    assert (arrays[scale][:, 1].astype(np.float32) * ((1 << bits) - 1)).max() > 65520
    arrays |= {v: np.zeros_like(arrays[v]) for v in offsets}
    arrays[words] = arrays[words].copy()
    arrays[words][:, : 40 * bits // 32] = 0
    tilings = [s for s in schedules_of(node, emulating()) if s.kernel == coopmat.KERNEL]
    for tiling in tilings:
        (own,) = run(node, arrays, emulating(), tiling)
        np.testing.assert_array_equal(own, 0)
    arrays[words][5, 0] = 0xFF
    arrays[a] = np.abs(arrays[a]) + np.float16(1)
    arrays[scale] = np.full_like(arrays[scale], 6e4)
    (own,) = run(node, arrays, emulating(), tilings[0])
    assert np.isposinf(own[:, 5]).all() and not own[:, :5].any() and not own[:, 6:].any()


def test_weights_larger_than_a_binding_by_matrices() -> None:
    require_vulkan()
    profile = emulating().replace(max_storage_buffer_range=1 << 17)
    node, arrays = halves(40, 700, 512, 32, 4, False, zero=8.0)  # 179 kB
    tiling = next(s for s in schedules_of(node, profile) if s.kernel == coopmat.KERNEL)
    assert len(plan(node, profile, {(
        "block_product", problem_class(solver_of(KernelNode.of(node))[1])
    ): tiling})) == 2
    (own,) = run(node, arrays, profile, tiling)
    (whole,) = run(node, arrays, emulating(), tiling)
    np.testing.assert_array_equal(own, whole)
