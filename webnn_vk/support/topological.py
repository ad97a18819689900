"""Nodes in topological order: which are needed, and the order of steps that run on two sides, a
device and the CPU."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

_Node = TypeVar("_Node")
_Result = TypeVar("_Result")


def needed_nodes(
    nodes: Sequence[_Node],
    results: Iterable[_Result],
    reads: Callable[[_Node], Iterable[_Result]],
    writes: Callable[[_Node], Iterable[_Result]],
) -> tuple[tuple[_Node, ...], set[_Result]]:
    """The nodes that ``results`` depend on, in their order, and all results that are needed."""
    needed = set(results)
    kept = []
    for node in reversed(nodes):
        if not needed.isdisjoint(writes(node)):
            needed.update(reads(node))
            kept.append(node)
    return tuple(reversed(kept)), needed


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
