"""Products by cooperative matrices, in their emulation, compared with the references. The emulation
shares all tiling, indexing, staging and storing with the real form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.comparing import random_array
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.matrices import SHAPES, emulating
from tests.support.running import device_profile, node_of, plan, run, schedules_of
from webnn_vk.compiler.kernels import coopmat
from webnn_vk.compiler.types.data_types import FLOAT_TYPES
from webnn_vk.driver.device_profile import DeviceProfile

# Roundings of the output, and of sums of up to 100 products of numbers up to 2.
_TOLERANCES = {"float16": 2.0**-10, "float32": 2e-5}
_TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


def test_the_real_form_where_the_device_has_it() -> None:
    """Newer versions of lavapipe list shapes, as GPUs do, but take ten seconds to compile a kernel:
    there one of each type, by vectors or by elements."""
    require_vulkan()
    profile = device_profile()
    data_types = [t for t in FLOAT_TYPES if coopmat.shape_for(t, profile)]
    if not data_types:
        pytest.skip(f"{profile.name} lists no cooperative matrices")
    rng = np.random.default_rng(8)
    sizes, most = ((40, 72, 80), (131, 145, 51)), None
    cases = itertools.product(data_types, sizes)
    if profile.is_software:
        cases, most = zip(data_types, itertools.cycle(sizes), strict=False), 1
    for data_type, (m, n, k) in cases:
        a, b = random_array(rng, data_type, (m, k)), random_array(rng, data_type, (k, n))
        _assert_right(*node_of("gemm", a, b), profile, most)


def _assert_right(node, arrays, profile: DeviceProfile, most: int | None = None) -> None:
    tilings = [s for s in schedules_of(node, profile) if s.kernel == coopmat.KERNEL][:most]
    assert tilings, "the profile lists no shape for this product"
    (expected,) = node.evaluate(arrays.get)
    tolerance = _TOLERANCES[expected.dtype.name]
    for tiling in tilings:
        (computed,) = run(node, arrays, profile, tiling)
        assert_allclose(
            computed.astype(np.float64), expected.astype(np.float64), rtol=tolerance,
            atol=tolerance, err_msg=f"{node.title} {dict(node.arguments)} by {tiling}",
        )


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("transposes", _TRANSPOSES)
@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_transposes_by_vectors_and_by_elements(data_type: str, transposes) -> None:
    require_vulkan()
    rng = np.random.default_rng(1)
    ta, tb = transposes
    for m, n, k in ((40, 72, 80), (37, 45, 51)):
        a = random_array(rng, data_type, (k, m) if ta else (m, k))
        b = random_array(rng, data_type, (n, k) if tb else (k, n))
        node, arrays = node_of("gemm", a, b, a_transpose=ta, b_transpose=tb)
        _assert_right(node, arrays, emulating(data_type=data_type))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_and_edges(shape: str) -> None:
    """Sizes below, at and past the sizes of fragments, tiles and steps."""
    require_vulkan()
    rng = np.random.default_rng(2)
    profile = emulating(shape)
    for m, n, k in ((32, 32, 32), (3, 8, 8), (33, 40, 8), (8, 64, 72)):
        a, b = random_array(rng, "float16", (m, k)), random_array(rng, "float16", (k, n))
        _assert_right(*node_of("gemm", a, b), profile)


@pytest.mark.parametrize("sizes", [(24, 41, 16), (24, 40, 15), (24, 44, 16)])
def test_one_operand_by_vectors_the_other_by_elements(sizes) -> None:
    require_vulkan()
    rng = np.random.default_rng(3)
    m, n, k = sizes
    a, b = random_array(rng, "float16", (m, k)), random_array(rng, "float16", (k, n))
    _assert_right(*node_of("gemm", a, b), emulating())


@pytest.mark.parametrize("shape", [(), (40,), (33, 1), (33, 40)], ids=str)
def test_addend_and_factors(shape: tuple[int, ...]) -> None:
    require_vulkan()
    rng = np.random.default_rng(4)
    a, b = random_array(rng, "float16", (33, 24)), random_array(rng, "float16", (24, 40))
    c = random_array(rng, "float16", shape)
    _assert_right(*node_of("gemm", a, b, c=c, alpha=0.5, beta=-3.0), emulating())


def test_batches() -> None:
    require_vulkan()
    rng = np.random.default_rng(5)
    for a_shape, b_shape in (
        ((3, 20, 24), (3, 24, 40)), ((2, 1, 20, 24), (3, 24, 40)), ((2, 3, 33, 8), (2, 1, 8, 16)),
        ((4, 20, 24), (24, 40)),
    ):
        a, b = random_array(rng, "float16", a_shape), random_array(rng, "float16", b_shape)
        _assert_right(*node_of("matmul", a, b), emulating())


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    require_vulkan()
    a, b = np.ones((35, 16), np.float16), np.ones((16, 40), np.float16)
    a[34, 15], b[15, 39] = np.inf, np.nan
    node, arrays = node_of("matmul", a, b)
    _assert_right(node, arrays, emulating())


def test_a_pointwise_convolution() -> None:
    require_vulkan()
    rng = np.random.default_rng(6)
    x, w = random_array(rng, "float16", (2, 5, 7, 24)), random_array(rng, "float16", (40, 1, 1, 24))
    bias = random_array(rng, "float16", (40,))
    profile = emulating().replace(device_type="discrete", vendor_id=0x10DE, max_shared_memory=32768)
    node, arrays = node_of(
        "conv2d", x, w, bias=bias, input_layout="nhwc", filter_layout="ohwi"
    )
    (dispatch,) = plan(node, profile)
    assert dispatch.kernel == "matmul_tiled", "24 steps fill no tile"
    x, w = random_array(rng, "float16", (2, 5, 7, 32)), random_array(rng, "float16", (40, 1, 1, 32))
    node, arrays = node_of(
        "conv2d", x, w, bias=bias, input_layout="nhwc", filter_layout="ohwi"
    )
    _assert_right(node, arrays, profile)
