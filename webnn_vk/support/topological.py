"""Topological order of steps that run on two sides, a device and the CPU."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence


def alternating_runs(
    sides: Sequence[bool], readers: Sequence[Sequence[int]]
) -> Iterator[tuple[bool, list[int]]]:
    """Runs of steps on one side, as (side, numbers of the steps), in topological order with few
    changes of side: everything ready on one side runs before the other side continues.

    ``sides`` has the side of each step; ``readers`` has the steps that read its results, once for
    each result that they read. The side False begins if any of its steps is ready. Steps that
    become ready together keep the order of ``readers``.
    """
    waiting = Counter(reader for step in readers for reader in step)
    ready: dict[bool, deque[int]] = {False: deque(), True: deque()}
    for step, side in enumerate(sides):
        if not waiting[step]:
            ready[side].append(step)
    side = False
    while ready[False] or ready[True]:
        if not ready[side]:
            side = not side
        run: list[int] = []
        while ready[side]:
            step = ready[side].popleft()
            run.append(step)
            for reader in readers[step]:
                waiting[reader] -= 1
                if not waiting[reader]:
                    ready[sides[reader]].append(reader)
        yield side, run
