"""Accesses: shape, strides and offset of an operand in a tensor's memory, and their composition.

Transposes, slices, splits, broadcasts and reversals of a tensor are other accesses of the same
memory. ``compose`` combines two accesses, so that a kernel can read or write through a movement
instead of after it. All numbers are in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from webnn_vk.support.dataclass import dataclass


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def span(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> tuple[int, int]:
    """First and last + 1 element of a box."""
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return offset + sum(min(0, e) for e in ends), offset + sum(max(0, e) for e in ends) + 1


def collapse(
    shape: Sequence[int], *operands: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge adjacent dimensions over which every operand's strides are contiguous.

    ``shape`` with the strides of each operand → the fewest dimensions that address the same
    elements in the same order; dimensions of size 1 vanish.
    """
    dims: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        joins = bool(dims) and all(
            m[-1] == steps[axis] * size for m, steps in zip(merged, operands, strict=True)
        )
        if joins:
            dims[-1] *= size
            for m, steps in zip(merged, operands, strict=True):
                m[-1] = steps[axis]
        else:
            dims.append(size)
            for m, steps in zip(merged, operands, strict=True):
                m.append(steps[axis])
    if not dims:
        return (1,), [(0,) for _ in operands]
    return tuple(dims), [tuple(m) for m in merged]


@dataclass(frozen=True)
class Access:
    """Element ``(i, j, …)`` of an operand is element ``offset + i * strides[0] + …`` of ``value``.

    ``value`` owns the memory (a graph's Value; opaque here).
    """

    value: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def dense(cls, value: Any, shape: Sequence[int] | None = None) -> Access:
        """The whole value, row-major, in ``shape`` (by default the value's shape)."""
        shape = tuple(value.shape if shape is None else shape)
        return cls(value, shape, strides(shape))

    # -- properties ------------------------------------------------------------------------------
    @property
    def data_type(self) -> str:
        return self.value.data_type

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether the elements are contiguous in row-major order from the value's first on."""
        if self.offset:
            return False
        dims, (steps,) = collapse(self.shape, self.strides)
        return dims == (1,) or (len(dims) == 1 and steps == (1,))

    @property
    def is_permutation(self) -> bool:
        """Whether the access has each element from the value's first on once, with positive
        strides."""
        pairs = sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        expected = 1
        for step, size in pairs:
            if step != expected:
                return False
            expected *= size
        return self.offset == 0

    @property
    def span(self) -> tuple[int, int]:
        """First and last + 1 element accessed."""
        return span(self.shape, self.strides, self.offset)

    # -- movements -------------------------------------------------------------------------------
    def permuted(self, permutation: Sequence[int]) -> Access:
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in permutation),
            strides=tuple(self.strides[axis] for axis in permutation),
        )

    def sliced(
        self, starts: Sequence[int], shape: Sequence[int], steps: Sequence[int] | None = None
    ) -> Access:
        """``shape`` elements from ``starts`` on, at distances of ``steps`` (1)."""
        steps = steps or (1,) * len(self.shape)
        return replace(
            self,
            shape=tuple(shape),
            strides=tuple(s * n for s, n in zip(self.strides, steps, strict=True)),
            offset=self.offset + sum(i * s for i, s in zip(starts, self.strides, strict=True)),
        )

    def broadcast(self, shape: Sequence[int]) -> Access:
        missing = len(shape) - len(self.shape)
        steps = (0,) * missing + tuple(
            s if d != 1 else 0 for s, d in zip(self.strides, self.shape, strict=True)
        )
        return replace(self, shape=tuple(shape), strides=steps)

    def reversed(self, axes: Sequence[int]) -> Access:
        last = sum((self.shape[a] - 1) * self.strides[a] for a in axes)
        return replace(
            self,
            strides=tuple(-s if a in axes else s for a, s in enumerate(self.strides)),
            offset=self.offset + last,
        )

    def tiled(self, repetitions: Sequence[int]) -> Access:
        """Each dimension as two: (repetition, element)."""
        pairs = zip(repetitions, self.shape, strict=True)
        return replace(
            self,
            shape=tuple(n for pair in pairs for n in pair),
            strides=tuple(n for step in self.strides for n in (0, step)),
        )


def compose(outer: Access, inner: Access) -> Access | None:
    """``outer`` reads a tensor that a movement fills, in row-major order, with the elements of
    ``inner``. Returns the access of ``inner.value`` with the same elements, or None if strides
    can't express it.

    Each dimension of ``outer`` has to stay within one dimension of ``inner`` (contiguous adjacent
    ones count as one); if it crosses into the next dimension, strides don't suffice.
    """
    dims, (source,) = collapse(inner.shape, inner.strides)
    steps = strides(dims)
    # The position of outer's first element, and the extent of outer in each dimension of inner.
    start = []
    remainder = outer.offset
    for step, size in zip(steps, dims, strict=True):
        start.append(remainder // step % size)
        remainder %= step
    if outer.offset < 0 or outer.offset >= math.prod(dims):
        return None
    low, high = [0] * len(dims), [0] * len(dims)
    result = []
    for size, stride in zip(outer.shape, outer.strides, strict=True):
        if size == 1 or stride == 0:
            result.append(0)
            continue
        reach = None
        for axis, (step, extent) in enumerate(zip(steps, dims, strict=True)):
            count, remainder = divmod(abs(stride), step)
            if remainder == 0 and count * (size - 1) < extent:
                reach = axis, count if stride > 0 else -count
                break
        if reach is None:
            return None
        axis, count = reach
        low[axis] += min(0, count * (size - 1))
        high[axis] += max(0, count * (size - 1))
        result.append(count * source[axis])
    if any(
        first + down < 0 or first + up >= size
        for first, down, up, size in zip(start, low, high, dims, strict=True)
    ):
        return None
    offset = inner.offset + sum(i * s for i, s in zip(start, source, strict=True))
    return Access(inner.value, outer.shape, tuple(result), offset)


def inverse(access: Access, target: Any) -> Access | None:
    """A movement fills ``target`` in row-major order with the elements of ``access``. Returns the
    access of ``target`` to which the elements of ``access.value``, in row-major order, are written.
    None unless the movement takes each element once.
    """
    if not access.is_permutation:
        return None
    steps = strides(access.shape)
    order = sorted(
        (axis for axis, n in enumerate(access.shape) if n > 1),
        key=lambda axis: -access.strides[axis],
    )
    return Access(
        target,
        tuple(access.shape[axis] for axis in order) or (1,),
        tuple(steps[axis] for axis in order) or (0,),
    )
