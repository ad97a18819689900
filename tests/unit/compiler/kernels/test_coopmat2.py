"""Products by the cooperative matrices of workgroups (NV2), planned for a stored profile: where
they are chosen, and where they are impossible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.matmul import product_node
from tests.support.matrices import flexible
from tests.support.profiles import MATRICES2, NAMES, stored_profile
from tests.support.running import plan, schedules_of
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelNode, Schedule, coopmat, coopmat2, lower_graph
from webnn_vk.compiler.kernels.coopmat_trial import tilings_of
from webnn_vk.compiler.kernels.dispatch import Dispatch
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.access import Access
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile

NVIDIA = stored_profile(MATRICES2)


def _planned(profile: DeviceProfile, *sizes: int, **arguments) -> Dispatch:
    (dispatch,) = plan(product_node(*sizes, **arguments), profile)
    return dispatch


def _tilings(profile: DeviceProfile, *sizes: int, **arguments) -> list[Schedule]:
    schedules = schedules_of(product_node(*(sizes or (512, 512, 512)), **arguments), profile)
    return [s for s in schedules if s.kernel == coopmat2.KERNEL and s.parts == 1]


def _sizes(tilings: list[Schedule]) -> list[tuple[int, ...]]:
    return [tuple(t[name] for name in ("LX", "BM", "BN", "BK")) for t in tilings]


def test_large_halves_go_by_them_before_those_of_subgroups() -> None:
    for sizes in ((1024, 1024, 1024), (4096, 4096, 1024), (197, 768, 768), (33, 16257, 768)):
        assert _planned(NVIDIA, *sizes).kernel == coopmat2.KERNEL
        assert _planned(NVIDIA, *sizes, data_type="float32").kernel not in (
            coopmat.KERNEL, coopmat2.KERNEL)
        assert _planned(NVIDIA.masked(["cooperative_matrix2"]), *sizes).kernel == coopmat.KERNEL
    for sizes in ((8, 1024, 1024), (1024, 1024, 8), (1, 1024, 1024), (1024, 1, 1024)):
        assert coopmat2.KERNEL not in {d.kernel for d in plan(product_node(*sizes), NVIDIA)}


@pytest.mark.parametrize("name", NAMES)
def test_devices_without_them_never_get_one(name: str) -> None:
    profile = stored_profile(name)
    assert "cooperative_matrix2" not in profile.features and not _tilings(profile)
    # Nor a device whose driver lists none of them.
    assert not _tilings(NVIDIA.replace(flexible_matrices=()))


def test_the_plan_of_a_largeproduct_node() -> None:
    dispatch = _planned(NVIDIA, 4096, 2048, 1024)
    assert dispatch.constants == {"LX": 256, "BM": 128, "BN": 256, "BK": 64}
    assert dispatch.groups == (32 * 8, 1, 1) and dispatch.variant == "nn vv 128x256"
    assert [(b.data_type, b.width) for b in dispatch.spec.buffers] == [("float16", 1)] * 3
    assert dispatch.spec.features == coopmat2.FEATURES
    assert dispatch.spec.target == "vulkan1.3"
    assert dispatch.spec.option("out_tensor") and dispatch.spec.option("half_result")
    # A whole workgroup holds a matrix together: its subgroups may have any size.
    ids, data = dispatch.spec.pack_constants(dispatch.constants)
    words = tuple((i, data[4 * i : 4 * i + 4]) for i in ids)
    assert dispatch.spec.subgroup_size(words) == 0
    assert _planned(NVIDIA, 512, 512, 512, data_type="float32").spec.target == "vulkan1.2"
    assert _planned(NVIDIA.masked(["cooperative_matrix2"]), 4096, 2048, 1024).spec.target == (
        "vulkan1.2")


def test_tilings_are_those_that_granularities_divide() -> None:
    assert _sizes(_tilings(NVIDIA)) == [
        (128, 32, 32, 32), (128, 32, 64, 32), (128, 64, 64, 64), (256, 128, 128, 64),
        (256, 128, 256, 64),
    ]
    for shapes, expected in (
        (flexible(64, 64, 64, 128), [(128, 64, 64, 64), (128, 128, 128, 64), (128, 128, 256, 64)]),
        (flexible(32, 64, 32, 512), [(512, 32, 64, 32), (512, 64, 64, 64), (512, 128, 128, 64),
                                     (512, 128, 256, 64)]),
        (flexible(16, 16, 128, 128), []),
        # Sums in half precision, or in other matrices than ours, and workgroups of half a subgroup.
        (flexible(16, 16, 16, 128, ("float16",)), []),
        (tuple(replace(s, saturating=True) for s in flexible(16, 16, 16, 128)), []),
        (flexible(16, 16, 16, 16), []),
        # More invocations than a workgroup may have.
        (flexible(16, 16, 16, 2048), []),
    ):
        assert _sizes(_tilings(NVIDIA.replace(flexible_matrices=shapes))) == expected
    smaller = NVIDIA.replace(max_flexible_dimension=128)
    assert max(t["BN"] for t in _tilings(smaller)) == 128
    narrow = NVIDIA.replace(max_workgroup_size=(128, 128, 64))
    assert {t["LX"] for t in _tilings(narrow)} == {128}


@pytest.mark.parametrize("mask", [
    "cooperative_matrix2", "cooperative_matrix", "vulkan_memory_model", "float16",
    "float16_arithmetic", "int16", "maintenance4",
])
def test_a_mask_switches_them_off(mask: str) -> None:
    assert not _tilings(NVIDIA.masked([mask]))


def test_tensor_layouts_have_to_fit() -> None:
    """Every matrix begins at 16 bytes, and rows don't overlap."""
    node = KernelNode.of(product_node(64, 64, 64))
    problem = MATMUL.problem(node)
    assert coopmat2.schedules(problem, NVIDIA)
    for change, fits in (
        ({"starts": (8, 16, 3, 5)}, True), ({"starts": (4, 0, 0, 0)}, False),
        ({"starts": (0, 7, 0, 0)}, False), ({"lda": 61}, False), ({"lda": 65}, True),
        ({"lda": 0}, False), ({"ldb": 63}, False), ({"ldb": 67}, True),
        ({"batch": (2,), "a_batch": (4096,), "b_batch": (0,), "out_batch": (4095,)}, True),
        ({"batch": (2,), "a_batch": (4100,), "b_batch": (0,), "out_batch": (4096,)}, False),
        ({"batch": (2,), "a_batch": (4096,), "b_batch": (4097,), "out_batch": (4096,)}, False),
        ({"m": 8, "a_transposed": True, "lda": 64}, True),
        ({"m": 80, "a_transposed": True, "lda": 64}, False),
        ({"quantized": "b"}, False), ({"data_type": "float32"}, False),
    ):
        assert bool(coopmat2.schedules(replace(problem, **change), NVIDIA)) == fits, change
    # Operands cut into several dispatches begin at any offset.
    assert not coopmat2.schedules(problem, NVIDIA.replace(max_storage_buffer_range=4096))


def test_how_the_result_is_stored() -> None:
    problem = MATMUL.problem(KernelNode.of(product_node(64, 64, 64)))
    (tiling,) = [t for t in _tilings(NVIDIA) if (t["BM"], t["BN"]) == (64, 64)]

    def stores(base: int = 0, out_type: str = "float16", profile=NVIDIA, **change) -> bool:
        changed = replace(problem, **change)
        return coopmat2.stores_tensor(changed, base, out_type, tiling, profile)

    assert stores() and stores(8) and stores(4, "float32")
    assert not stores(4) and not stores(2, "float32")
    assert not stores(out_type="uint8") and not stores(out_type="int64")
    assert not stores(ldo=63)
    assert not stores(batch=(2,), a_batch=(0,), b_batch=(0,), out_batch=(4097,))
    # Sums become halves if the device has such matrices for a workgroup this large.
    without = NVIDIA.replace(flexible_matrices=tuple(
        s for s in NVIDIA.flexible_matrices if s.result == "float32" or s.invocations != 128))
    assert not stores(profile=without) and stores(out_type="float32", profile=without)


def test_strides_decide_what_the_compiler_is_told() -> None:
    for sizes, whole in (((512, 512, 512), True), ((512, 509, 512), False),
                         ((512, 512, 509), False), ((509, 512, 512), True)):
        spec = _planned(NVIDIA, *sizes).spec
        assert spec.option("whole_vectors") == whole
    assert not _planned(NVIDIA, 509, 512, 512, a_transpose=True).spec.option("whole_vectors")


def test_a_packed_weight_lies_in_panels_of_the_tile() -> None:
    emit = Emitter()
    x = Value(MLOperandDescriptor("float16", (4096, 1024)), name="x")
    out = emit.matmul(x, emit.constant([[0.5] * 2048] * 1024, "float16"))
    graph = Graph({"x": x}, {"out": out}, tuple(emit.nodes))
    (work,) = lower_graph(graph, Compilation(NVIDIA)).works
    (dispatch,) = work.dispatches
    assert dispatch.kernel == coopmat2.KERNEL
    assert dispatch.params["ldb"] == dispatch.constants["BN"] == 256
    assert dispatch.params["b_panel"] == 256 * 1024


def test_long_inner_dimensions_are_cut() -> None:
    """Sums of the parts are float32, stored as a tensor."""
    part, total = plan(product_node(128, 128, 8192), NVIDIA)
    assert (part.kernel, total.kernel) == (coopmat2.KERNEL, "matmul_sum")
    assert part.spec.buffers[2].data_type == "float32" and part.spec.option("out_tensor")
    assert not part.spec.option("half_result")


def test_plans_are_in_the_catalogue() -> None:
    known = set(catalogue(NVIDIA.features))
    for sizes in ((64, 64, 64), (65, 64, 64), (64, 65, 64), (64, 64, 65), (128, 128, 8192)):
        for transposes in ({}, {"a_transpose": True}, {"b_transpose": True},
                           {"a_transpose": True, "b_transpose": True}):
            for dispatch in plan(product_node(*sizes, **transposes), NVIDIA):
                assert dispatch.spec in known
    without = catalogue(NVIDIA.features - {"cooperative_matrix2"})
    assert not any(spec.template == "matmul_coopmat2.comp.j2" for spec in without)


def test_without_their_shaders_those_of_subgroups_compute_else_none() -> None:
    """Compilers that are too old, and archives made with them."""
    emit = Emitter()
    x = Value(MLOperandDescriptor("float16", (512, 256)), name="x")
    out = emit.relu(emit.matmul(x, emit.constant([[1.0] * 384] * 256, "float16")))
    graph = Graph({"x": x}, {"out": out}, tuple(emit.nodes))

    def kernels(*missing: str) -> list[str]:
        lowered = lower_graph(graph, Compilation(
            NVIDIA, available=lambda spec: not spec.features & set(missing)))
        return [d.kernel for work in lowered.works for d in work.dispatches]

    assert kernels() == [coopmat2.KERNEL]
    assert kernels("cooperative_matrix2") == [coopmat.KERNEL]
    assert kernels("cooperative_matrix2", "cooperative_matrix") == ["matmul_tiled"]


def test_what_is_tried_of_a_kernel() -> None:
    """With and without a remainder of steps, as loads and stores request it."""
    dispatch = _planned(NVIDIA, 4096, 2041, 1024)
    ids, data = dispatch.spec.pack_constants(dispatch.constants)
    constants = tuple((i, data[4 * i : 4 * i + 4]) for i in ids)
    tried = tilings_of(dispatch.kernel, dispatch.spec, constants)
    assert [t.left_over for t in tried] == [False, True]
    for tiling in tried:
        assert dict(tiling.numbers) == dict(dispatch.constants)
        assert (tiling.feature, tiling.operand) == ("cooperative_matrix2", "float16")
        assert (tiling.whole_vectors, tiling.out_tensor) == (False, True)
    assert tilings_of("matmul_tiled", dispatch.spec, constants) == ()


def test_operands_that_begin_in_a_view_go_by_others() -> None:
    """A slice that begins at no multiple of 16 bytes."""
    node = KernelNode.of(product_node(512, 512, 512))
    a = node.operands["a"]
    shifted = replace(node, operands={**node.operands, "a": Access(
        a.value, a.shape, a.strides, a.offset + 3)})
    kernels = {s.kernel for s in MATMUL.candidates(MATMUL.problem(shifted), NVIDIA)}
    assert coopmat.KERNEL in kernels and coopmat2.KERNEL not in kernels
