"""Where element-wise kernels find their operands: how each is read, and the slices of the output
that are computed where one exceeds a binding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from webnn_vk.support.integers import round_up

from ..types.access import Access, collapse, strides
from ..types.data_types import DATA_TYPES, MLOperandDescriptor
from .dispatch import Unsupported

#: Slices begin at multiples of this many elements: 256 bytes or more in every data type.
ALIGNMENT = 256


class Mode(IntEnum):
    """How an operand is read; the template uses the same numbers."""

    FLAT = 0
    SCALAR = 1
    VECTOR = 2
    SPLAT = 3
    GATHER = 4


@dataclass(frozen=True)
class Operand:
    """An operand ``x<n>``; ``broadcasts`` tells whether its shape may differ from the output's,
    ``blockwise`` whether its elements are repeated in blocks."""

    name: str
    access: Access
    broadcasts: bool
    blockwise: bool = False


@dataclass(frozen=True)
class Part:
    """The part of an operand that a slice reads: element ``base``, multiple of the alignment, to
    ``stop``; the whole operand when ``stop`` is None."""

    base: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Layout:
    """How an operand is addressed: its strides over the collapsed dimensions of the output, from
    element ``offset`` on. ``by_strides``: they can't be told from which dimensions are repeated."""

    mode: Mode
    strides: tuple[int, ...] = ()
    offset: int = 0
    by_strides: bool = False


def width(data_type: str) -> int:
    """Elements that are loaded and stored at once."""
    return 4 if DATA_TYPES[data_type].size < 8 else 1


# -- addressing -----------------------------------------------------------------------------------
def layouts_of(
    operands: Sequence[Operand], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Layout]]:
    """The collapsed dimensions, and each operand's layout over them."""
    fine = _split(shape, [o.access.shape for o in operands if o.blockwise])
    flat = [s if d > 1 else 0 for s, d in zip(strides(fine), fine, strict=True)]
    simple: list[Layout | None] = []
    strided: list[tuple[int, ...]] = []
    for o in operands:
        steps = _fine_strides(o, shape, fine)
        if o.broadcasts and not any(steps) and not o.access.offset:
            simple.append(Layout(Mode.SCALAR))
        elif not o.broadcasts or (list(steps) == flat and not o.access.offset):
            simple.append(Layout(Mode.FLAT))
        else:
            simple.append(None)
            strided.append(steps)
    dims, merged = collapse(fine, *strided)
    rest = iter(merged)
    layouts = []
    for o, layout in zip(operands, simple, strict=True):
        if layout is None:
            steps = next(rest)
            offset = o.access.offset
            mode = _mode(dims, steps, width(o.access.data_type), offset)
            layout = Layout(mode, steps, offset, bool(offset) or not _in_order(dims, steps))
        layouts.append(layout)
    return dims, layouts


def _split(shape: tuple[int, ...], blocks: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Each dimension as (number of blocks, block size); blockwise operands have one shape."""
    if not blocks:
        return shape
    (counts,) = set(blocks)
    return tuple(n for d, c in zip(shape, counts, strict=True) for n in (c, d // c))


def _fine_strides(
    operand: Operand, shape: tuple[int, ...], fine: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides over the dimensions of ``fine``, 0 where a dimension is repeated or of size 1."""
    access = operand.access
    if operand.blockwise:
        return tuple(
            n
            for s, d in zip(access.strides, access.shape, strict=True)
            for n in (s if d > 1 else 0, 0)
        )
    steps = access.broadcast(shape).strides
    if len(fine) == len(shape):
        return tuple(s if d > 1 else 0 for s, d in zip(steps, shape, strict=True))
    split = (n for s, b in zip(steps, fine[1::2], strict=True) for n in (s * b, s))
    return tuple(s if d > 1 else 0 for s, d in zip(split, fine, strict=True))


def _mode(dims: tuple[int, ...], steps: tuple[int, ...], width: int, offset: int) -> Mode:
    if dims[-1] % 4 == 0:
        if steps[-1] == 0:
            return Mode.SPLAT
        if width == 4 and steps[-1] == 1 and all(s % 4 == 0 for s in (*steps[:-1], offset)):
            return Mode.VECTOR
    return Mode.GATHER


def _in_order(dims: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Whether elements lie in order over those dimensions along which they aren't repeated."""
    kept = [n for n, s in zip(dims, steps, strict=True) if s]
    return tuple(s for s in steps if s) == strides(kept)


# -- slices ---------------------------------------------------------------------------------------
def slices(
    operands: Sequence[Operand],
    out: MLOperandDescriptor,
    dims: tuple[int, ...],
    layouts: Sequence[Layout],
    limit: int,
) -> Iterator[tuple[int, int, list[Part]]]:
    """(start, stop, part of each operand) so that no binding exceeds ``limit`` bytes."""
    flat = [o.access.data_type for o, layout in zip(operands, layouts, strict=True)
            if layout.mode is Mode.FLAT]
    size = max(DATA_TYPES[t].size for t in (out.data_type, *flat))
    chunk = limit // size // ALIGNMENT * ALIGNMENT
    if not chunk:
        raise Unsupported(f"bindings of {limit} bytes are too small to slice {out}")
    start = 0
    while start < out.size:
        begin = start // ALIGNMENT * ALIGNMENT
        stop = min(out.size, begin + chunk)
        while True:
            parts = [
                _part(o, layout, dims, begin, start, stop, out.size, limit)
                for o, layout in zip(operands, layouts, strict=True)
            ]
            if None not in parts:
                break
            stop = _earlier(dims, layouts, start, stop)
        yield start, stop, parts
        start = stop


def _part(
    operand: Operand,
    layout: Layout,
    dims: tuple[int, ...],
    begin: int,
    start: int,
    stop: int,
    total: int,
    limit: int,
) -> Part | None:
    """What elements ``start`` … ``stop`` read of an operand; None when that exceeds a binding."""
    descriptor = operand.access.value.descriptor
    if layout.mode is Mode.FLAT:
        return Part(begin, None if stop == total else stop)
    if layout.mode is Mode.SCALAR or descriptor.byte_length <= limit:
        return Part()
    low, high = _span(dims, layout.strides, start, stop)
    low, high = low + layout.offset, high + layout.offset
    base = low // ALIGNMENT * ALIGNMENT
    end = round_up(high + 1, 4)
    if (end - base) * DATA_TYPES[descriptor.data_type].size > limit:
        return None
    return Part(base, min(end, descriptor.size))


def _coordinates(dims: tuple[int, ...], index: int) -> list[int]:
    coordinates = []
    for size in reversed(dims):
        index, c = divmod(index, size)
        coordinates.append(c)
    return coordinates[::-1]


def _span(
    dims: tuple[int, ...], steps: tuple[int, ...], start: int, stop: int
) -> tuple[int, int]:
    """The lowest and highest element that output elements ``start`` … ``stop`` read."""
    first, last = _coordinates(dims, start), _coordinates(dims, stop - 1)
    axis = next((i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), len(dims))
    low = sum(c * s for c, s in zip(first[: axis + 1], steps, strict=False))
    high = sum(c * s for c, s in zip(last[: axis + 1], steps, strict=False))
    # Below the first differing dimension every coordinate may occur.
    return low, high + sum((d - 1) * s for d, s in zip(dims[axis + 1 :], steps[axis + 1 :],
                                                        strict=True))


def _earlier(
    dims: tuple[int, ...], layouts: Sequence[Layout], start: int, stop: int
) -> int:
    """A smaller end of a slice whose parts are too large: a border of the outermost dimension
    it crosses where an operand is repeated along it, else about half."""
    first, last = _coordinates(dims, start), _coordinates(dims, stop - 1)
    axis = next(i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b)
    block = math.prod(dims[axis + 1 :])
    repeated = any(layout.strides and layout.strides[axis] == 0 for layout in layouts)
    if block > 1 and (repeated or last[axis] - first[axis] == 1):
        return (stop - 1) // block * block
    half = (start + (stop - start) // 2) // ALIGNMENT * ALIGNMENT
    return half if half > start else start + max(1, (stop - start) // 2)


# -- the family -----------------------------------------------------------------------------------
