"""Where element-wise kernels find their operands, and how each is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from webnn_vk.support.dataclass import dataclass

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
    ``blockwise`` whether its elements are repeated in blocks.

    ``laid_out`` tells how it is addressed: by ``strides`` over the collapsed dimensions of the
    output, from the access's offset on, where it isn't FLAT or SCALAR. ``by_strides``: they can't
    be known from the repeated dimensions."""

    name: str
    access: Access
    broadcasts: bool
    blockwise: bool = False
    mode: Mode = Mode.FLAT
    strides: tuple[int, ...] = ()
    by_strides: bool = False

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return DATA_TYPES[self.access.data_type].size


def width(data_type: str) -> int:
    """Elements that are loaded and stored at once."""
    return 4 if DATA_TYPES[data_type].size < 8 else 1


def laid_out(
    operands: Sequence[Operand], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], list[Operand]]:
    """The collapsed dimensions, and the operands as they are addressed over them."""
    # Each dimension as (number of blocks, block size); blockwise operands have one shape.
    counts = next((o.access.shape for o in operands if o.blockwise), shape)
    fine = tuple(n for d, c in zip(shape, counts, strict=True) for n in (c, d // c))
    flat = _stepping(strides(fine), fine)
    steps = [_fine_strides(o, shape, fine) for o in operands]
    modes = [
        Mode.GATHER if o.access.offset and o.broadcasts
        else Mode.SCALAR if o.broadcasts and not any(s)
        else Mode.FLAT if not o.broadcasts or s == flat else Mode.GATHER
        for o, s in zip(operands, steps, strict=True)
    ]
    dims, merged = collapse(
        fine, *(s for s, mode in zip(steps, modes, strict=True) if mode is Mode.GATHER)
    )
    rest = iter(merged)
    return dims, [
        _strided(o, dims, next(rest)) if mode is Mode.GATHER else replace(o, mode=mode)
        for o, mode in zip(operands, modes, strict=True)
    ]


def _fine_strides(
    operand: Operand, shape: tuple[int, ...], fine: tuple[int, ...]
) -> tuple[int, ...]:
    """Strides over the dimensions of ``fine``, 0 where a dimension is repeated or of size 1."""
    if operand.blockwise:
        return _stepping([n for s in operand.access.strides for n in (s, 0)], fine)
    steps = operand.access.broadcast(shape).strides
    return _stepping([n for s, b in zip(steps, fine[1::2], strict=True) for n in (s * b, s)], fine)


def _stepping(steps: Sequence[int], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(s if d > 1 else 0 for s, d in zip(steps, dims, strict=True))


def _strided(operand: Operand, dims: tuple[int, ...], steps: tuple[int, ...]) -> Operand:
    mode, offset = Mode.GATHER, operand.access.offset
    if dims[-1] % 4 == 0:
        vectors = width(operand.access.data_type) == 4
        if steps[-1] == 0:
            mode = Mode.SPLAT
        elif vectors and steps[-1] == 1 and all(s % 4 == 0 for s in (*steps[:-1], offset)):
            mode = Mode.VECTOR
    # Elements may lie in order over those dimensions along which they aren't repeated.
    kept = [n for n, s in zip(dims, steps, strict=True) if s]
    in_order = tuple(s for s in steps if s) == strides(kept)
    return replace(operand, mode=mode, strides=steps, by_strides=bool(offset) or not in_order)
