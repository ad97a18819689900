"""Plans of the matmul kernels, made for stored profiles: no device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.cases.matmul import gemm_node, matmul_node
from tests.support.profiles import H200, stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.kernels.dispatch import Dispatch, Packed, Scratch
from webnn_vk.compiler.kernels.product import Product
from webnn_vk.compiler.kernels.product_dispatch import row_schedules
from webnn_vk.compiler.ops.block_product import packed
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor


def _describe(*shape: int) -> MLOperandDescriptor:
    return MLOperandDescriptor("float32", shape)


def _planned(profile: str, a: tuple[int, ...], b: tuple[int, ...], **arguments):
    name = "gemm" if arguments else "matmul"
    node, _ = node_of(name, _describe(*a), _describe(*b), **arguments)
    return plan(node, stored_profile(profile))


def test_plans() -> None:
    (gpu,) = _planned("nvidia_ampere", (4096, 1024), (1024, 4096))
    assert gpu.kernel == "matmul_tiled" and gpu.groups == (32 * 32, 1, 1)
    assert gpu.constants == {"LX": 16, "LY": 16, "TM": 8, "TN": 8, "BK": 16}
    (gpu,) = _planned("amd_navi31", (4096, 1024), (1024, 4096))  # spills with deep tiles
    assert gpu.constants == {"LX": 16, "LY": 16, "TM": 8, "TN": 8, "BK": 8}
    assert gpu.flops == 2 * 4096 * 4096 * 1024
    (small,) = _planned("nvidia_ampere", (64, 64), (64, 64))
    assert small.constants["LX"] * small.constants["TN"] == 32
    (cpu,) = _planned("llvmpipe", (128, 384), (384, 384))
    assert cpu.kernel == "matmul" and math.prod(cpu.groups) == 16 * 6
    # 16 rows per tile take 0.14 s more to compile: worth it where they save a millisecond.
    (large,) = _planned("llvmpipe", (1024, 384), (384, 1536))
    assert math.prod(large.groups) == 64 * 24
    assert [b.width for b in cpu.spec.buffers] == [4, 4, 4]
    assert [b.load for b in cpu.spec.buffers] == ["texel", "texel", "storage"]
    assert all(binding.size is None for binding in cpu.bindings)
    # An odd row length leaves no vector aligned: one texel per element.
    (odd,) = _planned("llvmpipe", (16, 33), (33, 17))
    assert [b.width for b in odd.spec.buffers] == [1, 1, 1] and odd.variant.startswith("nn ssx")


@pytest.mark.parametrize("bits", [32, 8])
def test_whole_subgroups_add_up_sums_of_one_row(bits: int) -> None:
    """Where eight lanes of a processor share the rows of weights, which they read as texels."""
    llvmpipe = stored_profile("llvmpipe")

    if bits == 32:
        node, _ = node_of("gemm", _describe(1, 64), _describe(64, 64), b_transpose=True)
    else:
        integers = packed(np.zeros((64, 64), np.uint8), bits)
        node, _ = node_of(
            "block_matmul", _describe(1, 64), integers, np.ones((64, 2), np.float16), bits=bits,
            zero_point=0.0,
        )

    def adds(profile) -> bool:
        (step,) = plan(node, profile)
        used = "subgroup_arithmetic" in step.spec.features
        assert dict(step.spec.options).get("subgroup_sums", False) == used
        return used

    assert adds(llvmpipe)
    sizes = {"subgroup_size": 4, "min_subgroup_size": 4, "max_subgroup_size": 4}
    assert not adds(llvmpipe.replace(**sizes))
    assert not adds(llvmpipe.replace(min_subgroup_size=4))
    assert not adds(llvmpipe.masked(["subgroup_arithmetic"]))
    assert not adds(llvmpipe.masked(["texel_buffers"]))
    assert not adds(llvmpipe.replace(device_type="discrete"))


def test_integers_of_blocks_become_floats_in_place() -> None:
    """On devices where conversions are slow, and of 4 bits without offsets on others; for one row,
    if columns share it."""
    def step(name: str, rows: int, bits: int, offset: bool = False):
        words, blocks = (
            MLOperandDescriptor(t, (8192, n)) for t, n in (("uint32", 256 * bits), ("float16", 256))
        )
        more = {"offset": blocks} if offset else {}
        a = MLOperandDescriptor("float16", (rows, 8192))
        node, _ = node_of("block_matmul", a, words, blocks, bits=bits, **more)
        (planned,) = plan(node, stored_profile(name))
        assert planned.kernel == "matvec_blocks"
        return planned.constants

    for bits in (4, 8):
        assert step(H200, 1, bits) == {"LX": 64, "LY": 4, "TM": 4, "TR": 1, "IN_PLACE": 1}
        assert step(H200, 1, bits, offset=True)["IN_PLACE"] == 1
        assert step(H200, 4, bits)["IN_PLACE"] == 0
        for name in ("amd_navi31", "intel_dg2", "llvmpipe"):
            assert step(name, 1, bits)["IN_PLACE"] == (bits == 4)
            assert step(name, 1, bits, offset=True)["IN_PLACE"] == 0


def test_lanes_of_whole_subgroups_exchange_rows() -> None:
    """Where all lanes of a workgroup on a processor would load the same vectors of a as texels."""
    llvmpipe = stored_profile("llvmpipe")

    def exchanging(profile, rows: int = 64, inner: int = 64, **arguments) -> dict[str, float]:
        shape = (inner, rows) if arguments.get("a_transpose") else (rows, inner)
        node, _ = node_of("gemm", _describe(*shape), _describe(inner, 64), **arguments)
        (step,) = plan(node, profile)
        used = "subgroup_shuffle" in step.spec.features
        assert dict(step.spec.options).get("shuffle", False) == used
        return {name: n for name, n in step.constants.items() if name == "SHUFFLE"}

    assert exchanging(llvmpipe) == exchanging(llvmpipe, rows=3) == {"SHUFFLE": 8}
    halves = llvmpipe.replace(subgroup_size=4, min_subgroup_size=4, max_subgroup_size=4)
    assert exchanging(halves) == {"SHUFFLE": 4}
    assert exchanging(llvmpipe, inner=33) == exchanging(llvmpipe, a_transpose=True) == {}
    # A workgroup is half a subgroup, or perhaps not a whole one; lanes can't exchange.
    assert exchanging(llvmpipe.replace(
        subgroup_size=16, min_subgroup_size=16, max_subgroup_size=16
    )) == exchanging(llvmpipe.replace(min_subgroup_size=4)) == {}
    assert exchanging(llvmpipe.masked(["subgroup_shuffle"])) == {}
    assert exchanging(llvmpipe.masked(["texel_buffers"])) == {}
    assert exchanging(llvmpipe.replace(device_type="discrete")) == {}


def test_texels_only_where_a_device_reads_whole_operands_so() -> None:
    """Operands come from storage buffers: without the feature, if a texel buffer is smaller than a
    binding, for halves, and for operands larger than a binding."""
    llvmpipe = stored_profile("llvmpipe")

    def loads(profile, data_type: str = "float32") -> set[str]:
        shapes = (64, 64), (64, 64)
        node, _ = node_of("matmul", *(MLOperandDescriptor(data_type, s) for s in shapes))
        return {b.load for d in plan(node, profile) for b in d.spec.buffers if b.name in "ab"}

    assert loads(llvmpipe) == {"texel"}
    assert loads(llvmpipe.masked(["texel_buffers"])) == {"storage"}
    assert loads(llvmpipe.replace(max_texel_buffer_elements=65536)) == {"storage"}
    # The binding limit of storage buffers does not apply to texels.
    small = llvmpipe.replace(max_storage_buffer_range=4096)
    assert loads(small) == {"texel"}
    assert loads(small.replace(max_texel_buffer_elements=1024)) == {"storage"}
    assert loads(llvmpipe, "float16") == {"storage"}
    assert loads(stored_profile("nvidia_ampere")) == {"storage"}


def test_batches_that_share_b_are_rows() -> None:
    (dispatch,) = _planned("llvmpipe", (8, 128, 64), (64, 256))
    assert (dispatch.params["M"], dispatch.params["batches"]) == (1024, 1)


def test_a_row_vector_is_a_matrix_times_vector() -> None:
    (row,) = _planned("nvidia_ampere", (1, 512), (512, 1024))
    assert row.kernel == "matvec"
    assert (row.params["M"], row.params["K"], row.params["N"]) == (1024, 512, 1)
    (column,) = _planned("nvidia_ampere", (1024, 512), (512, 1))
    assert column.kernel == "matvec" and column.params["M"] == 1024


@pytest.mark.parametrize("name", [H200, "nvidia_ampere", "amd_navi31"])
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_few_rows_share_what_is_read_of_the_matrix(name: str, data_type: str) -> None:
    """On GPUs, as it is stored. Half as many loads are under way as for one row, or 15.8 kB for
    each core of an H200."""
    profile = stored_profile(name)

    def planned(rows: int, transposed: bool) -> list[Dispatch]:
        x, w = (MLOperandDescriptor(data_type, (m, 4096)) for m in (rows, 4096))
        return plan(node_of("gemm", x, w, b_transpose=transposed)[0], profile)

    for transposed in (False, True):
        (one,) = planned(1, transposed)
        for rows, shared in ((2, 2), (3, 4), (8, 8)):
            (step,) = planned(rows, transposed)
            assert step.kernel == "matvec" and step.constants["TR"] == shared
            assert not any(isinstance(binding.value, Packed) for binding in step.bindings)
            assert _bytes_loaded(step, data_type) >= min(
                _bytes_loaded(one, data_type) / 2, 15_800 * 132
            )
            params = step.params
            assert (params["M"], params["N"], params["K"]) == (4096, rows, 4096)
            assert (params["ldb"], params["ldo"], params["ldn"]) == (4096, 1, 4096)
        assert planned(9, transposed)[0].kernel != "matvec"


def _bytes_loaded(step: Dispatch, data_type: str) -> int:
    """Of the matrix, by all invocations at once."""
    numbers = step.constants
    transposed = dict(step.spec.options)["a_transposed"]
    lanes = step.groups[0] * numbers["LX"] * numbers["LY"]
    vectors = lanes * numbers["AHEAD"] * (1 if transposed else numbers["TM"])
    return vectors * 4 * np.dtype(data_type).itemsize


def test_where_registers_are_few_few_rows_go_by_tiles() -> None:
    """And on processors, whose kernels need no sharing."""
    for name, rows in (("intel_dg2", 8), ("llvmpipe", 2), ("llvmpipe", 8)):
        node, _ = node_of("matmul", _describe(rows, 4096), _describe(4096, 4096))
        assert plan(node, stored_profile(name))[0].kernel != "matvec"


def test_one_row_and_many_read_the_same_packed_weights() -> None:
    """On software devices. Weights stored [N, K] are read by rows. Weights [K, N] are read as they
    are where only one row needs them and panels would pad them by more than a fiftieth."""
    weights = np.zeros((96, 252), np.float32)
    llvmpipe = stored_profile("llvmpipe")
    packed = []
    for rows in (1, 128):
        node, _ = node_of("matmul", MLOperandDescriptor("float32", (rows, 96)), weights)
        (dispatch,) = plan(node, llvmpipe)
        assert dispatch.kernel == "matmul" and dispatch.constants["TM"] == (1 if rows == 1 else 8)
        packed.append(dispatch.bindings[1].value.packing)
    assert packed[0] == packed[1] and packed[0].columns == 64
    for columns in (252, 250, 1000):
        padded = np.zeros((96, columns), np.float32)
        node, _ = node_of("matmul", MLOperandDescriptor("float32", (1, 96)), padded)
        (dispatch,) = plan(node, llvmpipe)
        assert dispatch.kernel == "matmul"
        assert isinstance(dispatch.bindings[1].value, Packed) == (columns == 252)
    node, _ = node_of("gemm", MLOperandDescriptor("float32", (1, 252)), weights, b_transpose=True)
    (dispatch,) = plan(node, llvmpipe)
    assert dispatch.kernel == "matvec" and not isinstance(dispatch.bindings[0].value, Packed)


@pytest.mark.parametrize(("length", "steps"), [(96, 8), (32, 8), (48, 1), (40, 1), (33, 1)])
@pytest.mark.parametrize("linear", [False, True])
def test_steps_of_one_row_divide_the_inner_dimension(
    length: int, steps: int, linear: bool
) -> None:
    """They follow each other, or lie in parts of the inner dimension, as the processor likes it."""
    profile = stored_profile("llvmpipe").replace(reads_linearly=linear)
    node, _ = node_of("matmul", _describe(1, length), _describe(length, 128))
    (dispatch,) = plan(node, profile)
    assert dispatch.constants["STEPS"] == steps
    assert dispatch.constants["STREAMS"] == (1 if linear else steps)


@pytest.mark.parametrize("profile", ["llvmpipe", "arm_mali_g610"])
@pytest.mark.parametrize(
    ("shape", "addends"),
    [((64, 1), 1), ((), 1), ((48,), None), ((1, 48), None), ((64, 48), None)],
)
def test_columns_that_share_an_addend(
    profile: str, shape: tuple[int, ...], addends: int | None
) -> None:
    """It is read once for four of them, as the bias of a convolution with channels first."""
    node, _ = node_of("gemm", _describe(64, 32), _describe(32, 48), c=_describe(*shape))
    (dispatch,) = plan(node, stored_profile(profile))
    assert dispatch.kernel == "matmul" and dispatch.constants.get("ADDENDS") == addends


@pytest.mark.parametrize(("columns", "width"), [(48, 4), (47, 1)])
def test_a_fused_addend_is_read_as_the_output_is_stored(columns: int, width: int) -> None:
    node, _ = node_of("gemm", _describe(64, 32), _describe(32, columns), c=_describe(columns))
    (dispatch,) = plan(node, stored_profile("llvmpipe"))
    by_name = {buffer.name: buffer for buffer in dispatch.spec.buffers}
    assert by_name["out"].width == by_name["e0"].width == width


def test_few_workgroup_invocations_are_respected() -> None:
    minimum = stored_profile("adreno_minimum")
    node, _ = node_of("matmul", _describe(4096, 512), _describe(512, 4096))
    (dispatch,) = plan(node, minimum)
    size = dispatch.constants["LX"] * dispatch.constants["LY"]
    assert size <= minimum.max_workgroup_invocations


def test_parts_of_large_operands_are_read_as_texels() -> None:
    """Outputs are cut at the limit of a storage buffer; operands are bound whole."""
    device = stored_profile("llvmpipe").replace(max_storage_buffer_range=20480)
    left, right = (MLOperandDescriptor("float32", s) for s in ((4, 64, 32), (4, 32, 64)))
    node, _ = node_of("matmul", left, right)
    starts = []
    for dispatch in plan(node, device):
        a, b, out = dispatch.bindings
        assert (a.size, b.size) == (None, None) and out.size == 16384
        assert [buffer.load for buffer in dispatch.spec.buffers] == ["texel", "texel", "storage"]
        starts.append((dispatch.params["a_base"], dispatch.params["b_base"], out.offset))
    size = 64 * 32
    assert starts == [(n * size, n * size, n * 16384) for n in range(4)]


@pytest.mark.parametrize(("change", "columns"), [
    ({}, [32, 56]), ({"n": 36, "ldb": 36, "ldo": 36}, [32, 36, 56]),
    ({"n": 49, "ldb": 49, "ldo": 49}, [49]), ({"n": 8, "ldb": 8, "ldo": 8}, []),
    ({"n": 81, "ldb": 81, "ldo": 81}, []),  # its columns fill no vectors, and are too many
    ({"starts": (0, 0, 0, 2)}, []), ({"n": 36, "ldb": 36, "ldo": 38}, [36]),
    ({"starts": (0, 2, 0, 0)}, []), ({"k": 62, "lda": 62}, []), ({"a_transposed": True}, []),
    ({"operands": ("a", "b", "c")}, []), ({"data_type": "float16"}, []),
])
def test_lanes_have_rows_of_a_filter(change: dict[str, Any], columns: list[int]) -> None:
    """Where they load whole vectors; on processors only."""
    p = Product(64, 196, 64, 64, 196, 196, operands=("filter", "input", "bias"))
    p = replace(p, **change)
    found = row_schedules(p, stored_profile("llvmpipe"))
    assert sorted(s["TN"] for s in found) == columns
    assert not row_schedules(p, stored_profile("amd_navi31"))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("profile", ["nvidia_ampere", "llvmpipe"])
def test_plans_are_in_the_catalogue(profile: str) -> None:
    for limit in (stored_profile(profile).max_storage_buffer_range, 2048):
        device = stored_profile(profile).replace(max_storage_buffer_range=limit)
        known = set(catalogue(device.features, "matmul"))
        rng = np.random.default_rng(5)
        for data_type in FLOAT_TYPES:
            for case in (matmul_node, gemm_node):
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


def test_tiles_of_operands_read_one_by_one_are_small() -> None:
    """Both in vectors and 8 × 8 sums would spill registers; one in vectors is enough."""
    for shapes, tile in (
        (((1023, 1023), (1023, 1023)), 4), (((1024, 1024), (1024, 1023)), 8),
        (((1023, 1023), (1023, 1024)), 8),
    ):
        (dispatch,) = _planned("amd_navi31", *shapes)
        assert dispatch.kernel == "matmul_tiled" and dispatch.constants["TM"] == tile


@pytest.mark.parametrize(
    ("shapes", "widths"),
    [
        (((1024, 1024), (1024, 1024)), [8, 8]), (((1000, 1000), (1000, 1000)), [8, 8]),
        (((1024, 1020), (1020, 1024)), [4, 4]), (((1024, 1024), (1024, 1020)), [4, 4]),
        (((1024, 1024), (1024, 1023)), [4, 1]),
    ],
)
def test_halves_are_loaded_by_sixteen_bytes(shapes, widths) -> None:
    """If 8 elements divide the rows of both."""
    node, _ = node_of("matmul", *(MLOperandDescriptor("float16", shape) for shape in shapes))
    profile = stored_profile("amd_navi31").masked(["cooperative_matrix"])
    (dispatch,) = plan(node, profile)
    assert dispatch.kernel == "matmul_tiled"
    assert [buffer.width for buffer in dispatch.spec.buffers[:2]] == widths
