"""Products by the cooperative matrices of workgroups (NV2), in their emulation, compared with the
references. The emulation shares all tiling, layouts, edges and epilogues with the real form.
Operations that the extension leaves undefined make all results NaN there: reading past the edge of
a layout that isn't clamped, overlapping rows, and matrices that don't begin at a multiple of 16
bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.comparing import random_array
from tests.support.drivers import require_vulkan
from tests.support.matrices import emulating_flexible
from tests.support.running import device_profile, node_of, plan, run, schedules_of
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import (
    KernelNode,
    KernelTarget,
    Schedule,
    Task,
    coopmat2,
    forms,
    kernel_nodes,
)
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.kernels.plan import plan as best_plan
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

# A rounding of the output, and of sums of up to 100 products of numbers up to 2.
_TOLERANCE = 2.0**-10
_TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]


def _tilings(node, profile: DeviceProfile) -> list[Schedule]:
    return [
        s for s in schedules_of(node, profile) if s.kernel == coopmat2.KERNEL and s.parts == 1
    ]


def _assert_right(node, arrays, profile: DeviceProfile, tilings=None) -> None:
    tilings = _tilings(node, profile) if tilings is None else tilings
    assert tilings, "the profile lists no matrices for this product"
    (expected,) = node.evaluate(arrays.get)
    for tiling in tilings:
        (computed,) = run(node, arrays, profile, tiling)
        np.testing.assert_allclose(
            computed.astype(np.float64), expected.astype(np.float64), rtol=_TOLERANCE,
            atol=_TOLERANCE, err_msg=f"{node.title} {dict(node.arguments)} by {tiling}",
        )


def _gemm(rng, m: int, n: int, k: int, transposes=(False, False), **arguments):
    ta, tb = transposes
    a = random_array(rng, "float16", (k, m) if ta else (m, k))
    b = random_array(rng, "float16", (n, k) if tb else (k, n))
    return node_of("gemm", a, b, a_transpose=ta, b_transpose=tb, **arguments)


def test_the_real_form_where_the_device_has_it() -> None:
    require_vulkan()
    profile = device_profile()
    if not profile.flexible_matrices:
        pytest.skip(f"{profile.name} has no cooperative matrices NV2")
    rng = np.random.default_rng(8)
    for sizes in ((300, 520, 128), (131, 145, 51)):
        _assert_right(*_gemm(rng, *sizes), profile)


@pytest.mark.parametrize("transposes", _TRANSPOSES)
def test_transposes_inside_and_at_the_edges(transposes) -> None:
    """Tiles inside, at the edges of rows, columns and steps; sizes below one tile."""
    require_vulkan()
    rng = np.random.default_rng(1)
    profile = emulating_flexible()
    for sizes in ((40, 72, 64), (64, 64, 40), (37, 45, 51), (3, 8, 8)):
        node, arrays = _gemm(rng, *sizes, transposes)
        tilings = _tilings(node, profile)
        # Taller than wide, and wider than tall.
        assert [(t["BM"], t["BN"]) for t in tilings] == [(32, 32), (32, 64)]
        _assert_right(node, arrays, profile, tilings[sizes[0] % 2 :])


def test_results_element_by_element() -> None:
    """Where the device has no matrices of halves for results, or out begins at an unaligned offset.
    """
    require_vulkan()
    rng = np.random.default_rng(2)
    node, arrays = _gemm(rng, 40, 72, 64)
    profile = emulating_flexible(results=("float32",))
    for shown, tensor in ((profile, False), (emulating_flexible(), True)):
        kernel = KernelNode.of(node)
        tiling = _tilings(node, shown)[0]
        (dispatch,) = MATMUL.lower(kernel, MATMUL.problem(kernel), tiling, shown)
        assert dispatch.spec.option("out_tensor") == tensor
    _assert_right(node, arrays, profile)


@pytest.mark.parametrize("shape", [(), (40,), (33, 1), (33, 40)], ids=str)
def test_addend_and_factors(shape: tuple[int, ...]) -> None:
    require_vulkan()
    rng = np.random.default_rng(4)
    c = random_array(rng, "float16", shape)
    node, arrays = _gemm(rng, 33, 40, 24, c=c, alpha=0.5, beta=-3.0)
    _assert_right(node, arrays, emulating_flexible(), _tilings(node, emulating_flexible())[:1])


def test_batches() -> None:
    """Matrices that begin at a multiple of 16 bytes; for others there is no such kernel."""
    require_vulkan()
    rng = np.random.default_rng(5)
    profile = emulating_flexible()
    for a_shape, b_shape in (
        ((3, 20, 24), (3, 24, 40)), ((2, 1, 20, 24), (3, 24, 40)), ((4, 20, 24), (24, 40)),
        # The results' matrices begin at any offset.
        ((3, 33, 8), (3, 8, 15)),
    ):
        a, b = random_array(rng, "float16", a_shape), random_array(rng, "float16", b_shape)
        node, arrays = node_of("matmul", a, b)
        _assert_right(node, arrays, profile, _tilings(node, profile)[:1])
    odd = (MLOperandDescriptor("float16", shape) for shape in ((3, 5, 7), (3, 7, 9)))
    node, _ = node_of("matmul", *odd)
    assert not _tilings(node, profile)


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    require_vulkan()
    a, b = np.ones((35, 16), np.float16), np.ones((16, 40), np.float16)
    a[34, 15], b[15, 39] = np.inf, np.nan
    node, arrays = node_of("matmul", a, b)
    _assert_right(node, arrays, emulating_flexible(), _tilings(node, emulating_flexible())[:1])


def test_results_are_rounded_to_nearest_even() -> None:
    """Sums halfway between two halves, and past the largest half."""
    require_vulkan()
    sums = np.array([2049, 2051, 4098, -2049, 65519, 65520, 2.0**-25, 3 * 2.0**-25], np.float32)
    high = np.floor(sums / 2048) * 2048
    a = np.ones((8, 8), np.float16)
    b = np.zeros((8, 8), np.float16)
    b[0], b[1] = high, (sums - high) / 2
    b[2] = b[1]
    node, arrays = node_of("matmul", a, b)
    profile = emulating_flexible()
    (computed,) = run(node, arrays, profile, _tilings(node, profile)[0])
    exact = b.astype(np.float64).sum(0)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(computed, np.tile(exact.astype(np.float16), (8, 1)))
    assert np.isinf(computed[0, 5]) and computed[0, 0] == 2048 and computed[0, 1] == 2052


def _fused(profile: DeviceProfile, x, w, c, finish) -> tuple[KernelNode, dict]:
    """A product with ``finish`` as its epilogue, as one kernel, and the arrays of its values."""
    emit = Emitter()
    values = [Value(MLOperandDescriptor("float16", x.shape), name="x"),
              *(emit.constant(array) for array in (w, c))]
    out = finish(emit, emit.matmul(*values[:2]), values[2])
    graph = Graph({"x": values[0]}, {"out": out}, tuple(emit.nodes))
    (node,) = kernel_nodes(graph, Compilation(profile))
    return node, dict(zip(values, (x, w, c), strict=True))


@pytest.mark.parametrize("kind", ["float16", "uint8", "float32"])
def test_fused_operators(kind: str) -> None:
    require_vulkan()
    rng = np.random.default_rng(6)
    profile = _gpu()
    x, w, c = (random_array(rng, "float16", s) for s in ((48, 40), (40, 72), (72,)))
    half = (x.astype(np.float32) @ w.astype(np.float32)).astype(np.float16)
    finish, expected, tolerance = {
        "float16": (lambda b, v, c: b.relu(b.add(v, c)), np.maximum(half + c, 0), 4e-3),
        "uint8": (lambda b, v, c: b.cast(b.abs(v), "uint8"), np.abs(half), _TOLERANCE),
        "float32": (lambda b, v, c: b.cast(b.mul(v, c), "float32"), half * c, 4e-3),
    }[kind]
    node, arrays = _fused(profile, x, w, c, finish)
    (dispatch,) = plan(node, profile)
    assert dispatch.kernel == coopmat2.KERNEL and node.epilogue
    assert dispatch.spec.option("out_tensor") == (kind != "uint8")
    (computed,) = run(node, arrays, profile)
    assert computed.dtype.name == kind
    if kind == "uint8":
        # A sum at an integer may be truncated to either side of it.
        clear = np.abs(expected - np.round(expected)) > tolerance * np.abs(expected)
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(computed[clear], expected[clear].astype(kind))
        computed, expected = computed[~clear].astype(int), np.floor(expected[~clear])
        assert (np.abs(computed - expected) <= 1).all()
        return
    np.testing.assert_allclose(
        computed.astype(np.float64), expected.astype(kind).astype(np.float64), rtol=tolerance,
        atol=tolerance,
    )


def test_weights_in_panels() -> None:
    """The last panel is wider than the remaining columns."""
    require_vulkan()
    rng = np.random.default_rng(9)
    profile = _gpu()
    x, w, c = (random_array(rng, "float16", s) for s in ((48, 40), (40, 72), (72,)))
    node, arrays = _fused(profile, x, w, c, lambda b, v, c: b.add(v, c))
    target = KernelTarget(profile)
    panels = next(forms(Task.of(node), best_plan(node, target).schedule, target)).node
    (dispatch,) = plan(panels, profile)
    assert dispatch.kernel == coopmat2.KERNEL and dispatch.params["b_panel"] == 32 * 40
    ((plain,), (by_panels,)) = (run(n, arrays, profile) for n in (node, panels))
    np.testing.assert_array_equal(by_panels, plain)


def test_parts_of_a_long_inner_dimension() -> None:
    require_vulkan()
    rng = np.random.default_rng(10)
    node, arrays = _gemm(rng, 40, 36, 512)
    profile = _gpu()
    part, total = plan(node, profile)
    assert (part.kernel, total.kernel) == (coopmat2.KERNEL, "matmul_sum")
    (computed,), (expected,) = run(node, arrays, profile), node.evaluate(arrays.get)
    np.testing.assert_allclose(
        computed.astype(np.float64), expected.astype(np.float64), rtol=_TOLERANCE, atol=4e-2
    )


def _gpu() -> DeviceProfile:
    return emulating_flexible(device_type="discrete", vendor_id=0x10DE)


def test_a_pointwise_convolution() -> None:
    require_vulkan()
    rng = np.random.default_rng(7)
    x, w = random_array(rng, "float16", (2, 5, 7, 32)), random_array(rng, "float16", (40, 1, 1, 32))
    bias = random_array(rng, "float16", (40,))
    node, arrays = node_of(
        "conv2d", x, w, bias=bias, input_layout="nhwc", filter_layout="ohwi"
    )
    profile = _gpu()
    (dispatch,) = plan(node, profile)
    assert dispatch.kernel == coopmat2.KERNEL
    _assert_right(node, arrays, profile, _tilings(node, profile)[:1])
