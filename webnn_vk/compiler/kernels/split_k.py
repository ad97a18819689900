"""Matrix products with few outputs and a long inner dimension, which is cut into parts.

Each part is a batch of a product that one of the tiled kernels computes. The sums of the parts go
to scratch memory, and a second dispatch adds them up. The order is fixed, so results are the same
in every run. A schedule with several ``parts`` computes this way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import Buffer
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..types.data_types import DATA_TYPES, FLOAT_TYPES
from . import epilogue as fused
from .dispatch import Binding, Dispatch, Scratch, declared, grid
from .node import KernelNode
from .product import ADDENDS, BATCH_RANK, TYPES, Product, fits_bindings, parameters
from .schedule import SPLIT, Schedule

KERNEL = "matmul_sum"
_PARTS = (2, 4, 5, 8, 10, 16, 20, 32)
#: A part of the inner dimension is a multiple of the first, so that vectors of 16 bytes stay whole,
#: and not shorter than the second.
_STEP, _SHORTEST = 8, 128
#: Outputs of a product up to which it is cut: 512 tiles of 64 x 64.
_MOST_OUTPUTS = 1 << 21


def schedules(
    p: Product, tilings: Sequence[Schedule], profile: DeviceProfile
) -> list[Schedule]:
    """The schedules by which the device could compute a product, given schedules for one part."""
    if len(p.batch) >= BATCH_RANK or p.data_type not in FLOAT_TYPES:
        return []
    outputs = p.batches * p.m * p.n
    if outputs > _MOST_OUTPUTS or not fits_bindings(p, profile):
        return []
    return [
        replace(tiling, numbers=(*tiling.numbers, (SPLIT, count)))
        for tiling in tilings for count in _PARTS
        if not p.k % (_STEP * count) and p.k // count >= _SHORTEST
        and count * outputs * 4 <= profile.max_storage_buffer_range
    ]


def scratch_bytes(p: Product, count: int) -> int:
    """Bytes of the sums of all parts."""
    return 4 * count * p.batches * p.m * p.n


def partial(p: Product, count: int) -> Product:
    """The product whose outermost batches are the parts, each with its own rows and columns in
    scratch memory. Factors and addend come with the sum."""
    k = p.k // count
    a_step = p.lda if p.a_transposed else 1
    b_step = 1 if p.b_transposed else p.ldb
    matrix = p.m * p.n
    out_batch = [matrix * math.prod(p.batch[i + 1 :]) for i in range(len(p.batch))]
    return replace(
        p, k=k, ldo=p.n, batch=(count, *p.batch), a_batch=(k * a_step, *p.a_batch),
        b_batch=(k * b_step, *p.b_batch), out_batch=(matrix * p.batches, *out_batch),
        c_strides=(0, 0), alpha=1.0, starts=(*p.starts[:2], 0, 0),
    )


def summed(
    p: Product, node: KernelNode, c_type: str | None, bindings: Sequence[Binding],
    bases: Sequence[int], lanes: int, profile: DeviceProfile,
) -> Dispatch:
    """The dispatch that adds up the parts of a product, with ``lanes`` invocations a workgroup.
    ``bindings``: the sums, the addend if there is one, the output; ``bases``: the first elements of
    a, b, c and out in their bindings."""
    (sums, *_), (*_, out_base) = bindings, bases
    assert isinstance(sums.value, Scratch)
    count = sums.value.size // scratch_bytes(p, 1)
    extra, out_type = fused.build(node), node.out_type
    numbers = (p.n, p.ldo, out_base, *p.out_batch)
    vector = DATA_TYPES[out_type].size <= 4 and not any(n % 4 for n in numbers)
    outputs, width = p.batches * p.m * p.n, 4 if vector else 1
    extra = fused.by_vectors(extra, vector)
    buffers = (
        Buffer("partial", "float32", "r", width),
        *([Buffer("c", c_type, width=width)] if c_type else []),
        Buffer("out", out_type, "w", width),
    )
    params = {**parameters(p, bases), "parts": count}
    return Dispatch(
        extra.spec(
            KERNEL, buffers, declared(params, TYPES), profile.features,
            constants=(ADDENDS,) * (c_type is not None),
            options=(("addend", c_type is not None), ("vector", vector)),
        ),
        (*bindings, *extra.bindings),
        grid(ceil_divide(outputs // width, lanes), profile),
        params | extra.values,
        {"LX": lanes} | ({"ADDENDS": p.addend_loads(bases[2])} if c_type else {}),
        KERNEL,
        f"{count} parts",
        count * outputs + extra.flops,
        (4 * count + DATA_TYPES[out_type].size) * outputs + extra.bytes,
    )
