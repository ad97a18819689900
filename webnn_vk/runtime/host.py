"""Runs a program's CPU steps with the operators' NumPy references."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from webnn_vk.compiler.program import CopyStep, CpuStep, HostSegment, Range
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.support import forks

#: Results of CPU steps by slot, for later CPU steps.
Arrays = dict[int, np.ndarray]
#: The memory of a slot as flat bytes; None for a slot that only CPU steps use.
Memory = Callable[[int], np.ndarray | None]


def run_host_segment(segment: HostSegment, arrays: Arrays, memory: Memory) -> None:
    """Run the segment's steps. ``arrays`` keeps values that later CPU steps read; values with other
    readers are also written to ``memory``."""
    for step in segment.steps:
        run_steps((step,), arrays, memory)
        for slot in step.dead if isinstance(step, CpuStep) else ():
            arrays.pop(slot, None)


def run_steps(steps: Iterable[CpuStep | CopyStep], arrays: Arrays, memory: Memory) -> None:
    """Run some steps, as ``run_host_segment`` does. Their results stay in ``arrays``."""
    for step in steps:
        if isinstance(step, CopyStep):
            _part(memory, step.target)[...] = _part(memory, step.source)
        else:
            _run(step, arrays, memory)


def _run(step: CpuStep, arrays: Arrays, memory: Memory) -> None:
    with forks.undisturbed():
        from webnn_vk.compiler.ops import ALL_OPERATORS
        from webnn_vk.compiler.ops.arguments import Operands

    operands = {
        name: view_of(arrays.get(t.slot), memory, t.slot, t.descriptor)
        for name, t in step.operands.items()
    }
    operator = ALL_OPERATORS[step.operator]
    given = {
        p.name: _sequence(operands, p.name) if p.argument is Operands else operands.get(p.name)
        for p in operator.operands
    }
    results = operator.evaluate([t.descriptor for t in step.results], given, step.arguments)
    for target, array in zip(step.results, results, strict=True):
        arrays[target.slot] = array
        place = memory(target.slot)
        if place is not None:
            described = target.descriptor
            place = place[: described.byte_length].view(described.numpy_dtype)
            place.reshape(described.shape)[...] = array


def view_of(
    array: np.ndarray | None, memory: Memory, slot: int, described: MLOperandDescriptor
) -> np.ndarray:
    """A slot's elements: its array, or those in its memory."""
    if array is None:
        array = memory(slot)[: described.byte_length].view(described.numpy_dtype)
    return array.reshape(described.shape)


def _sequence(operands: dict[str, np.ndarray], name: str) -> list[np.ndarray]:
    keys = (f"{name}[{i}]" for i in range(len(operands)))
    return [operands[key] for key in keys if key in operands]


def _part(memory: Memory, place: Range) -> np.ndarray:
    return memory(place.slot)[place.offset : place.offset + place.size]
