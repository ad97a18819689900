"""Offsets for intermediates by exact liveness: best fit over the program's fixed order."""

from __future__ import annotations

from bisect import bisect_left, insort

from ..driver.resources import ALIGNMENT
from ..integers import round_up


class ArenaPlanner:
    """Hands out (block, offset) for sizes in bytes; what is freed is reused at once.

    A block never exceeds ``block_limit``; one that is full is followed by another. A call looks at
    the ranges that it changes alone, however many are free.
    """

    def __init__(self, block_limit: int) -> None:
        self.block_limit = block_limit
        self.sizes: list[int] = []
        # Free ranges as (length, block, offset), the smallest first; and for each block where they
        # start and where they end.
        self._free: list[tuple[int, int, int]] = []
        self._starts: list[dict[int, int]] = []
        self._ends: list[dict[int, int]] = []

    def allocate(self, size: int) -> tuple[int, int]:
        """The place of so many bytes: the smallest free range that holds them, else a block grows,
        by less where it ends in a free range. MemoryError for more than a block may have."""
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
        """Bytes that ``allocate`` gave may be had again; neighbouring free ranges become one."""
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
    """Hands out whole blocks for sizes in bytes: nothing shares one with another at the same time.

    What is freed is reused: the smallest free block that holds a size, else the largest one grows.
    """

    def __init__(self, block_limit: int) -> None:
        self.block_limit = block_limit
        self.sizes: list[int] = []
        self._free: set[int] = set()

    def allocate(self, size: int) -> tuple[int, int]:
        """A block for so many bytes, and 0. MemoryError for more than a block may have."""
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
        """The block may be had again."""
        self._free.add(block)
