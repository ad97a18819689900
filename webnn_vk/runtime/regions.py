"""Cuts a CPU segment into regions: which of its steps an engine runs together, and in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from webnn_vk.compiler.program import CopyStep, CpuStep, CpuTensor, HostSegment
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.topological import alternating_runs

Step = CpuStep | CopyStep

#: Operators that only change the shape: for them alone an engine isn't worth its call.
VIEWS = frozenset(("reshape", "identity"))


@dataclass(frozen=True)
class CpuRegion:
    """Consecutive steps, on the engine or in NumPy. ``reads``: tensors made before them.
    ``writes``: tensors that later steps read or that have their own memory. ``dead``: slots whose
    arrays are not read after the region."""

    on_engine: bool
    steps: tuple[Step, ...]
    reads: tuple[CpuTensor, ...] = ()
    writes: tuple[CpuTensor, ...] = ()
    dead: tuple[int, ...] = ()


def cut(
    segment: HostSegment, on_engine: Callable[[CpuStep], bool], has_memory: Callable[[int], bool]
) -> tuple[CpuRegion, ...]:
    """The segment's regions. ``on_engine`` says which steps the engine can take, ``has_memory``
    which slots are more than an array between CPU steps. Steps are ordered to change sides rarely;
    regions of views only go to NumPy."""
    ends = frozenset(slot for s in segment.steps if isinstance(s, CpuStep) for slot in s.dead)
    sides = [isinstance(s, CpuStep) and on_engine(s) for s in segment.steps]
    runs = _runs(segment.steps, sides)
    parts = []
    for number, (side, steps) in enumerate(runs):
        worth = any(isinstance(s, CpuStep) and s.operator not in VIEWS for s in steps)
        made = {t.slot: t for s in steps for t in _results(s)}
        read = {t.slot: t for s in steps for t in _operands(s) if t.slot not in made}
        behind = {slot for _, later in runs[number + 1 :] for s in later for slot in _read(s)}
        touched = {slot for s in steps for slot in (*_read(s), *_written(s))}
        writes = [
            t for slot, t in made.items()
            if slot in behind or slot not in ends or has_memory(slot)
        ]
        parts.append(CpuRegion(
            side and worth, tuple(steps), tuple(read.values()), tuple(writes),
            tuple(sorted(slot for slot in touched if slot in ends and slot not in behind)),
        ))
    return tuple(parts)


def _operands(step: Step) -> Iterable[CpuTensor]:
    return step.operands.values() if isinstance(step, CpuStep) else ()


def _results(step: Step) -> Iterable[CpuTensor]:
    return step.results if isinstance(step, CpuStep) else ()


def _read(step: Step) -> list[int]:
    if isinstance(step, CopyStep):
        return [step.source.slot]
    return [t.slot for t in step.operands.values()]


def _written(step: Step) -> list[int]:
    return [step.target.slot] if isinstance(step, CopyStep) else [t.slot for t in step.results]


def _runs(steps: Sequence[Step], sides: Sequence[bool]) -> list[tuple[bool, list[Step]]]:
    """The steps by side: all ready steps of one side, then of the other; in the given order
    where there is a choice."""
    maker = {slot: i for i, step in enumerate(steps) for slot in _written(step)}
    readers: list[list[int]] = [[] for _ in steps]
    for i, step in enumerate(steps):
        for j in {maker[slot] for slot in _read(step) if maker.get(slot, i) != i}:
            readers[j].append(i)
    # NumPy first: steps ready at the start need nothing from the engine.
    runs = alternating_runs(sides, readers)
    return [(side, [steps[i] for i in run]) for side, run in runs]
