"""The cost model: more work is never cheaper, on any device; and the order of candidates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.profiles import NAMES, stored_profile
from tests.support.running import node_of
from tests.unit.compiler.kernels.test_choose import CASES
from webnn_vk.compiler.kernels import KernelNode, Schedule, Unsupported, solver_of
from webnn_vk.compiler.kernels.choose import fitting, modelled, ranked
from webnn_vk.compiler.kernels.cost import KERNELS, CostParameters, compiling, estimate
from webnn_vk.compiler.kernels.heuristics.device_classes import DEVICE_CLASSES
from webnn_vk.compiler.kernels.product import Product
from webnn_vk.compiler.kernels.rows import Rows
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

SIZES = st.integers(1, 3000)
COSTS = st.floats(0.01, 200)


@st.composite
def cost_parameters(draw: st.DrawFn) -> CostParameters:
    """Any device."""
    costs = {name: draw(COSTS) for name in (
        "multiply_add", "storage", "texel", "shared", "store", "barrier", "group",
    )}
    return CostParameters(
        units=draw(st.integers(1, 200)), width=draw(st.sampled_from([4, 8, 16, 32, 64])),
        registers=draw(st.integers(16, 1024)), compile=draw(st.integers(0, 1000)), **costs,
    )


@st.composite
def profiles(draw: st.DrawFn) -> DeviceProfile:
    """A device with any limits that Vulkan allows."""
    invocations = draw(st.sampled_from([128, 256, 512, 1024]))
    profile = stored_profile(draw(st.sampled_from(NAMES))).replace(
        max_workgroup_invocations=invocations,
        max_workgroup_size=(invocations, draw(st.sampled_from([128, invocations])), 64),
        max_shared_memory=draw(st.sampled_from([16384, 32768, 49152, 102400])),
        device_type=draw(st.sampled_from(["discrete", "integrated", "cpu"])),
        slow_gathers=draw(st.booleans()),
    )
    texels = draw(st.booleans())
    features = profile.features - {"texel_buffers"}
    return profile.replace(
        features=features | {"texel_buffers"} if texels else features,
        max_texel_buffer_elements=profile.max_storage_buffer_range,
    )


def product(m: int, n: int, k: int) -> Product:
    return Product(m, n, k, k, n, n)


TILES = [
    Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", tm), ("TN", 8)), load)
    for tm in (4, 16) for load in ("storage", "texel")
] + [
    Schedule("matmul_tiled", (("LX", 16), ("LY", 16), ("TM", 4), ("TN", 4), ("BK", 16))),
]


# -- more work is not cheaper
@given(cost_parameters(), st.sampled_from(TILES), st.tuples(SIZES, SIZES, SIZES),
       st.tuples(*[st.integers(0, 500)] * 3))
def test_products(
    device: CostParameters, schedule: Schedule, sizes: tuple[int, ...], more: tuple[int, ...]
) -> None:
    small = estimate(product(*sizes), schedule, device)
    larger = [size + extra for size, extra in zip(sizes, more, strict=True)]
    large = estimate(product(*larger), schedule, device)
    assert small is not None and large is not None
    assert 0 < small <= large


def convolution(channels: int, outputs: int, height: int, width: int) -> Any:
    given = [MLOperandDescriptor("float32", shape) for shape in (
        (1, channels, height, width), (outputs, channels, 3, 3),
    )]
    node = KernelNode.of(node_of("conv2d", *given, padding=[1, 1, 1, 1])[0])
    return solver_of(node)[1]


CONVOLUTIONS = [
    Schedule("conv", (("LX", 8), ("LY", 1), ("TC", 8), ("TP", 8), ("CHANNEL_LANES", 0))),
    Schedule("conv_wide", (("LX", 8), ("TC", 16), ("TP", 8), ("UC", 4)), "texel"),
    Schedule("conv_tiled", (("LX", 16), ("LY", 16), ("TM", 8), ("TN", 4), ("BK", 8))),
    Schedule("conv_coopmat", (
        ("LX", 128), ("SUBGROUP", 32), ("BM", 64), ("BN", 64), ("BK", 32), ("FM", 16), ("FN", 16),
        ("FK", 16), ("WM", 2), ("WN", 2),
    )),
    Schedule("winograd", (("TILE", 4), ("LX", 8), ("TM", 8), ("TN", 8)), "texel"),
    Schedule("winograd_tiled", (
        ("TILE", 4), ("LX", 16), ("LY", 16), ("TM", 4), ("TN", 4), ("BK", 16)
    )),
]


@settings(max_examples=30)
@given(cost_parameters(), st.sampled_from(CONVOLUTIONS), st.tuples(*[st.integers(1, 64)] * 4),
       st.tuples(*[st.integers(0, 20)] * 4))
def test_convolutions(
    device: CostParameters, schedule: Schedule, sizes: tuple[int, ...], more: tuple[int, ...]
) -> None:
    larger = [size + extra for size, extra in zip(sizes, more, strict=True)]
    costs = [estimate(convolution(*s), schedule, device) for s in (sizes, larger)]
    assert 0 < costs[0] <= costs[1]


def test_a_convolution_by_cooperative_matrices_costs_what_its_product_does() -> None:
    """Whole, and cut into parts."""
    device, (whole,) = DEVICE_CLASSES["nvidia"].cost, (
        s for s in CONVOLUTIONS if s.kernel == "conv_coopmat")
    problem = convolution(64, 96, 20, 30)
    assert (problem.columns.m, problem.columns.n, problem.columns.k) == (96, 600, 576)
    for schedule in (whole, replace(whole, numbers=(*whole.numbers, ("SPLIT", 4)))):
        product = replace(schedule, kernel="matmul_coopmat")
        assert estimate(problem, schedule, device) == estimate(problem.columns, product, device)
    assert estimate(problem, schedule, device) != estimate(problem, whole, device)


@given(cost_parameters(), st.sampled_from([1, 32, 256]), st.tuples(SIZES, SIZES),
       st.tuples(*[st.integers(0, 500)] * 2))
def test_rows(
    device: CostParameters, lanes: int, sizes: tuple[int, int], more: tuple[int, int]
) -> None:
    schedule = Schedule("group" if lanes > 1 else "invocation", (("lanes", lanes),))
    small = Rows(*sizes, contiguous=False)
    large = Rows(sizes[0] + more[0], sizes[1] + more[1], contiguous=False)
    assert 0 < estimate(small, schedule, device) <= estimate(large, schedule, device)


@given(cost_parameters(), st.sampled_from(TILES), st.tuples(SIZES, SIZES, SIZES), st.data())
def test_a_slower_device_is_not_faster(
    device: CostParameters, schedule: Schedule, sizes: tuple[int, int, int], data: st.DataObject
) -> None:
    figures = ["multiply_add", "storage", "texel", "shared", "group"]
    name = data.draw(st.sampled_from(figures))
    slower = replace(device, **{name: 2 * getattr(device, name)})
    fewer = replace(device, units=max(1, device.units // 2))
    p = product(*sizes)
    assert estimate(p, schedule, device) <= estimate(p, schedule, slower)
    assert estimate(p, schedule, device) <= estimate(p, schedule, fewer)


def test_what_the_terms_mean() -> None:
    """Two tiles of 8 × 64, side by side, computed by hand."""
    device = CostParameters(units=1, width=8, registers=1024, multiply_add=1, storage=10, texel=2,
                            shared=5, store=3, barrier=100, group=7, compile=0)
    tile = Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", 8), ("TN", 8)))
    one = 7 + 100 * (64 * 1 + 16 * 10) + 64 * 3
    assert estimate(product(8, 64, 100), tile, device) == one
    assert compiling(product(8, 64, 100), tile, replace(device, compile=9)) == 64 * 9
    assert estimate(product(8, 65, 100), tile, device) == 2 * one  # edges cost a whole tile
    assert estimate(product(16, 64, 100), tile, replace(device, units=2)) == one
    by_texels = replace(tile, load="texel")
    assert estimate(product(8, 64, 100), by_texels, device) == 7 + 100 * (64 + 16 * 2) + 64 * 3
    spilled = replace(device, registers=40)  # 64 sums and 16 operands
    assert estimate(product(8, 64, 100), tile, spilled) == 7 + 2 * (one - 7)


def test_a_kernel_that_it_does_not_know() -> None:
    assert estimate(product(1, 1, 1), Schedule("unheard_of"), DEVICE_CLASSES["gpu"].cost) is None


def test_shared_gathers_decide_what_storage_costs() -> None:
    """The two kinds of CPU differ only in the cost of loads from storage buffers."""
    slow, fast = (DEVICE_CLASSES[n].cost for n in ("llvmpipe-slow-gathers", "llvmpipe"))
    assert slow.storage > 5 * fast.storage and slow.texel == fast.texel
    assert replace(slow, storage=fast.storage, shared=fast.shared) == fast


# -- the order of candidates
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_that_can_be_chosen_among_has_a_model(name: str) -> None:
    profile = stored_profile(name)
    asked = set()
    for case in CASES:
        solver, problem = solver_of(case.node)
        candidates = solver.candidates(problem, profile)
        for schedule in candidates:
            if schedule.kernel in KERNELS:
                cost = modelled(problem, schedule, profile)
                assert cost is not None and 0 < cost < float("inf"), f"{case.title}: {schedule}"
                asked.add(schedule.kernel)
    assert asked >= {"matmul", "matmul_tiled", "matvec", "conv", "conv_tiled", "conv_depthwise",
                     "group", "invocation", "elementwise", "attention"}


@settings(max_examples=30)
@given(profiles(), st.sampled_from(CASES))
def test_candidates_in_order(profile: DeviceProfile, case: Any) -> None:
    """All of them and nothing else, the chosen one first, then those that fit the registers, then
    the others, by cost; each within the limits of the device."""
    solver, problem = solver_of(case.node)
    name = solver.name
    try:
        candidates = solver.candidates(problem, profile)
    except Unsupported:
        return
    order = [*ranked(name, candidates, problem, profile)]
    assert sorted(map(str, order)) == sorted(map(str, candidates))
    assert order == [*ranked(name, list(candidates), problem, profile)]
    fit = fitting(candidates, problem, profile)
    assert set(order[: len(fit)]) == set(fit)
    for part in (order[1 : len(fit)], order[len(fit) :]):
        costs = [modelled(problem, schedule, profile) for schedule in part]
        known = [cost for cost in costs if cost is not None]
        assert known == sorted(known) and costs[: len(known)] == known
    for schedule in order:
        for dispatch in solver.lower(case.node, problem, schedule, profile):
            size = [dispatch.constants.get(axis, 1) for axis in ("LX", "LY", "LZ")]
            assert size[0] * size[1] * size[2] <= profile.max_workgroup_invocations
            limits = zip(size, profile.max_workgroup_size, strict=True)
            assert all(n <= most for n, most in limits)


def test_slow_gathers_put_texels_first() -> None:
    profile = stored_profile("llvmpipe")
    profile = profile.replace(
        features=profile.features | {"texel_buffers"},
        max_texel_buffer_elements=profile.max_storage_buffer_range,
    )
    given = (MLOperandDescriptor("float32", (128, 128)),) * 2
    node = KernelNode.of(node_of("matmul", *given)[0])
    solver, problem = solver_of(node)
    candidates = solver.candidates(problem, profile)
    order = [*ranked("matmul", candidates, problem, profile.replace(slow_gathers=True))]
    assert [s.load for s in order[:3]] == ["texel"] * 3
    costs = {
        slow: [modelled(problem, replace(order[0], load=load), profile.replace(slow_gathers=slow))
               for load in ("storage", "texel")]
        for slow in (False, True)
    }
    assert costs[True][0] > 10 * costs[True][1]
    assert costs[False][0] < 2 * costs[False][1]
