"""Plans of the elementwise kernels, made for stored profiles: no device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from bench.isa.catalogue import catalogue
from tests.support.cases.elementwise import MASKED, OPERATOR_NAMES, nodes
from tests.support.kernels import compile_spec
from tests.support.profiles import NAMES, stored_profile
from tests.support.running import node_of, plan
from webnn_vk.codegen.spirv import info
from webnn_vk.compiler.ir import Node, Value
from webnn_vk.compiler.kernels import Unsupported
from webnn_vk.compiler.kernels.addressing import Mode
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS, reciprocal
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


@pytest.mark.parametrize(
    ("shape", "other", "modes"),
    [
        ((4, 6), (4, 6), "flat+flat"),
        ((4, 6), (), "flat+scalar"),
        ((4, 6), (6,), "flat+gather"),
        ((4, 8), (8,), "flat+vector"),
        ((3, 8), (3, 1), "flat+splat"),
        ((8, 1), (1, 8), "splat+vector"),
        ((2, 3, 5), (3, 1), "flat+gather"),
        ((1, 8), (8,), "flat+flat"),
    ],
)
def test_modes(shape: tuple[int, ...], other: tuple[int, ...], modes: str) -> None:
    node, _ = node_of("add", np.zeros(shape, np.float32), np.zeros(other, np.float32))
    for profile, variant in (("nvidia_ampere", modes), ("llvmpipe", f"{modes} texels")):
        (dispatch,) = plan(node, stored_profile(profile))
        assert dispatch.variant == variant


def test_vectors_need_types_of_at_most_32_bits() -> None:
    node, _ = node_of("add", np.zeros((4, 8), np.int64), np.zeros(8, np.int64))
    (dispatch,) = plan(node, stored_profile("llvmpipe"))
    assert dispatch.constants["M_x1"] == Mode.GATHER
    assert [b.width for b in dispatch.spec.buffers] == [1, 1, 1]


def test_one_module_serves_all_shapes() -> None:
    specs = set()
    for a, b in [((5,), (5,)), ((3, 1, 4), (2, 1)), ((2,) * 8, (2, 1) * 4), ((), ())]:
        node, _ = node_of("mul", np.zeros(a, np.float16), np.zeros(b, np.float16))
        (dispatch,) = plan(node, stored_profile("llvmpipe"))
        specs.add(dispatch.spec)
    assert len(specs) == 1


@pytest.mark.sample(0.5)
@MASKED
def test_catalogue_holds_every_unfused_plan(masked: bool) -> None:
    device = stored_profile("nvidia_ampere").masked(("int64",) if masked else ())
    known = set(catalogue(device.features, "elementwise"))
    for name in OPERATOR_NAMES:

        @settings(max_examples=20)
        @given(nodes(name))
        def check(made: tuple[Node, dict[Value, np.ndarray]]) -> None:
            assert {d.spec for d in plan(made[0], device)} <= known

        check()


def test_catalogue_is_small() -> None:
    features = stored_profile("nvidia_ampere").features
    exact = features - HALF_CONVERSIONS
    both = {*catalogue(frozenset(), "elementwise"), *catalogue(exact, "elementwise")}
    # The conversions of low-precision types, by the expressions that only they have.
    marks = (
        "w_to_bfloat16", "w_to_float8", "uintBitsToFloat", "w_half_to_float", "& 15u", ", 0, 4)",
    )
    low = {spec for spec in both if any(m in str(spec.option("statements")) for m in marks)}
    assert 0 < len(low) <= 21
    assert len(both - low) < 460
    # On devices with exact conversions kernels of float16 are the same beside these.
    converting = {*catalogue(features, "elementwise")} - both
    assert {replace(spec, features=spec.features - HALF_CONVERSIONS) for spec in converting} <= both
    assert all("float16" in {b.data_type for b in spec.buffers} for spec in converting)


def test_masked_features_are_not_used() -> None:
    for spec in catalogue(frozenset(), "elementwise"):
        needed = {"Shader", "SampledBuffer"} if spec.texels else {"Shader"}
        assert info(compile_spec(spec)).capabilities == needed, spec.option("statements")


def test_results_in_float16_are_computed_by_short_forms() -> None:
    device = stored_profile("nvidia_ampere")
    half, single, integer = (
        MLOperandDescriptor(kind, (64,)) for kind in ("float16", "float32", "int32")
    )

    def statements(*made: Any) -> Any:
        (dispatch,) = plan(node_of(*made)[0], device)
        return dispatch.spec.option("statements")

    assert statements("div", half, half) == (("float16", "w_half_div(x0, x1)"),)
    assert statements("softsign", half) == (("float16", "w_half_div(x0, w_add(1.0, w_abs(x0)))"),)
    assert statements("div", single, single) == (("float32", "w_div(x0, x1)"),)
    assert statements("div", integer, integer) == (("int32", "w_div(x0, x1)"),)
    # The result is an integer, for which the quotient of halves has to be exact.
    zero = MLOperandDescriptor("int8", (64,))
    ((kind, text),) = statements("quantize_linear", half, half, zero)
    assert kind == "int8" and "w_div(x0, x1)" in text


def test_division_by_reciprocals() -> None:
    """The arithmetic of lib/divide.glsl.j2 over its whole range."""
    rng = np.random.default_rng(7)
    d = np.concatenate([np.arange(2, 2000), rng.integers(2, 2**31, 20000), [2**31 - 1]])
    multiple = d * rng.integers(0, 2**31 // d, endpoint=True)
    numbers = [multiple - 1, multiple, multiple + 1, np.full_like(d, 2**31 - 1), d - 1]
    magic = np.array([reciprocal(int(n)) for n in d], np.uint64)
    assert magic.max() < 2**32
    for n in numbers:
        n = np.clip(n, 0, 2**31 - 1)
        estimate = ((n.astype(np.uint64) * magic) >> np.uint64(32)).astype(np.int64)
        remainder = (n - estimate * d) % 2**32
        quotient = np.where(remainder < d, estimate, estimate - 1)
        np.testing.assert_array_equal(quotient, n // d)


@pytest.mark.parametrize("name", NAMES)
def test_plans_respect_every_device(name: str) -> None:
    device = stored_profile(name)
    # 1.2 GiB: several slices where a binding holds 128 MiB.
    shape = (300, 1024, 1024)
    a, b = (MLOperandDescriptor("float32", s) for s in (shape, (1024, 1)))
    node, _ = node_of("add", a, b)
    size = node.output.descriptor.byte_length
    dispatches = plan(node, device)
    assert len(dispatches) == math.ceil(size / device.max_storage_buffer_range)
    position = 0
    for dispatch in dispatches:
        binding = dispatch.bindings[-1]
        assert binding.offset == position
        length = binding.size or size - position
        assert length <= device.max_storage_buffer_range
        position += length
        limits = zip(dispatch.groups, device.max_workgroup_count, strict=True)
        assert all(groups <= most for groups, most in limits)
        invocations = math.prod(dispatch.groups) * dispatch.constants["LX"]
        invocations *= dispatch.constants["ITEMS"]
        assert invocations * 4 >= dispatch.params["high"]
    assert position == size


def test_too_many_operands_are_refused() -> None:
    # With 16 dimensions the parameters need a buffer beside the three operands and the result.
    x, scale = (MLOperandDescriptor("float32", (n,) * 8) for n in (4, 2))
    node, _ = node_of("quantize_linear", x, scale, MLOperandDescriptor("int8", (2,) * 8))
    device = stored_profile("adreno_minimum")
    assert plan(node, device.replace(max_storage_buffers_per_set=5))
    with pytest.raises(Unsupported, match="needs 5 storage buffers"):
        plan(node, device.replace(max_storage_buffers_per_set=4))
