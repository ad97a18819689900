"""Offsets for intermediates by exact liveness: best fit over the program's fixed order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from webnn_vk.driver.resources import ALIGNMENT
from webnn_vk.support.integers import round_up


class Lifetime(NamedTuple):
    """Bytes that are needed from the time ``first`` to the time ``last``, inclusive."""

    size: int
    first: int
    last: int


def liveness_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that are needed at one time: the least that any arena takes."""
    changes = [(life.first, round_up(life.size, ALIGNMENT)) for life in lifetimes]
    changes += [(life.last + 1, -round_up(life.size, ALIGNMENT)) for life in lifetimes]
    most = now = 0
    for _, size in sorted(changes):
        now += size
        most = max(most, now)
    return most


def placed_within(lifetimes: Sequence[Lifetime], wanted: int, work: int) -> tuple[list[int], int]:
    """An offset for each lifetime, and the total bytes: the best of several plans, or the first
    that takes at most the ``wanted`` bytes. ``work``: the number of pairs of lifetimes to compare.
    At least one plan is made.

    A plan places the largest first, each in the tightest gap among those that are needed at the
    same time. The first that reaches beyond the wanted bytes is placed first in the next plan.
    """
    order = sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].size, lifetimes[n].first))
    best: list[int] = []
    least = -1
    for _ in range(max(1, work // max(1, len(lifetimes) ** 2))):
        offsets, total, beyond = _placed_in_order(lifetimes, order, wanted)
        if least < 0 or total < least:
            best, least = offsets, total
        if beyond < 0:
            break
        order.remove(beyond)
        order.insert(0, beyond)
    return best, least


def _placed_in_order(
    lifetimes: Sequence[Lifetime], order: Sequence[int], wanted: int
) -> tuple[list[int], int, int]:
    """An offset for each, the bytes of all, and the first that reaches beyond the ``wanted`` bytes,
    -1 if none does."""
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, Lifetime]] = []
    total, beyond = 0, -1
    for number in order:
        life = lifetimes[number]
        size = round_up(life.size, ALIGNMENT)
        end, best, gap = 0, -1, 0
        for start, stop, other in placed:
            if other.first > life.last or life.first > other.last:
                continue
            if start - end >= size and (best < 0 or start - end < gap):
                best, gap = end, start - end
            if stop > end:
                end = stop
        offsets[number] = offset = end if best < 0 else best
        insort(placed, (offset, offset + size, life))
        total = max(total, offset + size)
        if beyond < 0 and offset + size > wanted:
            beyond = number
    return offsets, total, beyond


class ArenaPlanner:
    """Hands out (block, offset) for sizes in bytes; freed memory is reused at once.

    A block never exceeds ``block_limit``; when one is full, another one follows. A call examines
    only the ranges that it changes, however many are free.
    """

    def __init__(self, block_limit: int) -> None:
        self.block_limit = block_limit
        self.sizes: list[int] = []
        # Free ranges as (length, block, offset), the smallest first; and for each block the ends of
        # free ranges by their starts, and the starts by their ends.
        self._free: list[tuple[int, int, int]] = []
        self._starts: list[dict[int, int]] = []
        self._ends: list[dict[int, int]] = []

    def allocate(self, size: int) -> tuple[int, int]:
        """A place for ``size`` bytes: the smallest free range that holds them, or else a block
        grows (by less if it ends in a free range). MemoryError beyond the limit of a block."""
        size = round_up(size, ALIGNMENT)
        if size > self.block_limit:
            raise MemoryError(f"{size} bytes exceed the device's allocation of {self.block_limit}")
        best = bisect_left(self._free, (size,))
        if best < len(self._free):
            length, block, offset = self._free[best]
            self._take(length, block, offset)
            if length > size:
                self._give(length - size, block, offset + size)
            return block, offset
        for block, end in enumerate(self.sizes):
            start = self._ends[block].get(end, end)
            if start + size <= self.block_limit:
                if start < end:
                    self._take(end - start, block, start)
                self.sizes[block] = start + size
                return block, start
        self.sizes.append(size)
        self._starts.append({})
        self._ends.append({})
        return len(self.sizes) - 1, 0

    def free(self, block: int, offset: int, size: int) -> None:
        """Free bytes that ``allocate`` returned; adjacent free ranges are merged."""
        start, end = offset, offset + round_up(size, ALIGNMENT)
        before = self._ends[block].get(start)
        if before is not None:
            self._take(start - before, block, before)
            start = before
        after = self._starts[block].get(end)
        if after is not None:
            self._take(after - end, block, end)
            end = after
        self._give(end - start, block, start)

    def _take(self, length: int, block: int, offset: int) -> None:
        del self._free[bisect_left(self._free, (length, block, offset))]
        del self._starts[block][offset], self._ends[block][offset + length]

    def _give(self, length: int, block: int, offset: int) -> None:
        insort(self._free, (length, block, offset))
        self._starts[block][offset] = offset + length
        self._ends[block][offset + length] = offset


class WholeBlocks:
    """Hands out whole blocks for sizes in bytes, which are never shared at the same time.

    Freed blocks are reused: the smallest that holds a size, or else the largest one grows.
    """

    def __init__(self, block_limit: int) -> None:
        self.block_limit = block_limit
        self.sizes: list[int] = []
        self._free: set[int] = set()

    def allocate(self, size: int) -> tuple[int, int]:
        """A block for ``size`` bytes, and the offset 0. MemoryError beyond the limit of a block."""
        size = round_up(size, ALIGNMENT)
        if size > self.block_limit:
            raise MemoryError(f"{size} bytes exceed the device's allocation of {self.block_limit}")
        fitting = [block for block in self._free if self.sizes[block] >= size]
        if fitting:
            block = min(fitting, key=lambda block: (self.sizes[block], block))
        elif self._free:
            block = max(self._free, key=lambda block: (self.sizes[block], -block))
            self.sizes[block] = size
        else:
            block = len(self.sizes)
            self.sizes.append(size)
        self._free.discard(block)
        return block, 0

    def free(self, block: int, offset: int, size: int) -> None:
        """Free a block."""
        self._free.add(block)
