"""Products by cooperative matrices, planned for stored profiles: where they are chosen, and where
they are impossible."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.matmul import product_node
from tests.support.matrices import shape
from tests.support.profiles import NAMES, stored_profile
from tests.support.running import node_of, plan, schedules_of
from webnn_vk.compiler.ir import Emitter, Graph, Node, Value
from webnn_vk.compiler.kernels import KernelNode, KernelTarget, Schedule, coopmat, lower_graph
from webnn_vk.compiler.kernels import plan as plan_for
from webnn_vk.compiler.kernels.choose import fitting, ranked
from webnn_vk.compiler.kernels.dispatch import Dispatch
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.passes import Compilation
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import round_up

NVIDIA, AMD = stored_profile("nvidia_ampere"), stored_profile("amd_navi31")
INTEL = stored_profile("intel_dg2")
CHOOSE = {"nvidia_ampere", "amd_navi31"}


def _planned(profile: DeviceProfile, *sizes: int, **arguments) -> Dispatch:
    (dispatch,) = plan(product_node(*sizes, **arguments), profile)
    return dispatch


def _tilings(profile: DeviceProfile, *sizes: int, **arguments) -> list[Schedule]:
    schedules = schedules_of(product_node(*(sizes or (512, 512, 512)), **arguments), profile)
    return [s for s in schedules if s.kernel == coopmat.KERNEL and s.parts == 1]


@pytest.mark.parametrize("name", NAMES)
def test_large_halves_go_by_matrices_where_those_are_known_to_be_fast(name: str) -> None:
    profile = stored_profile(name)
    for sizes in ((1024, 1024, 1024), (4096, 4096, 1024), (197, 768, 768), (33, 16257, 768)):
        dispatch = _planned(profile, *sizes)
        assert (dispatch.kernel == coopmat.KERNEL) == (name in CHOOSE)
        assert _planned(profile, *sizes, data_type="float32").kernel != coopmat.KERNEL
    # Products that fill no tile, and a matrix times a vector.
    for sizes in ((1024, 1024, 8), (1, 1024, 1024), (1024, 1, 1024)):
        assert coopmat.KERNEL not in {d.kernel for d in plan(product_node(*sizes), profile)}
    # Few rows, where it is known what they take; the fewest share what is loaded instead.
    for rows in (2, 8, 9, 31):
        first, *_ = plan(product_node(rows, 1024, 1024), profile)
        assert (first.kernel == coopmat.KERNEL) == (rows > 8 and name == "nvidia_ampere")


def test_software_never_chooses_them() -> None:
    """Newer versions of lavapipe list shapes, which they compute on the CPU."""
    llvmpipe = stored_profile("llvmpipe")
    software = llvmpipe.replace(
        features=llvmpipe.features | {"cooperative_matrix"}, cooperative_matrices=(shape(8, 8, 8),)
    )
    for sizes in ((64, 64, 64), (1024, 1024, 1024), (4096, 4096, 1024)):
        assert _tilings(software, *sizes)
        assert _planned(software, *sizes).kernel == "matmul"


def test_the_plan_of_a_largeproduct_node() -> None:
    dispatch = _planned(NVIDIA, 4096, 2048, 1024)
    assert dispatch.constants == {
        "LX": 256, "SUBGROUP": 32, "BM": 128, "BN": 128, "BK": 32, "FM": 16, "FN": 16, "FK": 16,
        "WM": 4, "WN": 2, "BUFFERS": 2,
    }
    assert dispatch.groups == (32 * 16, 1, 1) and dispatch.variant == "nn vv 128x128"
    assert [(b.data_type, b.width) for b in dispatch.spec.buffers] == [
        ("uint32", 4), ("uint32", 4), ("float16", 4)
    ]
    assert dispatch.spec.features == coopmat.FEATURES | HALF_CONVERSIONS
    ids, data = dispatch.spec.pack_constants(dispatch.constants)
    words = tuple((i, data[4 * i : 4 * i + 4]) for i in ids)
    assert dispatch.spec.subgroup_size(words) == 32
    assert _planned(AMD, 4096, 2048, 1024).constants["SUBGROUP"] == 64
    wide = _planned(NVIDIA.replace(driver_name="NVIDIA"), 4096, 2048, 1024).constants
    assert (wide["BM"], wide["BN"], wide["BK"], wide["BUFFERS"]) == (128, 256, 32, 1)
    plain = _planned(NVIDIA, 512, 512, 512, data_type="float32")
    assert plain.spec.subgroup_size(()) == 0


@pytest.mark.parametrize("name", NAMES)
def test_an_invocation_keeps_few_sums(name: str) -> None:
    """More than 64 of them, with the fragments, spill on Ampere and leave a third of its warps.
    Only NVIDIA's own driver has registers for the widest tile."""
    profile = stored_profile(name)
    tilings = _tilings(profile)
    squares = [tiling for tiling in tilings if tiling["BM"] == tiling["BN"]]
    assert len(tilings) == len(squares) + bool(tilings)
    for tiling in squares:
        sums = tiling["BM"] * tiling["BN"] // tiling["LX"]
        assert sums <= 64
        assert sums == (
            tiling["WM"] * tiling["FM"] * tiling["WN"] * tiling["FN"] // tiling["SUBGROUP"]
        )


def test_tiles_that_fit_the_registers() -> None:
    """On Intel each spills, since a subgroup shares the same registers however wide it is."""
    own_driver = NVIDIA.replace(driver_name="NVIDIA")
    for profile, sides in (
        (own_driver, [32, 64, 128, 128, 128]), (NVIDIA, [32, 64, 128]),
        (AMD, [32, 64, 128, 128]), (INTEL, []),
    ):
        problem = MATMUL.problem(KernelNode.of(product_node(512, 512, 512)))
        candidates = MATMUL.candidates(problem, profile)
        fit = fitting(candidates, problem, profile)
        assert [s["BM"] for s in fit if s.kernel == coopmat.KERNEL and s.parts == 1] == sides
        assert [s["BM"] for s in candidates if s.kernel == coopmat.KERNEL and s.parts == 1] == [
            32, 64, 128, 128, 128
        ]
        last = [s for s in ranked("matmul", candidates, problem, profile) if s not in fit]
        assert [*ranked("matmul", candidates, problem, profile)][len(fit):] == last


def test_what_does_not_divide_by_vectors_goes_element_by_element() -> None:
    for sizes, buffers in {
        (1024, 1021, 1024): [("uint32", 4), ("float16", 1), ("float16", 1)],
        (1024, 1024, 1021): [("float16", 1), ("uint32", 4), ("float16", 4)],
        (1024, 1028, 1024): [("uint32", 4), ("float16", 1), ("float16", 4)],
    }.items():
        found = _planned(NVIDIA, *sizes).spec.buffers
        assert [(b.data_type, b.width) for b in found] == buffers


def test_a_pointwise_convolution_is_such_aproduct_node() -> None:
    x = MLOperandDescriptor("float16", (1, 56, 56, 128))
    w = MLOperandDescriptor("float16", (256, 1, 1, 128))
    node, _ = node_of("conv2d", x, w, input_layout="nhwc", filter_layout="ohwi")
    for name in NAMES:
        (dispatch,) = plan(node, stored_profile(name))
        assert (dispatch.kernel == coopmat.KERNEL) == (name in CHOOSE)
    assert plan(node, NVIDIA)[0].variant.startswith("nt vv")


@pytest.mark.parametrize("mask", [
    "cooperative_matrix", "vulkan_memory_model", "float16", "float16_arithmetic", "subgroup_basic",
    "subgroup",
])
def test_a_mask_switches_them_off(mask: str) -> None:
    assert _tilings(NVIDIA) and not _tilings(NVIDIA.masked([mask]))
    assert _planned(NVIDIA.masked([mask]), 1024, 1024, 1024).kernel == "matmul_tiled"


def test_subgroups_have_to_have_a_known_size() -> None:
    control = {"features": NVIDIA.features | {"subgroup_size_control"}}
    for change, count in (
        ({}, 5), (control, 5), ({"min_subgroup_size": 16}, 0),
        ({"min_subgroup_size": 16, **control}, 5),
    ):
        assert len(_tilings(NVIDIA.replace(**change))) == count, change


def test_shapes() -> None:
    def chosen(*shapes) -> tuple[int, int, int] | None:
        found = coopmat.shape_for("float16", NVIDIA.replace(cooperative_matrices=shapes))
        return found and (found.m, found.n, found.k)

    wide, square, tall = shape(8, 32, 16), shape(16, 16, 16), shape(32, 8, 16)
    assert chosen(shape(16, 8, 16), wide, square, tall) == (16, 16, 16)
    assert chosen(shape(16, 16, 16, "int8"), shape(16, 16, 16, "float32")) is None
    # Rows of 4 halves are not vectors of 16 bytes; sums in half precision are not supported.
    assert chosen(shape(16, 4, 16)) is None
    assert coopmat.shape_for("float16", AMD.replace(cooperative_matrices=tuple(
        s for s in AMD.cooperative_matrices if s.c == "float16"
    ))) is None


@pytest.mark.parametrize("name", ["nvidia_ampere", "amd_navi31", "intel_dg2"])
def test_limits_of_the_device_are_kept(name: str) -> None:
    for change in ({}, {"max_shared_memory": 32768}, {"max_workgroup_invocations": 128},
                   {"max_workgroup_size": (64, 64, 64)}, {"max_shared_memory": 4096}):
        profile = stored_profile(name).replace(**change)
        for a_transpose in (False, True):
            node = product_node(512, 512, 512, a_transpose=a_transpose, b_transpose=a_transpose)
            problem = MATMUL.problem(KernelNode.of(node))
            for tiling in coopmat.schedules(problem, profile):
                assert coopmat.shared_bytes(problem, tiling) <= profile.max_shared_memory
                assert tiling["LX"] <= min(
                    profile.max_workgroup_invocations, profile.max_workgroup_size[0]
                )
                assert tiling["LX"] % profile.subgroup_size == 0
                rows, columns = tiling["WM"] * tiling["FM"], tiling["WN"] * tiling["FN"]
                subgroups = tiling["BM"] // rows * (tiling["BN"] // columns)
                assert subgroups * tiling["SUBGROUP"] == tiling["LX"]
                assert tiling["BK"] % tiling["FK"] == 0
    assert not _tilings(stored_profile(name).replace(max_shared_memory=4096))


def test_sums_of_parts_are_computed_by_other_kernels() -> None:
    # Strips of the inner dimension, each too long for one binding.
    profile = NVIDIA.replace(max_storage_buffer_range=1 << 16)
    a = MLOperandDescriptor("float16", (64, 4096))
    b = MLOperandDescriptor("float16", (4096, 64))
    kernels = Counter(d.kernel for d in plan(node_of("matmul", a, b)[0], profile))
    assert set(kernels) == {"matmul"} and kernels["matmul"] > 1


@pytest.mark.explore
def test_plans_are_in_the_catalogue() -> None:
    known = set(catalogue(NVIDIA.features, "matmul"))
    for sizes in ((64, 64, 64), (65, 64, 64), (64, 65, 64), (64, 64, 65), (64, 68, 64)):
        for transposes in ({}, {"a_transpose": True}, {"b_transpose": True},
                           {"a_transpose": True, "b_transpose": True}):
            assert _planned(NVIDIA, *sizes, **transposes).spec in known
    without = catalogue(NVIDIA.features - {"cooperative_matrix"}, "matmul", "conv", "block_product")
    assert not any(spec.template == "matmul_coopmat.comp.j2" for spec in without)


@pytest.mark.parametrize("data_type", FLOAT_TYPES)
def test_without_their_shaders_other_kernels_compute(data_type: str) -> None:
    """A compiler that doesn't know cooperative matrices, and an archive made with one."""
    emit = Emitter()
    x = Value(MLOperandDescriptor(data_type, (512, 256)), name="x")
    weights = emit.constant([[1.0] * 384] * 256, data_type)
    out = emit.relu(emit.matmul(x, weights))
    graph = Graph({"x": x}, {"out": out}, tuple(emit.nodes))

    def kernels(available) -> list[str]:
        lowered = lower_graph(graph, Compilation(NVIDIA, available=available))
        return [d.kernel for work in lowered.works for d in work.dispatches]

    by_matrices = [coopmat.KERNEL if data_type == "float16" else "matmul_tiled"]
    assert kernels(lambda spec: True) == by_matrices
    assert kernels(lambda spec: "cooperative_matrix" not in spec.features) == ["matmul_tiled"]


def _blocks(
    rows: int = 128, k: int = 1024, *, a: str = "float16", scale: str = "float16",
    offset: str = "", block: int = 32, bits: int = 4,
) -> Node:
    """A product with weights in blocks, [rows, k] by [512, k]."""
    stored = round_up(k, block)
    numbers = MLOperandDescriptor(scale, (512, stored // block))
    given = {"offset": MLOperandDescriptor(offset, numbers.shape)} if offset else {}
    return node_of(
        "block_matmul", MLOperandDescriptor(a, (rows, k)),
        MLOperandDescriptor("uint32", (512, stored * bits // 32)), numbers, bits=bits, **given,
    )[0]


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_blocks_of_graphs_of_halves(name: str) -> None:
    """Many rows. Weights that no graph of halves has stay float32."""
    profile = stored_profile(name)
    for bits in (4, 8):
        for more in ({}, {"scale": "float32", "offset": "float32"}, {"k": 1000}, {"block": 8}):
            (dispatch,) = plan(_blocks(bits=bits, **more), profile)
            assert (dispatch.kernel == coopmat.KERNEL) == (name in CHOOSE), more
    for more in (
        {"a": "float32"}, {"scale": "float32"}, {"offset": "float16"}, {"k": 1001}, {"block": 4},
        {"rows": 9}, {"rows": 1},
    ):
        assert coopmat.KERNEL not in {d.kernel for d in plan(_blocks(**more), profile)}, more


def test_the_plan_of_weights_in_blocks() -> None:
    (dispatch,) = plan(_blocks(512), NVIDIA)
    assert dispatch.kernel == coopmat.KERNEL and dispatch.variant == "4 bits v 64x64"
    assert [(b.name, b.data_type, b.width) for b in dispatch.spec.buffers] == [
        ("a", "uint32", 4), ("b", "uint32", 1), ("out", "float32", 4), ("scale", "float16", 1)
    ]
    assert dispatch.spec.features == coopmat.FEATURES | HALF_CONVERSIONS | {"float16"}
    assert dispatch.groups == (8 * 8, 1, 1)
    assert dispatch.params["b_panel"] == 64 * 1024 and dispatch.params["block_bits"] == 5
    (offset,) = plan(_blocks(512, scale="float32", offset="float32"), NVIDIA)
    assert [b.data_type for b in offset.spec.buffers] == [
        "uint32", "uint32", "float32", "float32", "float32"
    ]
    assert offset.spec.features == coopmat.FEATURES | HALF_CONVERSIONS
    known = set(catalogue(NVIDIA.features, "block_product"))
    assert dispatch.spec in known and offset.spec in known
    for mask in ("cooperative_matrix", "denorm_preserve_f16", "float16"):
        assert plan(_blocks(512), NVIDIA.masked([mask]))[0].kernel == "matmul_tiled"


def test_the_fallback_of_weights_in_blocks() -> None:
    node = KernelNode.of(_blocks(512))
    target = KernelTarget(NVIDIA, available=lambda s: "cooperative_matrix" not in s.features)
    (dispatch,) = plan_for(node, target).dispatches
    assert dispatch.kernel == "matmul_tiled"
