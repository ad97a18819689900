"""Donated inputs: an output takes over their memory.

Steps read such an input from the slot of its output, which holds the input's elements when the
program begins. This module proves that each element is read before it is overwritten, and copies
the input first where that can't be proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .program import CopyStep, CpuStep, DeviceSegment, DispatchStep, Program


def overwritten_early(
    steps: Sequence[DispatchStep | CopyStep | CpuStep], in_place: Sequence[bool], past: int,
    present: int,
) -> bool:
    """Whether a step may read an element of the slot ``past`` after one of the slot ``present``,
    in the same memory, was written. ``in_place``: steps that read only what they write, before."""
    written = False
    for step, safe in zip(steps, in_place, strict=True):
        if isinstance(step, CpuStep):
            continue  # works on copies in host memory
        accesses = [*step.accesses()]
        writes = any(place.slot == present and write for place, _, write in accesses)
        if (written or (writes and not safe)) and any(
            place.slot == past and read for place, read, _ in accesses
        ):
            return True
        written = written or writes
    return False


def donation_notes(program: Program) -> Iterator[str]:
    """A line for each donated input: whether its output is written in place."""
    kept = copies_kept(program)
    for past, present in program.donated.items():
        yield f"{present} takes over {past}: {kept.get(past, 'written in place')}"


def copies_kept(program: Program) -> dict[str, str]:
    """The donated inputs of which a copy is kept, with the reason."""
    if not any(isinstance(s, DeviceSegment) for s in program.segments):
        return {
            past: f"a copy of {past} is kept on the CPU device"
            for past in program.donated if program.inputs[past].byte_length
        }
    return {
        past: "a copy is kept, since elements are read later"
        for past, present in program.donated.items()
        if any(_is_kept(program, step, present) for step in program.device_steps)
    }


def _is_kept(program: Program, step: object, present: str) -> bool:
    if not isinstance(step, CopyStep):
        return False
    source, target = program.slots[step.source.slot], program.slots[step.target.slot]
    return (source.kind, source.name, target.kind) == ("output", present, "arena")

