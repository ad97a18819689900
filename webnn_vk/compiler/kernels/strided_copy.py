"""Strided boxes of elements, which copies and padding move from one tensor to another.

Dimensions are merged where strides allow it, and contiguous runs move as elements of up to 16
bytes. Where a tensor exceeds the device's binding limit, its box is halved until what each part
reads and writes fits in a binding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from webnn_vk.codegen.spec import KernelSpec, Param
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.integers import ceil_divide

from ..ir import Value
from ..types.access import collapse
from . import raw_copy
from .dispatch import Binding, Dispatch, grid, workgroup
from .expression import reciprocal

PARAMS = ("dims", "reciprocals", "src_strides", "dst_strides")


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
            return _span(self.shape, self.src_strides, self.src_offset)
        low = high = self.src_offset
        for n, stride, begin, size in zip(
            self.shape, self.src_strides, self.begin, self.size, strict=True
        ):
            first, last = _source_range(self.mode, -begin, n - 1 - begin, size)
            if first > last:
                return self.src_offset, self.src_offset
            low, high = low + first * stride, high + last * stride
        return low, high + 1

    def dst_span(self) -> tuple[int, int]:
        """The range of elements written, in the destination: first, and last + 1."""
        return _span(self.shape, self.dst_strides, self.dst_offset)

    def halves(self, axis: int) -> tuple[Box, Box]:
        """The box cut in two along a dimension."""
        first = self.shape[axis] // 2
        low = replace(self, shape=_with(self.shape, axis, first))
        high = replace(
            self,
            shape=_with(self.shape, axis, self.shape[axis] - first),
            dst_offset=self.dst_offset + first * self.dst_strides[axis],
        )
        if self.mode == "strided":
            offset = self.src_offset + first * self.src_strides[axis]
            return low, replace(high, src_offset=offset)
        return low, replace(high, begin=_with(self.begin, axis, self.begin[axis] - first))


def _with(numbers: tuple[int, ...], axis: int, number: int) -> tuple[int, ...]:
    return (*numbers[:axis], number, *numbers[axis + 1 :])


def _span(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> tuple[int, int]:
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return offset + sum(min(0, e) for e in ends), offset + sum(max(0, e) for e in ends) + 1


def _source_range(mode: str, first: int, last: int, size: int) -> tuple[int, int]:
    """Source coordinates that padded ones first … last lead to; (1, 0) where there are none."""
    if mode == "constant":
        first, last = max(first, 0), min(last, size - 1)
        return (first, last) if first <= last else (1, 0)
    if mode == "edge":
        return min(max(first, 0), size - 1), min(max(last, 0), size - 1)
    # Mirrored: an end inside the source is one of the range's, else the mirrored coordinates are.
    turned = [_mirror(x, size) for x in (first, last)]
    low = 0 if first <= 0 <= last else min(turned)
    high = size - 1 if first <= size - 1 <= last else max(turned)
    return low, high


def _mirror(x: int, size: int) -> int:
    x = abs(x)
    return 2 * (size - 1) - x if x >= size else x


def box_spec(
    width: int, features: frozenset[str], mode: str, rank: int, *params: Param
) -> KernelSpec:
    return KernelSpec(
        "copy.comp.j2",
        (raw_copy.buffer("src", width), raw_copy.buffer("dst", width, "w")),
        params,
        options=(("mode", mode), ("rank", rank)),
        features=raw_copy.storage_features(width, features),
    )


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


def halved(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> Iterator[Box]:
    """The box, halved until what each part reads and writes fits a binding."""
    ends = (
        (source, box.src_strides, box.src_span()),
        (target, box.dst_strides, box.dst_span()),
    )
    too_long = [
        strides
        for value, strides, (first, last) in ends
        if not raw_copy.fits(value, profile, first * width, last * width)
    ]
    if not too_long:
        yield box
        return
    # Halving the dimension that spans most of what is too long shrinks it fastest.
    spans = [
        max(abs(strides[axis]) for strides in too_long) * n if n > 1 else 0
        for axis, n in enumerate(box.shape)
    ]
    for part in box.halves(spans.index(max(spans))):
        yield from halved(source, target, width, part, profile)


def bound_box(
    source: Value, target: Value, width: int, box: Box, profile: DeviceProfile
) -> tuple[tuple[Binding, Binding], dict[str, int]]:
    """Bindings for a box, and its offsets from where they begin."""
    (first, last), (low, high) = box.src_span(), box.dst_span()
    src, src_base = raw_copy.bind(source, profile, first * width, last * width)
    dst, dst_base = raw_copy.bind(target, profile, low * width, high * width)
    return (src, dst), {
        "src_offset": (box.src_offset - src_base // width) % 2**32,
        "dst_offset": box.dst_offset - dst_base // width,
        "count": math.prod(box.shape),
    }


def box_numbers(box: Box, ranks: tuple[int, ...]) -> tuple[int, dict[str, tuple[int, ...] | int]]:
    """The smallest of the kernels' ``ranks`` that holds the box, and the box's numbers for it, with
    dimensions of size 1 added in front."""
    rank = next(r for r in ranks if r >= len(box.shape))
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
    return rank, {name: n[0] if rank == 1 else n for name, n in lists.items()}


def box_dispatch(
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
