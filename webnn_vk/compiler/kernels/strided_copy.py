"""Strided boxes of elements, which copies and padding move from one tensor to another.

Dimensions are merged where strides allow it, and contiguous runs move as elements of up to 16
bytes. Where a tensor exceeds the device's binding limit, its box is copied in blocks (``parts``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import mul, sub

from webnn_vk.codegen.spec import KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide, padded

from ..ir import Value
from ..types.access import collapse, span
from . import raw_copy
from .dispatch import Binding, Dispatch, grid, workgroup
from .expression import reciprocal
from .parts import Reach, bind, block_shape, blocks

_PADDED = (2, 3, 4, 8)
#: Dimensions of the boxes that kernels exist for, by mode. tile makes two of each of 8 dimensions.
RANKS = {
    "strided": (1, 2, 3, 4, 6, 16), "constant": _PADDED, "edge": _PADDED, "reflection": _PADDED
}


@dataclass(frozen=True)
class Box:
    """A box of ``shape`` elements with the strides and offsets, in elements, by which it lies in
    the source and in the destination. Padding: ``begin`` and ``size`` say where the source's
    elements are along each dimension; source strides and offset refer to its first element."""

    shape: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_offset: int = 0
    dst_offset: int = 0
    begin: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    mode: str = "strided"

    def src_span(self) -> tuple[int, int]:
        """The range of elements read, in the source: first, and last + 1."""
        if self.mode == "strided":
            return span(self.shape, self.src_strides, self.src_offset)
        low = high = self.src_offset
        for n, stride, begin, size in zip(
            self.shape, self.src_strides, self.begin, self.size, strict=True
        ):
            first, last = _source_range(self.mode, -begin, n - 1 - begin, size)
            low, high = low + first * stride, high + last * stride
        return low, high + 1

    def dst_span(self) -> tuple[int, int]:
        """The range of elements written, in the destination: first, and last + 1."""
        return span(self.shape, self.dst_strides, self.dst_offset)

    def block(self, start: tuple[int, ...], shape: tuple[int, ...]) -> Box:
        """The block of ``shape`` elements from the coordinates ``start`` on."""
        dst_offset = self.dst_offset + sum(map(mul, start, self.dst_strides))
        block = replace(self, shape=shape, dst_offset=dst_offset)
        if self.mode == "strided":
            src_offset = self.src_offset + sum(map(mul, start, self.src_strides))
            return replace(block, src_offset=src_offset)
        return replace(block, begin=tuple(map(sub, self.begin, start)))


def _source_range(mode: str, first: int, last: int, size: int) -> tuple[int, int]:
    """Source coordinates that padded ones first … last lead to. With a constant there may be none;
    the nearest one is taken then."""
    if mode != "reflection":
        return min(max(first, 0), size - 1), min(max(last, 0), size - 1)
    # Mirrored: an end inside the source is one of the range's, else the mirrored coordinates are.
    turned = [_mirror(x, size) for x in (first, last)]
    low = 0 if first <= 0 <= last else min(turned)
    high = size - 1 if first <= size - 1 <= last else max(turned)
    return low, high


def _mirror(x: int, size: int) -> int:
    x = abs(x)
    return 2 * (size - 1) - x if x >= size else x


def copy_spec(
    width: int, features: frozenset[str], mode: str, rank: int, params: Iterable[Param]
) -> KernelSpec:
    """The template that copies, elements ``width`` bytes wide."""
    return KernelSpec(
        "copy.comp.j2",
        (raw_copy.buffer("src", width), raw_copy.buffer("dst", width, "w")),
        tuple(params),
        options=(("mode", mode), ("rank", rank)),
        features=raw_copy.storage_features(width, features),
    )


@functools.cache
def box_spec(width: int, features: frozenset[str], mode: str, rank: int) -> KernelSpec:
    """Copy between boxes of ``rank`` dimensions."""
    params = [
        Param(name, count=rank) for name in ("dims", "reciprocals", "src_strides", "dst_strides")
    ]
    if mode != "strided":
        params += [Param("begin", "int", rank), Param("size", count=rank)]
    params += map(Param, ("src_offset", "dst_offset", "count"))
    if mode == "constant":
        params.append(Param("value", count=4))
    return copy_spec(width, features, mode, rank, params)


def box_specs(features: frozenset[str], *modes: str) -> Iterator[KernelSpec]:
    """Every kernel of these modes."""
    for width in raw_copy.WIDTHS:
        for mode in modes:
            for rank in RANKS[mode]:
                yield box_spec(width, features, mode, rank)


def widened(box: Box, size: int) -> tuple[int, Box]:
    """The box in the widest elements its innermost runs allow, and their width in bytes."""
    width = size
    if box.src_strides[-1] == box.dst_strides[-1] == 1:
        numbers = [box.shape[-1], box.src_offset, box.dst_offset]
        numbers += [*box.src_strides[:-1], *box.dst_strides[:-1]]
        if box.mode != "strided":
            numbers += [box.begin[-1], box.size[-1]]
        # Only an unpadded innermost dimension has whole elements at the edges.
        if box.mode in ("strided", "constant") or box.shape[-1] == box.size[-1]:
            width = raw_copy.widest(size, numbers)
    n = width // size
    if n == 1:
        return width, box

    def inner(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return (*numbers[:-1], numbers[-1] // n) if numbers else ()

    def outer(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return (*(s // n for s in numbers[:-1]), 1)

    box = replace(
        box,
        shape=inner(box.shape), begin=inner(box.begin), size=inner(box.size),
        src_strides=outer(box.src_strides), dst_strides=outer(box.dst_strides),
        src_offset=box.src_offset // n, dst_offset=box.dst_offset // n,
    )
    if box.mode == "strided":
        shape, (src, dst) = collapse(box.shape, box.src_strides, box.dst_strides)
        box = replace(box, shape=shape, src_strides=src, dst_strides=dst)
    return width, box


def blocks_of(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Iterator[Box]:
    """The box in blocks of which each reads and writes what a binding holds."""
    # Padding reads the source from any element on.
    src_start = box.src_offset if box.mode == "strided" else 1
    reaches = [
        Reach(strides, width, start)
        for value, strides, start in (
            (source, box.src_strides, src_start), (target, box.dst_strides, box.dst_offset)
        )
        if padded(value.descriptor.byte_length) > profile.max_storage_buffer_range
    ]
    for start, shape in blocks(box.shape, block_shape(box.shape, reaches, profile)):
        yield box.block(start, shape)


def bound_box(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> tuple[tuple[Binding, Binding], dict[str, int]]:
    """Bindings for a box, and its offsets from where they begin."""
    (first, last), (low, high) = box.src_span(), box.dst_span()
    src, src_base = bind(source, profile, first * width, last * width)
    dst, dst_base = bind(target, profile, low * width, high * width)
    return (src, dst), {
        "src_offset": (box.src_offset - src_base // width) % 2**32,
        "dst_offset": box.dst_offset - dst_base // width,
        "count": math.prod(box.shape),
    }


def box_dispatch(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile,
    value: tuple[int, ...] = (),
) -> Dispatch:
    """The dispatch for a box that fits bindings, by the kernel of the smallest rank that holds it:
    dimensions of size 1 are added in front. ``value``: the words that pad with a constant."""
    bindings, offsets = bound_box(source, target, width, box, profile)
    rank = next(r for r in RANKS[box.mode] if r >= len(box.shape))
    missing = rank - len(box.shape)
    dims = (1,) * missing + box.shape
    lists = {
        "dims": dims,
        "reciprocals": tuple(reciprocal(n) for n in dims),
        "src_strides": (0,) * missing + tuple(s % 2**32 for s in box.src_strides),
        "dst_strides": (0,) * missing + tuple(s % 2**32 for s in box.dst_strides),
    }
    if box.mode != "strided":
        lists |= {"begin": (0,) * missing + box.begin, "size": (1,) * missing + box.size}
    if value:
        lists["value"] = value
    params = {name: n[0] if rank == 1 else n for name, n in lists.items()}
    spec = box_spec(width, profile.features, box.mode, rank)
    return copy_dispatch(spec, bindings, params | offsets, width, profile)


def copy_dispatch(
    spec: KernelSpec, bindings: tuple[Binding, ...], params: dict, width: int,
    profile: DeviceProfile,
) -> Dispatch:
    invocations = workgroup(profile)
    mode, rank = spec.option("mode"), spec.option("rank")
    return Dispatch(
        spec,
        bindings,
        grid(ceil_divide(params["count"], invocations), profile),
        params,
        {"LX": invocations},
        kernel="copy",
        variant=f"{mode}{f' {rank}d' if rank else ''} {8 * width} bit",
        bytes=2 * width * params["count"],
    )
