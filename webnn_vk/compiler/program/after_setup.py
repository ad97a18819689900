"""A program after its set-up has run: prepacked data of kernels are constants in packed form."""

from __future__ import annotations

from dataclasses import replace

from webnn_vk.support.dataclass import dataclass

from ..types.data_types import MLOperandDescriptor
from .compiled_from import renumbered_originals
from .make_report import with_report
from .program import Program, SetupPart, Slot


@dataclass(frozen=True)
class AfterSetup:
    """``program`` needs no packing kernels. ``sources`` has, by the numbers of its constants, the
    slots of the original program that hold their bytes."""

    program: Program
    sources: tuple[int, ...]


def after_setup(program: Program) -> AfterSetup:
    """The program with the results of its set-up as constants, and without the constants that only
    the set-up reads."""
    slots = list(program.slots)
    slot_of = {s.index: n for n, s in enumerate(program.slots) if s.kind == "constant"}
    constants: list[MLOperandDescriptor] = []
    sources: list[int] = []
    numbers: dict[int, int] = {}

    def keep(constant: int, source: int) -> int:
        if constant not in numbers:
            numbers[constant] = len(constants)
            constants.append(program.constants[constant])
            sources.append(source)
        return numbers[constant]

    for constant in sorted(program.resident_constants() | program.host_constants()):
        keep(constant, slot_of[constant])
    setup: list[SetupPart] = []
    for part in program.setup:
        target = slots[part.target]
        if target.kind == "packed":
            slots[part.target] = Slot("constant", target.size, index=len(constants))
            # Slots are whole vectors.
            constants.append(MLOperandDescriptor("uint32", (target.size // 4,)))
            sources.append(part.target)
        else:
            # A copy of a constant for the CPU: read the bytes from the copy.
            setup.append(replace(part, constant=keep(part.constant, part.target)))
    for number, slot in enumerate(program.slots):
        if slot.kind == "scratch":
            slots[number] = _UNUSED
        elif slot.kind == "constant":
            new = numbers.get(slot.index)
            slots[number] = _UNUSED if new is None else replace(slot, index=new)
    originals = renumbered_originals(program, {slot: n for n, slot in enumerate(sources)})
    program = replace(
        program, slots=tuple(slots), setup=tuple(setup), constants=tuple(constants),
        originals=originals,
    )
    return AfterSetup(with_report(program, program.report.folded), tuple(sources))


# Replaces slots without references, so that the others keep their numbers.
_UNUSED = Slot("array", 0)
