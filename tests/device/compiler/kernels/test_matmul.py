"""Matrix product kernels compared with the NumPy reference, and their plans for stored profiles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.matmul import gemm_node, matmul_node
from tests.support.comparing import GPU_WAYS, assert_close, profile_for, random_array
from tests.support.drivers import require_vulkan
from tests.support.profiles import stored_profile
from tests.support.running import (
    device_profile,
    node_of,
    plan,
    run,
    schedules_of,
    software_profile,
)
from webnn_vk.compiler.kernels import choose, solver_of
from webnn_vk.compiler.kernels.dispatch import Packed, Scratch
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.kernels.node import KernelNode
from webnn_vk.compiler.kernels.product_dispatch import tiled_schedules
from webnn_vk.compiler.kernels.schedule import Schedule
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor

# Sums of up to 68 products of numbers up to 2, of which float32 keeps 24 bits each.
_ERROR = 2e-5


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
@pytest.mark.parametrize("case", [matmul_node, gemm_node])
def test_random(case, data_type: str) -> None:
    require_vulkan()
    rng = np.random.default_rng([FLOAT_TYPES.index(data_type), case is gemm_node])
    for _ in range(3):
        node, arrays = case(rng, data_type)
        for way in GPU_WAYS:
            assert_close(node, arrays, profile_for(way), _ERROR)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_edges_of_every_variant(ta: bool, tb: bool) -> None:
    """Sizes around the tiles' sizes, for every combination of vector loads."""
    require_vulkan()
    rng = np.random.default_rng(1)
    seen = set()
    for m, n, k in ((8, 64, 8), (9, 65, 7), (7, 63, 4), (12, 68, 5), (12, 66, 8), (10, 36, 3)):
        a = random_array(rng, "float32", (k, m) if ta else (m, k))
        b = random_array(rng, "float32", (n, k) if tb else (k, n))
        node, arrays = node_of("gemm", a, b, a_transpose=ta, b_transpose=tb)
        for profile in (profile_for("software"), profile_for("software").masked(["texel_buffers"])):
            assert_close(node, arrays, profile, _ERROR)
            seen |= {d.variant.split()[1] for d in plan(node, profile)}
    texels = ["", "x"] if profile_for("software").is_software else [""]
    assert seen >= {f"{width}{load}" for width in ("vv", "ss") for load in texels}


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 9, 15, 17])
def test_exchanged_rows_are_the_rows(rows: int) -> None:
    """Lanes that exchange what they load sum up the same products in the same order."""
    profile = software_profile()
    if not {"texel_buffers", "subgroup_shuffle"} <= profile.features:
        pytest.skip("nothing is exchanged on this device")
    rng = np.random.default_rng(rows)
    a, b = (random_array(rng, "float32", shape) for shape in ((rows, 68), (68, 72)))
    node, arrays = node_of("matmul", a, b)
    loaded = run(node, arrays, profile.masked(["subgroup_shuffle"]))
    assert np.array_equal(run(node, arrays, profile), loaded)


@pytest.mark.parametrize("columns", [1, 3, 4, 15, 16, 17, 40])
@pytest.mark.parametrize("inner", [4, 33, 68])
def test_sums_of_subgroups_are_those_of_shared_memory(columns: int, inner: int) -> None:
    """Of every schedule for one row: both are right, and differ by the order of eight terms."""
    profile = software_profile()
    if not {"texel_buffers", "subgroup_arithmetic"} <= profile.features:
        pytest.skip("subgroups of this device add nothing up")
    rng = np.random.default_rng(columns)
    a, b = (random_array(rng, "float32", shape) for shape in ((1, inner), (columns, inner)))
    node, arrays = node_of("gemm", a, b, b_transpose=True)
    added = set()
    for schedule in schedules_of(node, profile):
        solver, problem = solver_of(KernelNode.of(node))
        (step,) = solver.lowered(KernelNode.of(node), problem, schedule, profile)
        added.add(dict(step.spec.options).get("subgroup_sums"))
        for used in (profile, profile.masked(["subgroup_arithmetic"])):
            assert_close(node, arrays, used, _ERROR, schedule)
    assert (True in added) == (inner >= 32 and profile.subgroup_size == 8)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("inner", [2048, 1536])
def test_vectors_loaded_ahead(inner: int, transposed: bool) -> None:
    """GPUs' schedules for one row: every number of invocations that share the inner dimension, in
    turn for both types."""
    require_vulkan()
    data_type = FLOAT_TYPES[(inner == 2048) ^ transposed]
    profile = profile_for("discrete")
    rng = np.random.default_rng([inner, transposed])
    a, b = (random_array(rng, data_type, shape) for shape in ((1, inner), (inner, 36)))
    node, arrays = node_of("gemm", a, b.T.copy() if transposed else b, b_transpose=transposed)
    ahead = [s for s in schedules_of(node, profile) if "AHEAD" in dict(s.numbers)]
    assert len(ahead) >= 4
    cut = profile.replace(max_storage_buffer_range=8 * inner)  # or the inner dimension is cut
    for schedule in ahead[transposed::2]:
        for device in (profile, cut):
            assert_close(node, arrays, device, _ERROR, schedule)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "addend"), [(2, None), (3, (1, 36)), (5, (5, 1)), (8, (8, 36))])
def test_few_rows_share_what_is_loaded(rows: int, addend, transposed: bool) -> None:
    """GPUs' schedules for 2 to 8 rows, in turn for both types, with every form of an addend: those
    of one place in the list for each number of rows, and the last one, which adds up by halves."""
    require_vulkan()
    data_type = FLOAT_TYPES[(rows % 2) ^ transposed]
    profile = profile_for("discrete")
    rng = np.random.default_rng([rows, transposed])
    a, b = (random_array(rng, data_type, shape) for shape in ((rows, 512), (512, 36)))
    c = {} if addend is None else {"c": random_array(rng, data_type, addend)}
    node, arrays = node_of(
        "gemm", a, b.T.copy() if transposed else b, alpha=0.5, beta=3.0, b_transpose=transposed, **c
    )
    few = [s for s in schedules_of(node, profile) if "TR" in dict(s.numbers)]
    assert {s["TR"] for s in few} == {1 << (rows - 1).bit_length()}
    assert len({s["LX"] for s in few}) >= 2
    for schedule in few[rows % 4 : -1 : 4] + few[-1:]:
        assert_close(node, arrays, profile, _ERROR, schedule)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("load", ["texel", "storage"])
def test_one_row(load: str, linear: bool, monkeypatch) -> None:
    """One step at once and several, with every combination of vector loads, with weights in panels
    with and without padding and with others, and in parts of the inner dimension, which other
    numbers of steps divide."""
    software = software_profile().replace(reads_linearly=linear)
    profile = software if load == "texel" else software.masked(["texel_buffers"])
    monkeypatch.setattr(choose, "narrowed", lambda _, candidates, *more: [
        c for c in candidates if c.kernel == "matmul" and c["TM"] == 1 and c.load == load
    ])
    rng = np.random.default_rng(9)
    seen, packed = set(), set()
    for n, k in ((64, 64), (130, 96), (68, 48), (252, 40), (65, 36), (7, 35), (33, 96), (128, 32)):
        a, b = random_array(rng, "float32", (1, k)), random_array(rng, "float32", (k, n))
        node, arrays = node_of("gemm", a, b, c=random_array(rng, "float32", (n,)), beta=0.5)
        (dispatch,) = plan(node, profile)
        assert dispatch.kernel == "matmul" and dispatch.constants["TM"] == 1
        steps, streams = dispatch.constants["STEPS"], dispatch.constants["STREAMS"]
        assert streams == (1 if linear else steps)
        seen.add(steps)
        packed.add(any(isinstance(binding.value, Packed) for binding in dispatch.bindings))
        assert_close(node, arrays, profile, _ERROR)
        cut = profile.replace(max_storage_buffer_range=4096, max_texel_buffer_elements=1024)
        assert_close(node, arrays, cut, _ERROR)
    assert seen == {1, software.subgroup_size} and packed == {False, True}
    node, arrays = node_of(
        "matmul", random_array(rng, "float32", (1, 200)), random_array(rng, "float32", (200, 64))
    )
    short = profile.replace(max_loop_iterations=15_096)  # 15,000 are kept back
    steps = [dispatch.constants["STEPS"] for dispatch in plan(node, short)]
    assert steps == [software.subgroup_size] * 2 + [1]
    assert_close(node, arrays, short, _ERROR)


def tilings() -> list[Schedule]:
    shapes = (64, 64), (64, 64)
    node, _ = node_of("matmul", *(MLOperandDescriptor("float32", shape) for shape in shapes))
    problem = MATMUL.problem(KernelNode.of(node))
    candidates = MATMUL.candidates(problem, stored_profile("amd_navi31"))
    return [schedule for schedule in candidates if schedule.kernel == "matmul_tiled"]


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("schedule", tilings(), ids=str)
def test_tiles_in_shared_memory(schedule: Schedule, monkeypatch) -> None:
    """Every tile size, with float16 loaded 8, 4 and 1 elements at a time, with and without a
    remainder of the inner dimension, and with less than a tile; elements after a row are not
    multiplied."""
    require_vulkan()
    profile = profile_for("discrete")
    monkeypatch.setattr(choose, "narrowed", lambda *_: [schedule])
    rng = np.random.default_rng(schedule["TM"])
    widths = set()
    # Lavapipe has shared memory for the largest tiles in one order only.
    turns = [
        (ta, tb) for ta in (False, True) for tb in (False, True)
        if schedule in tiled_schedules(not ta, tb, True, profile)
    ]
    # Some orders for each tile size.
    index = tilings().index(schedule)
    turn, other = (turns[(index + n) % len(turns)] for n in (0, 1))
    cases = [("float16", (40, 136, 24), other), ("float16", (40, 132, 20), turn)]
    cases += [("float32", (132, 36, 20), other)]
    cases += [("float32", (33, 69, 19), turn)] * (schedule["TM"] < 8)
    for data_type, (m, n, k), (ta, tb) in cases:
        a = random_array(rng, data_type, (k, m) if ta else (m, k))
        b = random_array(rng, data_type, (n, k) if tb else (k, n))
        # In the last row and column: in no other.
        a[(k - 1, m - 1) if ta else (m - 1, k - 1)] = np.inf
        b[(n - 1, k - 1) if tb else (k - 1, n - 1)] = np.nan
        node, arrays = node_of("gemm", a, b, a_transpose=ta, b_transpose=tb)
        (dispatch,) = plan(node, profile)
        assert dispatch.kernel == "matmul_tiled"
        widths.add((data_type, *(b.width for b in dispatch.spec.buffers[:2])))
        assert_close(node, arrays, profile, _ERROR)
    assert {("float16", 8, 8), ("float16", 4, 4), ("float32", 4, 4)} <= widths


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    require_vulkan()
    a, b = np.ones((10, 6), np.float32), np.ones((6, 9), np.float32)
    a[9, 5], b[5, 8] = np.inf, np.nan
    for way in ("software", "discrete"):
        assert_close(*node_of("matmul", a, b), profile_for(way))


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_slices(ta: bool, tb: bool) -> None:
    """Operands larger than a binding: several dispatches, parts of the sums through scratch."""
    require_vulkan()
    data_type = FLOAT_TYPES[ta ^ tb]
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
