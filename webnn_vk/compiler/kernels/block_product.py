"""Products with weights of 4 or 8 bits and scales of blocks, which stay so in memory and become
floats where they are loaded. ``matvec_blocks`` computes few rows: it reads each weight once and
scales sums of a block. More rows go through the tiles of float products (``matmul``,
``matmul_tiled``, and ``matmul_coopmat``, whose tiles have weights rounded to float16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.access import Access
from ..types.data_types import DATA_TYPES, FLOAT_TYPES
from . import coopmat
from .dispatch import Binding, Dispatch, Unsupported, is_workgroup
from .epilogue import build, by_vectors
from .expression import HALF_CONVERSIONS
from .family import Family
from .heuristics import GpuClass, device_class
from .loads import has_texels, texel_bytes, with_subgroup_sums
from .multi_binding import Bound, dispatch
from .node import KernelNode
from .parts import Items, bind, byte_length, ranges
from .product import TYPES, Product, parameters
from .product_dispatch import shuffling_rows, tiled_schedules, vectors
from .rows import check_iterations
from .schedule import Schedule

KERNEL = "matvec_blocks"
# Workgroups of GPUs: invocations that share the inner dimension, and columns, of which a subgroup
# has up to four; and columns of an invocation, of one row several, for which it reads a once.
_SHARED_ROWS = (32, 4, 1), (16, 8, 1), (8, 16, 1), (64, 2, 1), (128, 1, 1), (256, 1, 1)
_SHARED_ROW = (
    (32, 4, 4), (64, 2, 4), (64, 4, 4), (64, 2, 2), (128, 1, 4), (128, 2, 4), (128, 1, 2),
    (128, 2, 2), (256, 1, 2),
)
# Elements that matrices of float16 take at once.
_VECTOR = 8
# Parts of the weights begin at such rows, so that bindings of all operands can begin there.
_ROW_STEP = 128


@dataclass(frozen=True)
class BlockSums:
    """out[m, n] = Σ a[m, k] · w[n, k]: see `ops/block_product.py`. ``stored``: elements of a row of
    weights; ``data_type``: of a; ``scale_type``: of scales and offsets; ``normalized`` and
    ``gated`` as in `Product`."""

    m: int
    n: int
    k: int
    stored: int
    block: int
    bits: int
    zero_point: float
    offset: bool
    data_type: str
    scale_type: str
    normalized: bool = False
    gated: bool = False

    @property
    def batches(self) -> int:
        return 1

    @property
    def chunk(self) -> int:
        """Elements of four words."""
        return 128 // self.bits

    @property
    def by_halves(self) -> bool:
        """Whether weights may be rounded to float16, and vectors of them are of one block. They are
        in graphs of float16, whose scales stay so without offsets (`passes/quantized.py`)."""
        rounded = self.data_type == "float16" and self.offset == (self.scale_type == "float32")
        return rounded and not (self.block % _VECTOR or self.k % _VECTOR)

    @property
    def product(self) -> Product:
        """The same as a product of floats."""
        return Product(
            self.m, self.n, self.k, self.k, self.stored, self.n, b_transposed=True,
            data_type=self.data_type,
        )


class BlockProductFamily(Family):
    """See the module's docstring."""

    name = "block_product"
    templates = (KERNEL, "matmul", "matmul_tiled", coopmat.KERNEL)
    fuses = True

    def problem(self, node: KernelNode) -> BlockSums:
        a, b, scale = (node.operands[name] for name in ("a", "b", "scale"))
        (n, words), k, bits = b.shape, a.shape[-1], node.arguments["bits"]
        stored = words * 32 // bits
        return BlockSums(
            a.size // k, n, k, stored, stored // scale.shape[1], bits,
            node.arguments["zero_point"], node.operand("offset") is not None, a.data_type,
            scale.data_type, node.prologue is not None, node.gated,
        )

    def extends(self, node: KernelNode, profile: DeviceProfile) -> bool:
        p = self.problem(node)
        plain = p.m == 1 and not p.k % 4 and p.k == p.stored
        bound = (node.operands[name].value for name in ("b", "scale", *["offset"] * p.offset))
        fits = max(map(byte_length, bound)) <= profile.max_storage_buffer_range
        return plain and fits and bool(self.candidates(p, profile))

    def candidates(self, problem: BlockSums, profile: DeviceProfile) -> Sequence[Schedule]:
        p = problem
        # No rule for GPUs chooses texels.
        texels = has_texels(profile) and profile.device_type == "cpu"
        loads = ("storage", *["texel"] * texels)
        gpu = profile.device_type != "cpu"
        shared = (*_SHARED_ROWS[: None if gpu else 3], *(_SHARED_ROW if gpu and p.m == 1 else ()))
        vectors_of = [
            Schedule(KERNEL, (("LX", x), ("LY", y), ("TM", tm), ("TR", rows)), load)
            for load in loads for x, y, tm, rows in (
                *((x, y, tm, min(4, p.m)) for x, y, tm in shared if load == "storage"),
                *((8, 1, tm, tr) for tm, tr in ((16, 1), (8, 2), (8, 4), (8, 8)) if tr <= p.m),
            )
            if is_workgroup(x, y, profile)
        ] if not p.block % p.chunk else []
        if p.normalized or p.gated:
            return [
                c for c in vectors_of
                if c.load == "storage" and c["TR"] == 1 and not (p.gated and c["TM"] % 2)
            ]
        direct = [
            Schedule("matmul", (("LX", 8), ("LY", y), ("TM", tm), ("TN", tn)), load)
            for load in loads for y, tm, tn in ((1, 4, 4), (1, 4, 8), (1, 8, 8), (8, 4, 4))
        ]
        by_vectors = any(vectors(p.product, (0, 0, 0, 0)))
        tiled = tiled_schedules(True, True, by_vectors, profile)
        return [*vectors_of, *direct, *tiled, *_by_matrices(p, profile)]

    def rounding(self, problem: BlockSums) -> float:
        return 2.0**-11 if problem.by_halves else 0.0

    def lower(
        self, node: KernelNode, problem: BlockSums, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Weights larger than a binding are cut into several dispatches, of some columns each."""
        p = problem
        check_iterations(p.stored, profile)
        names = ("b", "scale", *["offset"] * p.offset)
        weights = [node.operands[name] for name in names]
        largest = max(byte_length(node.operands["a"].value), byte_length(node.output.value))
        if largest > profile.max_storage_buffer_range:
            raise Unsupported(
                f"a product of {largest} bytes in one operand; a binding has "
                f"{profile.max_storage_buffer_range} at most"
            )
        texels = schedule.load == "texel" and all(
            byte_length(access.value) <= texel_bytes(profile) // (1 if access is weights[0] else 4)
            for access in weights
        )
        row = ceil_divide(max(byte_length(access.value) for access in weights), p.n)
        parts = [Items(0, p.n)] if texels else ranges(p.n, row, profile, _ROW_STEP)
        return [_dispatch(p, node, weights, schedule, part, texels, profile) for part in parts]


def _by_matrices(p: BlockSums, profile: DeviceProfile) -> list[Schedule]:
    """Tilings by cooperative matrices."""
    if not (p.by_halves and _conversions(profile) <= profile.features):
        return []
    return coopmat.schedules(p.product, profile)


def _conversions(profile: DeviceProfile) -> frozenset[str]:
    """The features by which weights become float16: exactly, but in the emulation of matrices."""
    if "cooperative_matrix" in profile.features:
        return HALF_CONVERSIONS
    return frozenset({"float16_arithmetic"})


def _dispatch(
    p: BlockSums, node: KernelNode, weights: Sequence[Access], schedule: Schedule, rows: Items,
    texels: bool, profile: DeviceProfile,
) -> Dispatch:
    """The output's columns ``rows``, by these rows of the weights."""
    bindings, first = _bindings(p, weights, rows, profile)
    kernel, constants = schedule.kernel, dict(schedule.numbers)
    if kernel == KERNEL:
        a_vector, out_vector = not p.k % 4 and p.k == p.stored, False
        options: dict[str, Any] = {"vector": a_vector}
        high, wide = schedule["TR"], schedule["LY"] * schedule["TM"]
        params = {
            "M": p.m, "N": rows.count, "K": p.k, "chunks": p.stored // p.chunk,
            "chunk_bits": (p.block // p.chunk).bit_length() - 1, "b_row": first, "ldo": p.n,
            "a_base": 0, "out_base": rows.start, "zero_point": p.zero_point,
        }
        device = device_class(profile)
        # Columns share what it costs for each row. With offsets, Adreno 660 spills 6 registers.
        slow_conversions = isinstance(device, GpuClass) and device.slow_conversions
        pays = slow_conversions or (p.bits == 4 and not p.offset)
        constants["IN_PLACE"] = int(pays and schedule["TM"] > 2 * schedule["TR"])
    else:
        a_vector, b_vector = vectors(p.product, (0, 0, 0, 0))
        out_vector = b_vector and kernel == "matmul" and node.out_type in FLOAT_TYPES
        options = {
            "a_transposed": False, "b_transposed": True, "a_vector": a_vector,
            "b_vector": b_vector, "addend": False, "out_vector": out_vector,
        }
        high, wide = schedule.tile
        part = Product(p.m, rows.count, p.k, p.k, p.stored, p.n, b_transposed=True)
        params = parameters(part, (0, first * p.stored, 0, rows.start), wide * p.stored) | {
            "zero_point": p.zero_point, "block_bits": p.block.bit_length() - 1,
        }
        if kernel == "matmul":
            constants |= {"STEPS": 1, "STREAMS": 1, "ADDENDS": 4}
        elif kernel == coopmat.KERNEL:
            constants = {c.name: int(c.default) for c in coopmat.CONSTANTS} | constants
            _, _, out_vector = coopmat.vectors(p.product, (0, 0, 0, 0))
            out_vector = out_vector and DATA_TYPES[node.out_type].size <= 4
            options |= {"operand": p.data_type, "b_vector": False, "out_vector": out_vector}
    options |= {
        "bits": p.bits, "has_offset": p.offset, "half_scale": p.scale_type == "float16"
    }
    buffers = _buffers(p, kernel, a_vector, out_vector, node.out_type, texels)
    operands = [Bound(f, (binding,), {}) for f, binding in zip(
        buffers,
        (Binding(node.operands["a"].value), bindings[0], Binding(node.output.value), *bindings[1:]),
        strict=True,
    )]
    step = dispatch(
        node, kernel, operands, by_vectors(build(node), out_vector),
        ceil_divide(p.m, high) * ceil_divide(rows.count, wide), params, constants, profile,
        options.items(), types=TYPES, texels=texels,
        variant=f"{p.bits} bits {'sv'[a_vector]}{'x' * (schedule.load == 'texel')} {high}x{wide}",
        flops=2 * p.m * rows.count * p.k,
    )
    step = replace(step, bytes=round(step.bytes * rows.count / p.n))
    if kernel == KERNEL:
        return with_subgroup_sums(step, schedule["LX"], profile)
    if kernel == coopmat.KERNEL:
        features = step.spec.features | _conversions(profile)
        spec = replace(step.spec, features=features)
        return replace(step, spec=coopmat.with_features(spec, p.data_type, profile.features))
    return shuffling_rows(step, schedule, profile) if kernel == "matmul" else step


def _bindings(
    p: BlockSums, weights: Sequence[Access], rows: Items, profile: DeviceProfile
) -> tuple[list[Binding], int]:
    """The bindings of the weights' ``rows``, and the number of the first of these in them."""
    made, first = [], 0
    for access in weights:
        row = byte_length(access.value) // p.n
        binding, base = bind(access.value, profile, rows.start * row, rows.stop * row)
        made.append(binding)
        first = rows.start if base != rows.start * row else 0
    return made, first


def _buffers(
    p: BlockSums, kernel: str, a_vector: bool, out_vector: bool, out_type: str, texels: bool
) -> tuple[Buffer, ...]:
    load = "texel" if texels else "storage"
    scale_type = "uint32" if p.scale_type == "float16" else "float32"
    a_type = p.data_type
    if kernel == coopmat.KERNEL:
        a_type, scale_type = "uint32", p.scale_type
    return (
        Buffer("a", a_type, "r", 4 if a_vector else 1),
        Buffer("b", "uint32", "r", 4 if kernel == KERNEL else 1, load=load),
        Buffer("out", out_type, "w", 4 if out_vector else 1),
        *(Buffer(name, scale_type, load=load) for name in ("scale", *["offset"] * p.offset)),
    )
