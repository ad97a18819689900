"""Matrix product kernels against the NumPy reference, and their plans for stored profiles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.comparing import WAYS, assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import device_profile, node_of
from webnn_vk.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.kernels import catalogue, plan
from webnn_vk.kernels.dispatch import Scratch

SIZES = (1, 2, 3, 4, 5, 8, 12, 16, 20, 31, 33, 64, 68)


def _matmul(rng: np.random.Generator, data_type: str) -> tuple:
    m, n, k = (int(s) for s in rng.choice(SIZES, 3))
    batch = [int(s) for s in rng.choice((1, 2, 3), rng.integers(0, 5))]

    def operand(*shape: int) -> np.ndarray:
        own = [s if rng.random() < 0.6 else 1 for s in batch][int(rng.integers(len(batch) + 1)) :]
        return random_array(rng, data_type, (*own, *shape))

    return node_of("matmul", operand(m, k), operand(k, n))


def _gemm(rng: np.random.Generator, data_type: str) -> tuple:
    m, n, k = (int(s) for s in rng.choice(SIZES, 3))
    ta, tb = (bool(t) for t in rng.integers(0, 2, 2))
    a = random_array(rng, data_type, (k, m) if ta else (m, k))
    b = random_array(rng, data_type, (n, k) if tb else (k, n))
    shapes = (None, (), (1,), (n,), (1, n), (m, 1), (m, n))
    shape = shapes[rng.integers(len(shapes))]
    c = None if shape is None else random_array(rng, data_type, shape)
    alpha, beta = (float(f) for f in rng.choice((1.0, 0.5, -2.0, 0.0), 2))
    return node_of("gemm", a, b, c=c, alpha=alpha, beta=beta, a_transpose=ta, b_transpose=tb)


# Sums of up to 68 products of numbers up to 2, of which float32 keeps 24 bits each.
_ERROR = 2e-5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("case", [_matmul, _gemm])
def test_random(case, data_type: str, way: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([WAYS.index(way), FLOAT_TYPES.index(data_type), case is _gemm])
    for _ in range(20):
        assert_close(*case(rng, data_type), profile_for(way), _ERROR)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_edges_of_every_variant(ta: bool, tb: bool) -> None:
    """Sizes around the tiles', for every combination of vector loads."""
    require_vulkan()
    rng = np.random.default_rng(1)
    seen = set()
    for m, n, k in ((8, 64, 8), (9, 65, 7), (7, 63, 4), (12, 68, 5), (12, 66, 8), (10, 36, 3)):
        a = random_array(rng, "float32", (k, m) if ta else (m, k))
        b = random_array(rng, "float32", (n, k) if tb else (k, n))
        node, arrays = node_of("gemm", a, b, a_transpose=ta, b_transpose=tb)
        assert_close(node, arrays, profile_for("software"), _ERROR)
        seen |= {d.variant.split()[1] for d in plan(node, profile_for("software"))}
    assert seen >= {"vv", "ss"}


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    require_vulkan()
    a, b = np.ones((10, 6), np.float32), np.ones((6, 9), np.float32)
    a[9, 5], b[5, 8] = np.inf, np.nan
    for way in ("software", "discrete"):
        assert_close(*node_of("matmul", a, b), profile_for(way))


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_slices(data_type: str, ta: bool, tb: bool) -> None:
    """Operands larger than a binding: several dispatches, parts of the sums through scratch."""
    require_vulkan()
    profile = device_profile(max_storage_buffer_range=2048)
    rng = np.random.default_rng(2)
    a = random_array(rng, data_type, (100, 36) if ta else (36, 100))
    b = random_array(rng, data_type, (44, 100) if tb else (100, 44))
    c = random_array(rng, data_type, (36, 1))
    node, arrays = node_of("gemm", a, b, c=c, alpha=0.5, beta=3.0, a_transpose=ta, b_transpose=tb)
    dispatches = plan(node, profile)
    assert len(dispatches) > 4
    in_parts = any(isinstance(b.value, Scratch) for d in dispatches for b in d.bindings)
    assert in_parts == (ta or not tb)
    assert_close(node, arrays, profile, _ERROR)


def test_slices_of_batches() -> None:
    require_vulkan()
    profile = device_profile(max_storage_buffer_range=2048)
    rng = np.random.default_rng(3)
    a = random_array(rng, "float32", (7, 1, 3, 8, 12))
    b = random_array(rng, "float32", (2, 1, 12, 5))
    assert_close(*node_of("matmul", a, b), profile, _ERROR)


def test_more_batch_dimensions_than_a_kernel_addresses() -> None:
    require_vulkan()
    rng = np.random.default_rng(4)
    a = random_array(rng, "float32", (2, 1, 3, 1, 2, 1, 3, 4))
    b = random_array(rng, "float32", (1, 3, 1, 2, 1, 2, 4, 5))
    node, arrays = node_of("matmul", a, b)
    assert len(plan(node, profile_for("software"))) == 2 * 3 * 3
    assert_close(node, arrays, profile_for("software"), _ERROR)


def _describe(*shape: int) -> MLOperandDescriptor:
    return MLOperandDescriptor("float32", shape)


def _planned(profile: str, a: tuple[int, ...], b: tuple[int, ...], **arguments):
    name = "gemm" if arguments else "matmul"
    node, _ = node_of(name, _describe(*a), _describe(*b), **arguments)
    return plan(node, stored_profile(profile))


def test_plans() -> None:
    (gpu,) = _planned("nvidia_h200", (4096, 1024), (1024, 4096))
    assert gpu.kernel == "matmul_tiled" and gpu.groups == (32 * 32, 1, 1)
    assert gpu.constants == {"LX": 16, "LY": 16, "TM": 8, "TN": 8, "BK": 16}
    assert gpu.flops == 2 * 4096 * 4096 * 1024
    (small,) = _planned("nvidia_h200", (64, 64), (64, 64))
    assert small.constants["LX"] * small.constants["TN"] == 32
    (cpu,) = _planned("llvmpipe", (1024, 384), (384, 1536))
    assert cpu.kernel == "matmul" and math.prod(cpu.groups) == 128 * 24
    assert [b.width for b in cpu.spec.buffers] == [4, 4, 4]
    # An odd row length leaves no vector aligned.
    (odd,) = _planned("llvmpipe", (16, 33), (33, 17))
    assert [b.width for b in odd.spec.buffers] == [1, 1, 1]


def test_batches_that_share_b_are_rows() -> None:
    (dispatch,) = _planned("llvmpipe", (8, 128, 64), (64, 256))
    assert (dispatch.params["M"], dispatch.params["batches"]) == (1024, 1)


def test_a_row_vector_is_a_matrix_times_vector() -> None:
    (row,) = _planned("nvidia_h200", (1, 512), (512, 1024))
    assert row.kernel == "matvec"
    assert (row.params["M"], row.params["K"], row.params["N"]) == (1024, 512, 1)
    (column,) = _planned("nvidia_h200", (1024, 512), (512, 1))
    assert column.kernel == "matvec" and column.params["M"] == 1024


def test_few_workgroup_invocations_are_respected() -> None:
    minimum = stored_profile("adreno_minimum")
    node, _ = node_of("matmul", _describe(4096, 512), _describe(512, 4096))
    (dispatch,) = plan(node, minimum)
    size = dispatch.constants["LX"] * dispatch.constants["LY"]
    assert size <= minimum.max_workgroup_invocations


@pytest.mark.parametrize("profile", ["nvidia_h200", "llvmpipe", "adreno_minimum"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    for limit in (stored_profile(profile).max_storage_buffer_range, 2048):
        device = stored_profile(profile).replace(max_storage_buffer_range=limit)
        known = set(catalogue(device.features))
        rng = np.random.default_rng(5)
        for data_type in FLOAT_TYPES:
            for case in (_matmul, _gemm):
                for _ in range(20):
                    node, _ = case(rng, data_type)
                    assert all(dispatch.spec in known for dispatch in plan(node, device))


@pytest.mark.parametrize(("inner", "scratches"), [(50_000, 0), (60_000, 1), (200_000, 2)])
def test_partial_sums_of_all_batches_share_their_memory(inner: int, scratches: int) -> None:
    a, b = (MLOperandDescriptor("float32", s) for s in ((5, 20, inner), (5, inner, 30)))
    node, _ = node_of("matmul", a, b)
    found = {
        binding.value
        for dispatch in plan(node, stored_profile("llvmpipe"))
        for binding in dispatch.bindings
        if isinstance(binding.value, Scratch)
    }
    assert [s.size for s in found] == [20 * 30 * 4] * scratches
