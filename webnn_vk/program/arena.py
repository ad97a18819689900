"""Offsets for intermediates by exact liveness: best fit over the program's fixed order."""

from __future__ import annotations

from ..integers import round_up

ALIGNMENT = 256


class ArenaPlanner:
    """Hands out (block, offset) for sizes in bytes; what is freed is reused at once.

    A block never exceeds ``block_limit``; one that is full is followed by another.
    """

    def __init__(self, block_limit: int) -> None:
        self.block_limit = block_limit
        self.sizes: list[int] = []
        # Free ranges (offset, size) of each block below its size, in order of offset.
        self._free: list[list[tuple[int, int]]] = []

    def allocate(self, size: int) -> tuple[int, int]:
        size = round_up(size, ALIGNMENT)
        if size > self.block_limit:
            raise MemoryError(f"{size} bytes exceed the device's allocation of {self.block_limit}")
        best = min(
            (
                (length, block, i)
                for block, ranges in enumerate(self._free)
                for i, (_, length) in enumerate(ranges)
                if length >= size
            ),
            default=None,
        )
        if best is not None:
            length, block, i = best
            offset, _ = self._free[block].pop(i)
            if length > size:
                self._free[block].insert(i, (offset + size, length - size))
            return block, offset
        for block, end in enumerate(self.sizes):
            # Grow a block, using the free range at its end if there is one.
            ranges = self._free[block]
            tail = bool(ranges) and sum(ranges[-1]) == end
            start = ranges[-1][0] if tail else end
            if start + size <= self.block_limit:
                if tail:
                    ranges.pop()
                self.sizes[block] = start + size
                return block, start
        self.sizes.append(size)
        self._free.append([])
        return len(self.sizes) - 1, 0

    def free(self, block: int, offset: int, size: int) -> None:
        size = round_up(size, ALIGNMENT)
        ranges = self._free[block]
        ranges.append((offset, size))
        ranges.sort()
        merged: list[tuple[int, int]] = []
        for start, length in ranges:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self._free[block] = merged
