"""Where element-wise kernels find their operands, and how each is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from ..types.access import Access, collapse, strides
from ..types.data_types import DATA_TYPES


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
