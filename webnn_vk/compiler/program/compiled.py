"""The graph that a program was compiled from, and the slots of its constants after set-up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..ir import Graph, parse
from ..ir.literals import digest
from .program import CompiledText, Originals, Program


def compiled_graph(program: Program) -> Graph | None:
    """The graph, whose constants have numbers into ``Program.originals`` as sources; None if the
    program doesn't have it. ValueError if its text was not written by ``graph_text``."""
    text = program.compiled
    if not isinstance(text, CompiledText):
        return text
    count = len(program.originals)
    sources = {f"tensor({number})": number for number in range(count)}
    graph = parse(text.text, {**sources, **text.arrays})
    for mine, its in ((graph.inputs, program.inputs), (graph.outputs, program.outputs)):
        if {name: value.descriptor for name, value in mine.items()} != dict(its):
            raise ValueError("it has other inputs or outputs than the program")
    for value in graph.constants():
        if value.data is None and value.source not in range(count):
            raise ValueError(f"the program has {count} constants, not {value.source}")
    return graph


def graph_text(program: Program) -> tuple[CompiledText, Originals] | None:
    """The graph as text, for files. Its constants ``tensor(n)`` are numbers into the originals."""
    graph = program.compiled
    if graph is None:
        return None
    if isinstance(graph, CompiledText):
        return graph, program.originals
    arrays: dict[str, np.ndarray] = {}
    numbers: list[int] = []
    for value in graph.constants():
        if value.data is None:
            numbers.append(value.source)
        elif value.elements_text.startswith("data("):
            arrays[digest(value.descriptor, value.data)] = value.data
    text = CompiledText(str(graph), arrays)
    if not program.originals:
        return text, tuple(((number, ""),) for number in numbers)
    return text, tuple(program.originals[number] for number in numbers)


def constant_slots(program: Program) -> tuple[tuple[tuple[int, str], ...], ...]:
    """The slots that hold each constant of the graph after set-up, by the graph's numbers, with the
    names of their packings ("" for unchanged elements). Several packed slots may each hold a part;
    a constant that nothing needs has no slot."""
    slot_of = {slot.index: n for n, slot in enumerate(program.slots) if slot.kind == "constant"}
    read = program.resident_constants() | program.host_constants()
    packed: dict[int, list[tuple[int, str]]] = {}
    copied: dict[int, int] = {}
    for part in program.setup:
        if program.slots[part.target].kind == "host":
            copied[part.constant] = part.target
        elif part.packing:
            packed.setdefault(part.constant, []).append((part.target, part.packing))

    def of_constant(number: int) -> tuple[tuple[int, str], ...]:
        if number in read:
            return ((slot_of[number], ""),)
        if number in copied:
            return ((copied[number], ""),)
        return tuple(packed.get(number, ()))

    if not program.originals:
        return tuple(map(of_constant, range(len(program.constants))))
    return tuple(
        tuple(
            (slot, packing or form)
            for number, packing in original for slot, form in of_constant(number)
        )
        for original in program.originals
    )


def renumbered_originals(program: Program, numbers: Mapping[int, int]) -> Originals:
    """``Program.originals`` for a program whose constants are the contents of these slots."""
    return tuple(
        tuple((numbers[slot], packing) for slot, packing in place if slot in numbers)
        for place in constant_slots(program)
    )
