"""Products with weights of 4 or 8 bits and scales of blocks, which stay so in memory and become
floats where they are loaded. ``matvec_blocks`` computes few rows: it reads each weight once and
scales sums of a block. More rows go through the tiles of float products (``matmul``,
``matmul_tiled``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.access import Access
from . import epilogue as fused
from .dispatch import Binding, Dispatch, Unsupported, grid
from .family import Family
from .loads import has_texels, texel_bytes, with_subgroup_sums
from .node import KernelNode
from .parts import bind
from .product import PARAMS, Product, parameters
from .product_dispatch import CONSTANTS, shuffling_rows, tile_shape, tiled_schedules, vectors
from .rows import check_iterations
from .schedule import Schedule

KERNEL = "matvec_blocks"
# Workgroups of GPUs: invocations that share the inner dimension, and columns.
_SHARED_ROWS = (32, 4), (16, 8), (8, 16)
_PARAMS = (
    *(Param(name) for name in (
        "M", "N", "K", "chunks", "chunk_bits", "b_row", "ldo", "a_base", "out_base",
    )),
    Param("zero_point", "float"),
)
_TILED_PARAMS = (*PARAMS, Param("zero_point", "float"), Param("block_bits"))
_CONSTANTS = {**CONSTANTS, KERNEL: (Constant("TM"), Constant("TR"))}
# Parts of the weights begin at such rows, so that bindings of all operands can begin there.
_ROW_STEP = 128


@dataclass(frozen=True)
class BlockSums:
    """out[m, n] = Σ a[m, k] · w[n, k]: see `ops/block_product.py`. ``stored``: elements of a row of
    weights; ``data_type``: of a; ``scale_type``: of scales and offsets."""

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

    @property
    def batches(self) -> int:
        return 1

    @property
    def chunk(self) -> int:
        """Elements of four words."""
        return 128 // self.bits

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
    templates = (KERNEL, "matmul", "matmul_tiled")
    fuses = True

    def problem(self, node: KernelNode) -> BlockSums:
        a, b, scale = (node.operands[name] for name in ("a", "b", "scale"))
        (n, words), k, bits = b.shape, a.shape[-1], node.arguments["bits"]
        stored = words * 32 // bits
        return BlockSums(
            a.size // k, n, k, stored, stored // scale.shape[1], bits,
            node.arguments["zero_point"], node.operand("offset") is not None, a.data_type,
            scale.data_type,
        )

    def candidates(self, problem: BlockSums, profile: DeviceProfile) -> Sequence[Schedule]:
        p = problem
        # No rule for GPUs chooses texels.
        texels = has_texels(profile) and profile.device_type == "cpu"
        loads = ("storage", *["texel"] * texels)
        vectors_of = [
            Schedule(KERNEL, (("LX", x), ("LY", y), ("TM", tm), ("TR", rows)), load)
            for load in loads for x, y, tm, rows in (
                *((x, y, 1, min(4, p.m)) for x, y in _SHARED_ROWS if load == "storage"),
                *((8, 1, tm, tr) for tm, tr in ((16, 1), (8, 2), (8, 4), (8, 8)) if tr <= p.m),
            )
            if x * y <= profile.max_workgroup_invocations
        ] if not p.block % p.chunk else []
        direct = [
            Schedule("matmul", (("LX", 8), ("LY", y), ("TM", tm), ("TN", tn)), load)
            for load in loads for y, tm, tn in ((1, 4, 4), (1, 4, 8), (1, 8, 8), (8, 4, 4))
        ]
        by_vectors = any(vectors(p.product, (0, 0, 0, 0)))
        return [*vectors_of, *direct, *tiled_schedules(True, True, by_vectors, profile)]

    def lower(
        self, node: KernelNode, problem: BlockSums, schedule: Schedule, profile: DeviceProfile
    ) -> list[Dispatch]:
        """Weights larger than a binding are cut into several dispatches, of some columns each."""
        p = problem
        check_iterations(p.stored, profile)
        names = ("b", "scale", *["offset"] * p.offset)
        weights = [node.operands[name] for name in names]
        ends = [node.operands["a"], node.output]
        most = profile.max_storage_buffer_range
        if max(map(_bytes, ends)) > most:
            raise Unsupported(
                f"a product of {max(map(_bytes, ends))} bytes in one operand; a binding has {most} "
                "at most"
            )
        texels = schedule.load == "texel" and all(
            _bytes(access) <= texel_bytes(profile) // (1 if access is weights[0] else 4)
            for access in weights
        )
        extra = fused.build(node)
        spec, is_vector = _spec(p, node, schedule, texels, profile, extra)
        made = []
        for rows in _parts(p, weights, texels, profile):
            bindings, first = _bindings(weights, rows, texels, profile)
            made.append(_dispatch(
                p, node, schedule, spec, is_vector, rows, bindings, first, extra, profile
            ))
        return made


def _bytes(access: Access) -> int:
    return access.value.descriptor.byte_length


def _parts(
    p: BlockSums, weights: Sequence[Access], texels: bool, profile: DeviceProfile
) -> Iterator[range]:
    """Rows of the weights that dispatches read. Texels can be of all of a tensor."""
    most = max(_bytes(access) for access in weights)
    step = p.n
    if most > profile.max_storage_buffer_range and not texels:
        step = profile.max_storage_buffer_range // ceil_divide(most, p.n) // _ROW_STEP * _ROW_STEP
        if not step:
            raise Unsupported("rows of weights that are too long for bindings")
    for first in range(0, p.n, step):
        yield range(first, min(first + step, p.n))


def _bindings(
    weights: Sequence[Access], rows: range, texels: bool, profile: DeviceProfile
) -> tuple[list[Binding], int]:
    """The bindings of the weights, and the number of the first of these rows in them."""
    if texels or len(rows) == weights[0].shape[0]:
        return [Binding(access.value) for access in weights], rows.start
    made, base = [], 0
    for access in weights:
        row = _bytes(access) // access.shape[0]
        binding, base = bind(access.value, profile, rows.start * row, rows.stop * row)
        made.append(binding)
    return made, rows.start if base != rows.start * row else 0


def _dispatch(
    p: BlockSums, node: KernelNode, schedule: Schedule, spec: KernelSpec, is_vector: bool,
    rows: range, weights: Sequence[Binding], first: int, extra: fused.Epilogue,
    profile: DeviceProfile,
) -> Dispatch:
    """The output's columns ``rows``. ``first``: the number of their first in the bindings."""
    n = len(rows)
    if schedule.kernel == KERNEL:
        high, wide = schedule["TR"], schedule["LY"] * schedule["TM"]
        params = {
            "M": p.m, "N": n, "K": p.k, "chunks": p.stored // p.chunk,
            "chunk_bits": (p.block // p.chunk).bit_length() - 1, "b_row": first, "ldo": p.n,
            "a_base": 0, "out_base": rows.start, "zero_point": p.zero_point,
        }
    else:
        high, wide = tile_shape(p.product, schedule)
        part = Product(p.m, n, p.k, p.k, p.stored, p.n, b_transposed=True)
        params = {
            **parameters(part, (0, first * p.stored, 0, rows.start)), "b_panel": wide * p.stored,
            "zero_point": p.zero_point, "block_bits": p.block.bit_length() - 1,
        }
    a, b, *others = Binding(node.operands["a"].value), *weights
    share = n / p.n
    read = sum(_bytes(node.operands[name]) for name in node.operands)
    step = Dispatch(
        spec,
        (a, b, Binding(node.output.value), *others, *extra.bindings),
        grid(ceil_divide(p.m, high) * ceil_divide(n, wide), profile),
        params | extra.values,
        dict(schedule.numbers),
        schedule.kernel,
        f"{p.bits} bits {'sv'[is_vector]}{'x' * (schedule.load == 'texel')} {high}x{wide}",
        2 * p.m * n * p.k + extra.flops,
        round(share * (read + _bytes(node.output))) + extra.bytes,
    )
    if schedule.kernel == KERNEL:
        return with_subgroup_sums(step, schedule["LX"], profile)
    return shuffling_rows(step, schedule, profile) if schedule.kernel == "matmul" else step


def _spec(
    p: BlockSums, node: KernelNode, schedule: Schedule, texels: bool, profile: DeviceProfile,
    extra: fused.Epilogue,
) -> tuple[KernelSpec, bool]:
    """The module, and whether it loads a in vectors."""
    kernel, load = schedule.kernel, "texel" if texels else "storage"
    half = p.scale_type == "float16"
    options = {"bits": p.bits, "has_offset": p.offset, "half_scale": half}
    if kernel == KERNEL:
        a_vector = not p.k % 4 and p.k == p.stored
        options |= {"vector": a_vector}
        b = Buffer("b", "uint32", "r", 4, load=load)
        params: tuple[Param, ...] = _PARAMS
    else:
        a_vector, b_vector = vectors(p.product, (0, 0, 0, 0))
        options |= {
            "a_transposed": False, "b_transposed": True, "a_vector": a_vector,
            "b_vector": b_vector, "addend": False,
            "out_vector": b_vector and kernel == "matmul" and node.out_type in _VECTORS,
        }
        b = Buffer("b", "uint32", load=load)
        params = _TILED_PARAMS
    scales = [
        Buffer(name, "uint32" if half else "float32", load=load)
        for name in ("scale", *["offset"] * p.offset)
    ]
    out = Buffer("out", node.out_type, "w", 4 if options.get("out_vector") else 1)
    a = Buffer("a", p.data_type, "r", 4 if a_vector else 1)
    return extra.spec(
        kernel, (a, b, out, *scales), params, profile.features, _CONSTANTS[kernel],
        options.items(), texels=texels, converts=True,
    ), a_vector


_VECTORS = ("float32", "float16")
