"""Matrix products by cooperative matrices (VK_KHR_cooperative_matrix): legality, sizes, specs.

The template ``matmul_coopmat`` has two forms. Where a profile has the feature, fragments are the
device's own; a profile that lists shapes without it gets an emulation in shared memory, with which
tests run the same tiling and indexing anywhere. Snapshots of devices never list shapes without it.

Sums are float32. Shapes that sum in float16 are left alone: sums end at 65504 there, and their
error grows past what a product may have. No operator multiplies integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import CooperativeMatrix, DeviceProfile
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide, round_up

from ..types.data_types import DATA_TYPES
from . import epilogue as fused
from .product import ADDENDS, Product
from .rows import loop_budget
from .schedule import Schedule

KERNEL = "matmul_coopmat"
#: The device features that the kernels need, except types in buffers.
FEATURES = frozenset({
    "cooperative_matrix", "vulkan_memory_model", "subgroup_basic", "float16_arithmetic",
})
#: Data types that cooperative matrices may multiply here.
OPERANDS = ("float16", "float32")
#: Rows and columns of the output that a workgroup computes, bytes of its tiles along the inner
#: dimension, and tiles of each operand in shared memory. On an H200 one long tile is faster than
#: two of half its length, except for the smallest. Only devices with many registers have room for
#: the two largest.
_TILES = (
    (32, 32, 64, 2), (64, 64, 128, 1), (128, 128, 64, 2), (128, 128, 128, 1), (128, 256, 64, 1),
)
#: Subgroups below each other, and the most sums of an invocation where the sides are equal.
_SUBGROUPS, _MOST_SUMS = 2, 64
CONSTANTS = (
    Constant("SUBGROUP", default=32),
    *(Constant(name, default=64) for name in ("BM", "BN")),
    Constant("BK", default=32),
    *(Constant(name, default=16) for name in ("FM", "FN", "FK")),
    *(Constant(name, default=2) for name in ("WM", "WN")),
    Constant("BUFFERS", default=2),
)


def shape_for(data_type: str, profile: DeviceProfile) -> CooperativeMatrix | None:
    """The fragments by which a device multiplies matrices of a data type into float32: the largest
    of those that vectors of 16 bytes fill. None: it can't."""
    whole = VECTOR_BYTES // DATA_TYPES[data_type].size
    shapes = [
        s for s in profile.cooperative_matrices
        if (s.a, s.b, s.c, s.result) == (data_type, data_type, "float32", "float32")
        and not any(n % whole for n in (s.m, s.n, s.k))
    ]
    # The squarer of two of one size reads less for each product.
    return max(shapes, key=lambda s: (s.m * s.n * s.k, min(s.m, s.n)), default=None)


def subgroup_size(profile: DeviceProfile) -> int:
    """The size that the kernels' subgroups can be relied on to have; 0: none can."""
    size = profile.subgroup_size
    if "cooperative_matrix" not in profile.features:
        return size  # the emulation counts invocations
    required = (
        "subgroup_size_control" in profile.features
        and profile.min_subgroup_size <= size <= profile.max_subgroup_size
    )
    return size if required or profile.min_subgroup_size == profile.max_subgroup_size else 0


def needed(data_type: str) -> frozenset[str]:
    """Features without which a device can't multiply matrices of a data type so."""
    if data_type == "float16":
        return FEATURES | {"float16"}
    return FEATURES - {"float16_arithmetic"}


def schedules(p: Product, profile: DeviceProfile) -> list[Schedule]:
    """The tilings by which the device could compute a product with cooperative matrices."""
    if p.data_type not in OPERANDS or p.quantized:
        return []
    shape, subgroup = shape_for(p.data_type, profile), subgroup_size(profile)
    emulated = "cooperative_matrix" not in profile.features
    if shape is None or not subgroup or not (emulated or needed(p.data_type) <= profile.features):
        return []
    tilings = []
    for high, wide, step, buffers in _TILES:
        beside = _SUBGROUPS
        while high * high > _MOST_SUMS * subgroup * _SUBGROUPS * beside:
            beside *= 2
        rows, columns = high // _SUBGROUPS, wide // beside
        if rows % shape.m or columns % shape.n:
            continue
        tiling = Schedule(KERNEL, (
            ("LX", subgroup * _SUBGROUPS * beside), ("SUBGROUP", subgroup),
            ("BM", high), ("BN", wide),
            ("BK", round_up(step // DATA_TYPES[p.data_type].size, shape.k)),
            ("FM", shape.m), ("FN", shape.n), ("FK", shape.k),
            ("WM", rows // shape.m), ("WN", columns // shape.n), ("BUFFERS", buffers),
        ))
        if (
            tiling["LX"] <= min(profile.max_workgroup_invocations, profile.max_workgroup_size[0])
            and shared_bytes(p, tiling, emulated) <= profile.max_shared_memory
            and not (emulated and _cut_short(p, tiling, profile))
        ):
            tilings.append(tiling)
    return tilings


def _cut_short(p: Product, tiling: Schedule, profile: DeviceProfile) -> bool:
    """Whether the device would end the loops of an invocation of the emulation."""
    budget = loop_budget(profile)
    if budget is None:
        return False
    t = {name: tiling[name] for name in ("SUBGROUP", "BK", "FM", "FN", "FK", "WM", "WN")}

    def share(rows: int, columns: int) -> int:
        return ceil_divide(rows * columns, t["SUBGROUP"])

    loads = t["WM"] * (1 + share(t["FM"], t["FK"])) + t["WN"] * (1 + share(t["FK"], t["FN"]))
    products = t["WM"] * (1 + t["WN"] * (1 + share(t["FM"], t["FN"]) * (1 + t["FK"])))
    step = 1 + t["BK"] // t["FK"] * (1 + loads + products)
    return ceil_divide(p.k, t["BK"]) * step > budget


def shared_bytes(p: Product, tiling: Schedule, emulated: bool = False) -> int:
    """Shared memory of a workgroup (``lib/coopmat``)."""
    t = {name: tiling[name] for name in ("BM", "BN", "BK", "FM", "FN", "FK", "WM", "WN")}
    vector = VECTOR_BYTES // DATA_TYPES[p.data_type].size

    def tile(side: int, along_k: bool) -> int:
        rows, length = (side, t["BK"]) if along_k else (t["BK"], side)
        return rows * (length // vector + 1) * VECTOR_BYTES

    both = tile(t["BM"], not p.a_transposed) + tile(t["BN"], p.b_transposed)
    tiles = tiling["BUFFERS"] * both
    subgroups = tiling["LX"] // tiling["SUBGROUP"]
    stage = subgroups * t["FM"] * (t["WN"] * t["FN"] // 4 + 1) * VECTOR_BYTES
    size = max(tiles, stage)
    if emulated:
        a, b = t["WM"] * t["FM"] * t["FK"], t["WN"] * t["FK"] * t["FN"]
        size += 4 * subgroups * (a + b + t["WM"] * t["FM"] * t["WN"] * t["FN"])
    return size


def vectors(p: Product, bases: Sequence[int]) -> tuple[bool, bool, bool]:
    """Whether a and b can be loaded in vectors of 16 bytes, and out stored in vectors of 4
    elements, where they begin at these elements of their bindings."""
    whole = VECTOR_BYTES // DATA_TYPES[p.data_type].size

    def divide(by: int, *numbers: int) -> bool:
        return not any(n % by for n in numbers)

    return (
        divide(whole, bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch),
        divide(whole, bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch),
        divide(4, bases[3], p.n, p.ldo, *p.out_batch),
    )


def spec(
    data_type: str, c_type: str | None, out_type: str,
    transposed: tuple[bool, bool], by_vectors: tuple[bool, bool, bool], params: Sequence[Param],
    features: frozenset[str], extra: fused.Epilogue,
) -> KernelSpec:
    """The kernel: ``transposed`` says it of a and b, ``by_vectors`` is what `vectors` gives."""
    a_vector, b_vector, out_vector = by_vectors
    out_vector = out_vector and DATA_TYPES[out_type].size <= 4
    buffers = (
        *(
            # 16 bytes at a time, whatever their elements are.
            Buffer(name, "uint32", "r", 4) if vector else Buffer(name, data_type)
            for name, vector in (("a", a_vector), ("b", b_vector))
        ),
        *([Buffer("c", c_type, width=4 if out_vector else 1)] if c_type else []),
        Buffer("out", out_type, "w", 4 if out_vector else 1),
    )
    options = {
        "operand": data_type, "a_transposed": transposed[0], "b_transposed": transposed[1],
        "a_vector": a_vector, "b_vector": b_vector, "out_vector": out_vector,
        "addend": c_type is not None,
    }
    extra = fused.by_vectors(extra, out_vector)
    constants = (*CONSTANTS, *[ADDENDS] * (c_type is not None))
    made = extra.spec(KERNEL, buffers, params, features, constants, options.items())
    return with_features(made, data_type, features)


def with_features(spec: KernelSpec, data_type: str, features: frozenset[str]) -> KernelSpec:
    """The kernel with the device's own matrices if it has any."""
    if "cooperative_matrix" not in features:
        return spec
    return replace(spec, features=spec.features | needed(data_type) - {"float16"})
