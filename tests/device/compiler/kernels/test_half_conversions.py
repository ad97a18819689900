"""float16 conversions by the device's own instructions, for devices that promise exact ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support import kernels
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import device_profile, node_of, plan, promise_exact_conversions, run
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS, rounded
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


@pytest.fixture
def promised(monkeypatch):
    require_vulkan()
    promise_exact_conversions(monkeypatch)


def all_halves():
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def copied(given, data_type, vectors, packed):
    """``given`` read in its data type and written in another."""
    width = 4 if vectors else 1
    buffers = Buffer("a", str(given.dtype), "r", width), Buffer("out", data_type, "w", width)
    features = HALF_CONVERSIONS | ({"float16"} if not packed else frozenset())
    spec = KernelSpec(
        "copied.comp.j2", buffers, (Param("n"),), options=(("vectors", vectors),),
        features=features,
    )
    count = given.size // width
    out = {"out": np.zeros(given.size, data_type)}
    with kernels.templates(copied=kernels.COPY):
        return kernels.run(spec, {"a": given}, out, count)["out"]


def assert_same_values(result, expected):
    """Zeros have their signs, too. A NaN has none that counts: NVIDIA's instructions lose it."""
    np.testing.assert_array_equal(result, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(expected[numbers]))


ways = pytest.mark.parametrize(
    "vectors, packed", [(True, True), (False, True), (False, False)],
    ids=["vectors", "packed", "one by one"],
)


@ways
def test_every_half_is_read_exactly(promised, vectors, packed):
    halves = all_halves()
    result = copied(halves, "float32", vectors, packed)
    assert_same_values(result, halves.astype(np.float32))


def singles():
    """Each half, the tie above it and the neighbours of the tie on both sides; then overflowing
    numbers."""
    halves = all_halves()[:31743].astype(np.float32)
    ties = (halves + all_halves()[1:31744].astype(np.float32)) / 2
    given = np.concatenate([
        halves, ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(1e9)),
        np.float32([65519, 65520, 1e9, np.inf, np.nan, 0, 0, 0]),
    ])
    return np.concatenate([given, -given])


@ways
def test_singles_are_rounded_to_nearest_even(promised, vectors, packed):
    given = singles()
    result = copied(given, "float16", vectors, packed)
    with np.errstate(over="ignore"):
        expected = given.astype(np.float16)
    assert_same_values(result, expected)


def test_singles_are_rounded_between_fused_operators(promised):
    given = singles()
    spec = KernelSpec(
        "rounded.comp.j2", (Buffer("a", "float32"), Buffer("out", "float32", "w")), (Param("n"),),
        features=HALF_CONVERSIONS, options=(("vectors", False),),
    )
    text = kernels.COPY.replace("load_a(i)", rounded("load_a(i)", "float16"))
    with kernels.templates(rounded=text):
        result = kernels.run(spec, {"a": given}, {"out": np.zeros_like(given)}, given.size)["out"]
    with np.errstate(over="ignore"):
        assert_same_values(result, given.astype(np.float16).astype(np.float32))


NUMBERS = np.random.default_rng(4).uniform(-2, 2, (4, 4, 40, 36)).astype(np.float16)


@pytest.mark.parametrize(("operator", "arguments", "options"), [
    ("matmul", (NUMBERS[0, 0], NUMBERS[0, 0].T), {}),
    ("relu", (NUMBERS,), {}),
    ("div", (NUMBERS, NUMBERS[0, 0, :1]), {}),
    ("softmax", (NUMBERS[0, 0], 1), {}),
    ("layer_normalization", (NUMBERS[0],), {"axes": [2]}),
    ("batch_normalization", (NUMBERS, NUMBERS[0, 0, 0, :4], abs(NUMBERS[1, 0, 0, :4])), {}),
    ("reduce_sum", (NUMBERS,), {"axes": [3]}),
    ("reduce_max", (NUMBERS,), {"axes": [1]}),
    ("cumulative_sum", (NUMBERS, 3), {}),
    ("max_pool2d", (NUMBERS,), {"window_dimensions": [3, 3]}),
    ("resample2d", (NUMBERS,), {"sizes": [11, 13], "mode": "linear"}),
])
def test_each_kind_of_kernel(promised, operator, arguments, options):
    node, arrays = node_of(operator, *arguments, **options)
    plain = device_profile(device_type="discrete")
    profile = plain.replace(features=plain.features | HALF_CONVERSIONS)
    dispatches = plan(node, profile)
    assert all(dispatch.spec.features >= HALF_CONVERSIONS for dispatch in dispatches)
    (result,) = run(node, arrays, profile)
    np.testing.assert_array_equal(result, run(node, arrays, plain)[0])


def test_modules_with_their_modes_are_valid():
    given = MLOperandDescriptor("float16", (64, 64))
    kernel = KernelNode.of(node_of("matmul", given, given)[0])
    profile = stored_profile("amd_navi31").masked(["cooperative_matrix"])
    (dispatch,) = plan(kernel, profile)
    assert dispatch.spec.features >= HALF_CONVERSIONS
    kernels.validate(kernels.compile_spec(dispatch.spec))
