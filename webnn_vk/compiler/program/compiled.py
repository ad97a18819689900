"""The graph that a program was compiled of, and where its constants are once it is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..ir import Graph, parse
from ..ir.literals import digest
from .program import CompiledText, Originals, Program


@dataclass(frozen=True)
class GraphText:
    """A program's graph as text, whose constants ``tensor(n)`` are those of ``originals``."""

    graph: CompiledText
    originals: Originals


def compiled_graph(program: Program) -> Graph | None:
    """The graph, whose constants have numbers into ``Program.originals`` for sources; None where
    the program doesn't know it. ValueError where its text is not what ``graph_text`` makes."""
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


def graph_text(program: Program) -> GraphText | None:
    """The graph as text, for files."""
    graph = program.compiled
    if graph is None:
        return None
    if isinstance(graph, CompiledText):
        return GraphText(graph, program.originals)
    arrays: dict[str, np.ndarray] = {}
    numbers: list[int] = []
    for value in graph.constants():
        if value.data is None:
            numbers.append(value.source)
        elif value.elements_text.startswith("data("):
            arrays[digest(value.descriptor, value.data)] = value.data
    text = CompiledText(str(graph), arrays)
    if not program.originals:
        return GraphText(text, tuple(((number, ""),) for number in numbers))
    return GraphText(text, tuple(program.originals[number] for number in numbers))


def constant_slots(program: Program) -> tuple[tuple[tuple[int, str], ...], ...]:
    """By the numbers that the graph gives its constants: the slots that hold each once the program
    is set up, with the names of their packings, "" for the elements as they are. Several packed
    slots may hold a part each; none, where nothing needs the constant."""
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
    """``Program.originals`` for a program whose constants are what lay in these slots."""
    return tuple(
        tuple((numbers[slot], packing) for slot, packing in place if slot in numbers)
        for place in constant_slots(program)
    )
