"""Matrix products by the cooperative matrices of whole workgroups (VK_NV_cooperative_matrix2):
legality, sizes, specs.

The template ``matmul_coopmat2`` has two forms, as the template of ``coopmat`` has: the device's own
where a profile has the feature, and an emulation in shared memory where one lists such matrices
without it.

Operands are float16, sums float32. Tiles are seen through tensor layouts, which ask of operands
that they begin at multiples of 16 bytes and that their rows don't overlap; any sizes will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile, FlexibleMatrix
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide

from ..types.data_types import DATA_TYPES
from . import epilogue as fused
from .product import Product, fits_bindings
from .rows import loop_budget
from .schedule import Schedule

KERNEL = "matmul_coopmat2"
#: The device features that the kernels need.
FEATURES = frozenset({
    "cooperative_matrix", "cooperative_matrix2", "vulkan_memory_model", "float16",
    "float16_arithmetic", "int16",
})
# SPIR-V 1.6 gives the size of a workgroup in a way that the device has to have switched on.
_DEVICE = FEATURES | {"maintenance4"}
OPERAND = "float16"
#: Rows and columns of the output that a workgroup computes, and steps of the inner dimension that
#: it takes at a time.
_TILES = ((32, 32, 32), (32, 64, 32), (64, 64, 64), (128, 128, 64), (128, 256, 64))
#: Sums of an invocation from which on a larger workgroup is taken.
_MANY_SUMS = 64
#: Elements of 16 bytes.
_WHOLE = VECTOR_BYTES // DATA_TYPES[OPERAND].size
CONSTANTS = (
    *(Constant(name, default=64) for name in ("BM", "BN")),
    Constant("BK", default=32),
)


def schedules(p: Product, profile: DeviceProfile) -> list[Schedule]:
    """The tilings by which the device could compute a product so."""
    if p.data_type != OPERAND or p.quantized or not _is_seen_by_layouts(p):
        return []
    emulated = "cooperative_matrix2" not in profile.features
    if not (emulated or profile.features >= _DEVICE) or not fits_bindings(p, profile):
        return []
    tilings = []
    for sizes in _TILES:
        lanes = _workgroup(sizes, profile)
        if not lanes:
            continue
        tiling = Schedule(KERNEL, (("LX", lanes), *zip(("BM", "BN", "BK"), sizes, strict=True)))
        if not emulated or _can_emulate(p, tiling, profile):
            tilings.append(tiling)
    return tilings


def _is_seen_by_layouts(p: Product) -> bool:
    """Whether tensor layouts can describe a and b: every matrix begins at a multiple of 16 bytes,
    and so does each tile of b in panels; rows in memory are no shorter than what is read of
    them."""
    a_row, b_row = p.m if p.a_transposed else p.k, p.k if p.b_transposed else p.n
    begins = (*p.starts[:2], *p.a_batch, *p.b_batch)
    return (
        not any(begin % _WHOLE for begin in begins)
        and p.lda >= a_row and p.ldb >= (p.panel or b_row)
    )


def _workgroup(sizes: tuple[int, int, int], profile: DeviceProfile) -> int:
    """Invocations of a workgroup that has a tile of these sizes; 0: the device has none."""
    lanes = sorted(
        s.invocations for s in profile.flexible_matrices
        if _has(s, "float32") and _divides(s, sizes)
        and s.invocations <= min(profile.max_workgroup_invocations, profile.max_workgroup_size[0])
        and not s.invocations % profile.max_subgroup_size
    )
    if not lanes or max(sizes) > profile.max_flexible_dimension:
        return 0
    m, n, _ = sizes
    return next((count for count in lanes if m * n <= _MANY_SUMS * count), lanes[-1])


def _has(s: FlexibleMatrix, result: str) -> bool:
    return (s.a, s.b, s.c, s.result) == (OPERAND, OPERAND, result, result) and not s.saturating


def _divides(s: FlexibleMatrix, sizes: tuple[int, int, int]) -> bool:
    m, n, k = sizes
    return not (m % s.m or n % s.n or k % s.k)


def _can_emulate(p: Product, tiling: Schedule, profile: DeviceProfile) -> bool:
    """Whether the emulation fits the device's shared memory, and the loops of an invocation what
    the device lets it do."""
    m, n, k = (tiling[name] for name in ("BM", "BN", "BK"))
    if 4 * (m * k + k * n + m * n + 1) > profile.max_shared_memory:
        return False
    budget = loop_budget(profile)
    if budget is None:
        return True
    loads, sums = (ceil_divide(size, tiling["LX"]) for size in (m * k + k * n, m * n))
    return ceil_divide(p.k, k) * (3 + loads + sums * (1 + k)) + 3 * sums <= budget


def stores_tensor(
    p: Product, out_base: int, out_type: str, tiling: Schedule, profile: DeviceProfile
) -> bool:
    """Whether sums can be stored as a tensor of out's type that begins at this element of its
    binding."""
    if out_type not in ("float16", "float32"):
        return False
    sizes = (tiling["BM"], tiling["BN"], tiling["BK"])
    whole = VECTOR_BYTES // DATA_TYPES[out_type].size
    return (
        not any(begin % whole for begin in (out_base, *p.out_batch)) and p.ldo >= p.n
        and any(
            _has(s, out_type) and _divides(s, sizes) and s.invocations == tiling["LX"]
            for s in profile.flexible_matrices
        )
    )


def whole_vectors(p: Product) -> bool:
    """Whether the rows of a and b in memory are whole vectors of 16 bytes."""
    return not (p.lda % _WHOLE or p.ldb % _WHOLE)


def spec(
    c_type: str | None, out_type: str, transposed: tuple[bool, bool],
    vectors: bool, out_tensor: bool, params: Sequence[Param], features: frozenset[str],
    extra: fused.Epilogue,
) -> KernelSpec:
    """The kernel: ``transposed`` says it of a and b, ``vectors`` is what `whole_vectors` gives,
    ``out_tensor`` what `stores_tensor` does."""
    buffers = (
        Buffer("a", OPERAND), Buffer("b", OPERAND), *([Buffer("c", c_type)] if c_type else []),
        Buffer("out", out_type, "w"),
    )
    options = {
        "a_transposed": transposed[0], "b_transposed": transposed[1], "whole_vectors": vectors,
        "out_tensor": out_tensor, "half_result": out_tensor and out_type == "float16",
        "addend": c_type is not None,
    }
    made = extra.spec(KERNEL, buffers, params, features, CONSTANTS, options.items())
    if "cooperative_matrix2" not in features:
        return made
    return replace(made, features=made.features | FEATURES)
