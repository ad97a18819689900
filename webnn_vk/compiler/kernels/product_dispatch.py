"""Products as dispatches: how operands are bound, what vectors they are loaded in, the spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer, Constant, KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide

from ..types.access import Access
from ..types.data_types import DATA_TYPES
from ..types.sizes import Size, preferring
from . import coopmat, split_k
from . import epilogue as fused
from .dispatch import Binding, Dispatch, Scratch, declared, grid
from .heuristics import device_class
from .loads import (
    SHUFFLES,
    has_texels,
    lanes_of_processor,
    lanes_that_shuffle,
    shuffling,
    with_subgroup_sums,
)
from .node import KernelNode
from .parts import bind, byte_length, memory
from .product import ADDENDS, TYPES, Product, fits_bindings, parameters, spans
from .raw_copy import item_size
from .schedule import BY_ROWS, Schedule

_CONSTANTS = {
    "matmul": (
        Constant("TM"), Constant("TN"), Constant("STEPS", default=1),
        Constant("STREAMS", default=1), ADDENDS,
    ),
    "matmul_tiled": (Constant("TM"), Constant("TN"), Constant("BK")),
    "matvec": (Constant("TM"), Constant("TR"), Constant("AHEAD", default=1)),
}


def _bind(
    target: Access | Scratch, start: int, elements: int, profile: DeviceProfile,
    whole: bool = False,
) -> tuple[Binding, int]:
    """A binding that covers ``elements`` from ``start`` on, and the position of the first of them
    in it; all of the target where it may be ``whole``."""
    value, itemsize = memory(target), item_size(target)
    if whole or byte_length(value) <= profile.max_storage_buffer_range:
        return Binding(value), start
    binding, base = bind(value, profile, start * itemsize, (start + elements) * itemsize)
    return binding, start - base // itemsize


def tile_bytes(
    rows: int, columns: int, steps: int, a_along_k: bool, b_along_k: bool
) -> int:
    """Shared memory of the kernels with tiles (``lib/tiles``): two of each operand, and one vector
    more a row where vectors lie along the inner dimension."""
    a = rows * (steps * 4 + a_along_k * VECTOR_BYTES)
    b = columns * (steps * 4 + b_along_k * VECTOR_BYTES)
    return 2 * (a + b)


def tiled_schedules(
    a_along_k: bool, b_along_k: bool, by_vectors: bool, profile: DeviceProfile
) -> list[Schedule]:
    """Schedules with tiles in shared memory. ``by_vectors``: an operand is loaded in vectors."""
    return [
        Schedule(
            "matmul_tiled",
            (("LX", lanes), ("LY", lanes), ("TM", tile), ("TN", tile), ("BK", steps)),
        )
        for side, lanes, tile, steps in (
            (32, 8, 4, 16), (64, 16, 4, 16), (128, 16, 8, 8), (128, 16, 8, 16),
        )
        if lanes * lanes <= profile.max_workgroup_invocations
        and tile_bytes(side, side, steps, a_along_k, b_along_k) <= profile.max_shared_memory
        # Element by element, both operands' loads take more registers than GFX1100 has.
        and (tile < 8 or by_vectors)
    ]


def _template(schedule: Schedule) -> str:
    return "matmul" if schedule.kernel == BY_ROWS else schedule.kernel


def tile_shape(p: Product, schedule: Schedule) -> tuple[int, int]:
    """Rows and columns of the output that a workgroup computes."""
    if schedule.kernel == "matvec":
        down = schedule["LX" if p.a_transposed else "LY"]
        return schedule["TM"] * down, dict(schedule.numbers).get("TR", 1)
    return schedule.tile


@dataclass(frozen=True)
class Tensors:
    """The accesses of a product. ``c`` None: it has no addend."""

    a: Access | Scratch
    b: Access | Scratch
    c: Access | Scratch | None
    out: Access | Scratch


def in_parts(
    p: Product, node: KernelNode, t: Tensors, schedule: Schedule, profile: DeviceProfile
) -> list[Dispatch]:
    """A product whose inner dimension is cut into parts, and their sum."""
    sums = Scratch(split_k.scratch_bytes(p, schedule.parts))
    one = one_dispatch(
        split_k.partial(p, schedule.parts), node, Tensors(t.a, t.b, None, sums), schedule.of_part,
        profile, aligned=True,
    )
    panels = {"b_panel": _panel_step(p, tile_shape(p, schedule)[1])}
    bindings, bases = [Binding(sums)], [0, 0, 0, 0]
    for i, target in ((2, t.c), (3, t.out)):
        if target is not None:
            binding, bases[i] = _bind(target, p.starts[i], spans(p)[i], profile)
            bindings.append(binding)
    with preferring():
        lanes = device_class(profile).workgroup(p.batches * p.m * p.n)
    c_type = None if t.c is None else t.c.data_type
    return [
        replace(one, params={**one.params, **panels}),
        split_k.summed(p, node, c_type, bindings, bases, lanes, profile),
    ]


def one_dispatch(
    p: Product, node: KernelNode, t: Tensors, schedule: Schedule, profile: DeviceProfile,
    aligned: bool = False,
) -> Dispatch:
    """``aligned``: operands of mixed types may be loaded in vectors too."""
    texels = schedule.load == "texel" and _are_texels(t, profile)
    bindings, bases = _bindings(p, t, texels, profile)
    kernel = _template(schedule)
    extra = _epilogue(p, node, t, kernel, bindings[0], profile)
    # For mixed types the shader archive has only the scalar variant.
    mixed = any(other.data_type != p.data_type for other in (t.c, t.out) if other is not None)
    aligned = aligned or not mixed or bool(p.quantized or node.epilogue)
    rows, columns = tile_shape(p, schedule)
    groups = p.batches * ceil_divide(p.m, rows) * ceil_divide(p.n, columns)
    params = parameters(p, bases, _panel_step(p, columns))
    if p.quantized:
        params["zero_point"] = p.zero_point
    if kernel == "matvec":
        params["ldn"] = p.ldn
    spec, widths = _spec(
        p, t, schedule, bases, aligned, texels, declared(params, TYPES), extra, profile
    )
    constants = dict(schedule.numbers)
    by_vectors = ("c", 4) in {(b.name, b.width) for b in spec.buffers}
    if by_vectors or (kernel == "matmul" and t.c is not None and p.c_strides[1] == 0):
        constants["ADDENDS"] = p.addend_loads(bases[2])
    transposed = f"{'t' if p.a_transposed else 'n'}{'t' if p.b_transposed else 'n'}"
    step = Dispatch(
        spec,
        (*bindings, *extra.bindings),
        grid(groups, profile),
        params | extra.values,
        constants,
        kernel,
        f"{transposed} {widths} {rows}x{columns}",
        2 * p.batches * p.m * p.n * p.k + extra.flops,
        p.batches * (
            item_size(t.a) * p.m * p.k + item_size(t.b) * p.k * p.n + item_size(t.out) * p.m * p.n
        ) + extra.bytes,
    )
    if kernel == "matvec":
        across = schedule["LX"] if not p.a_transposed else 0
        return with_subgroup_sums(step, across, profile)
    return shuffling_rows(step, schedule, profile) if kernel == "matmul" else step


def _are_texels(t: Tensors, profile: DeviceProfile) -> bool:
    """Whether all that is read can be. A part of a tensor larger than a storage buffer may begin at
    any element, which texels can't: they are of the whole tensor."""
    most = profile.max_storage_buffer_range
    room = {"float32": 4 * profile.max_texel_buffer_elements}
    return all(
        byte_length(memory(target)) <= room.get(target.data_type, most)
        for target in (t.a, t.b, t.c) if target is not None
    )


def _bindings(
    p: Product, t: Tensors, texels: bool, profile: DeviceProfile
) -> tuple[list[Binding], list[int]]:
    """The bindings of a, b, c and out, and the first element of each in its binding."""
    bindings, bases, targets = [], [0, 0, 0, 0], (t.a, t.b, t.c, t.out)
    for i, (target, start, elements) in enumerate(zip(targets, p.starts, spans(p), strict=True)):
        if target is not None:
            whole = texels and target is not t.out
            binding, bases[i] = _bind(target, start, elements, profile, whole)
            bindings.append(binding)
    return bindings, bases


def _epilogue(
    p: Product, node: KernelNode, t: Tensors, kernel: str, unused: Binding, profile: DeviceProfile
) -> fused.Epilogue:
    """The computation on the sums before they are stored. ``unused``: stands in for operands that a
    merged epilogue doesn't read."""
    if isinstance(t.out, Scratch):
        extra, node = fused.nothing("float32"), replace(node, epilogue=(), extra_outputs={})
    else:
        extra = fused.build(node)
    merges = kernel == "matmul" and t.c is not None and not p.quantized
    if merges and device_class(profile).merges_epilogues:
        return fused.merged(node, extra, unused)
    return extra


def _spec(
    p: Product, t: Tensors, schedule: Schedule, bases: Sequence[int], aligned: bool, texels: bool,
    params: Sequence[Param], extra: fused.Epilogue, profile: DeviceProfile,
) -> tuple[KernelSpec, str]:
    """The module, and how a and b are loaded as reports name it. ``aligned``: the module may load
    vectors."""
    kernel, features = _template(schedule), profile.features
    c_type = None if t.c is None else t.c.data_type
    out_type = t.out.data_type
    transposed = p.a_transposed, p.b_transposed
    if kernel == coopmat.KERNEL:
        by_vectors = coopmat.vectors(p, bases) if aligned else (False,) * 3
        a_vector, b_vector, _ = by_vectors
        spec = coopmat.spec(
            p.data_type, c_type, out_type, transposed, by_vectors, params, features, extra
        )
    else:
        a_vector, b_vector = vectors(p, bases) if aligned else (False, False)
        if kernel == "matvec":
            a_vector &= p.a_transposed or _divides(bases[1], p.ldb * (p.n > 1), *p.b_batch)
            b_vector = a_vector
        wide = kernel == "matmul_tiled" and a_vector and b_vector and _wide(p, bases, schedule)
        spec = _plain_spec(
            p, t, schedule, a_vector, b_vector, params, features, extra, texels, wide
        )
    return spec, f"{'sv'[a_vector]}{'sv'[b_vector]}" + "x" * texels


def row_schedules(p: Product, profile: DeviceProfile) -> list[Schedule]:
    """Schedules of a filter's products: lanes compute rows below each other, of columns side by
    side. Each reads rows of a of its own, and all exchange what they read of b. So few columns of
    a product of few are computed in vain, none where a tile has them all."""
    a_vector, b_vector = vectors(p, p.starts)
    lanes = lanes_of_processor(profile, SHUFFLES)
    if p.operands[0] != "filter" or p.data_type != "float32" or p.quantized or not (
        a_vector and lanes and has_texels(profile) and fits_bindings(p, profile)
    ) or p.a_transposed or p.b_transposed or isinstance(p.n, Size) or p.n <= 8:
        return []
    columns = (32, 56) if b_vector else ()
    # The code is repeated for each column. Four rows, one behind the other, are whole vectors.
    whole = p.n == p.ldb and p.n < 64 and _divides(p.starts[1], *p.b_batch)
    columns += (p.n,) * (whole and p.n not in columns)
    return [
        Schedule(BY_ROWS, (("LX", lanes), ("LY", 1), ("TM", 4), ("TN", tn)), "texel")
        for tn in columns
    ]


def shuffling_rows(step: Dispatch, schedule: Schedule, profile: DeviceProfile) -> Dispatch:
    """A dispatch of ``matmul.comp.j2``. Where its lanes read texels they exchange vectors: of a's
    rows, or of b in ``row_schedules``."""
    if schedule.kernel == BY_ROWS:
        return shuffling(step, schedule["LX"])
    a, options = step.spec.buffers[0], dict(step.spec.options)
    along_rows = a.load == "texel" and options["a_vector"] and not options["a_transposed"]
    return shuffling(step, lanes_that_shuffle(schedule, profile) if along_rows else 0)


def _panel_step(p: Product, columns: int) -> int:
    """Elements from one tile's columns of b to the next one's."""
    if p.panel:
        return p.panel * p.k
    return columns * (p.ldb if p.b_transposed else 1)


def _divides(*numbers: int, by: int = 4) -> bool:
    return not any(n % by for n in numbers)


def vectors(p: Product, bases: Sequence[int]) -> tuple[bool, bool]:
    """Whether a and b can be loaded in vectors of 4 elements."""
    a = _divides(bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch)
    b = _divides(
        bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch,
        bases[3], p.n, p.ldo, *p.out_batch,
    )
    return a, b


def _wide(p: Product, bases: Sequence[int], schedule: Schedule) -> bool:
    """Whether both tiles of a float16 product can be loaded in vectors of 8 elements, which
    invocations share evenly."""
    rows, columns = tile_shape(p, schedule)
    lanes = schedule["LX"] * schedule["LY"]
    return p.data_type == "float16" and not p.quantized and _divides(
        bases[0], p.lda, p.m if p.a_transposed else p.k, *p.a_batch,
        bases[1], p.ldb, p.k if p.b_transposed else p.n, *p.b_batch, schedule["BK"], by=8,
    ) and not (rows + columns) * schedule["BK"] % (8 * lanes)


def _plain_spec(
    p: Product, t: Tensors, schedule: Schedule, a_vector: bool, b_vector: bool,
    params: Sequence[Param], features: frozenset[str], extra: fused.Epilogue, texels: bool,
    wide: bool,
) -> KernelSpec:
    """The module of a kernel without cooperative matrices. ``wide``: a and b are loaded in vectors
    of 8."""
    out_type, kernel = t.out.data_type, _template(schedule)
    options = {"a_transposed": p.a_transposed, "addend": t.c is not None}
    by_rows, out_vector = schedule.kernel == BY_ROWS, False
    if kernel == "matvec":
        options |= {"vector": a_vector}
        b_vector = a_vector and not p.a_transposed
    else:
        lies_along = kernel == "matmul" or not p.b_transposed
        out_vector = b_vector and lies_along and DATA_TYPES[out_type].size <= 4
        options |= {
            "b_transposed": p.b_transposed, "a_vector": a_vector, "b_vector": b_vector,
            "out_vector": out_vector,
        }
        if by_rows:
            options["by_rows"] = True
        extra = fused.by_vectors(extra, out_vector)
    vector = 8 if wide else 4
    a_type, b_type = (
        target.data_type if p.quantized == name else p.data_type
        for name, target in (("a", t.a), ("b", t.b))
    )
    buffers = [
        Buffer("a", a_type, "r", vector * a_vector or 1),
        Buffer("b", b_type, "r", vector * (b_vector or by_rows) or 1),
        *([] if t.c is None else [
            Buffer("c", t.c.data_type, width=4 if out_vector and kernel == "matmul_tiled" else 1)
        ]),
        Buffer("out", out_type, "w", 4 if out_vector else 1),
    ]
    constants = _CONSTANTS[kernel]
    if kernel == "matmul_tiled" and t.c is not None:
        constants = *constants, ADDENDS
    return extra.spec(
        kernel, buffers, params, features, constants, options.items(), texels=texels,
    )
