"""The graph that a program was compiled from, and the slots of its constants after set-up.

In a program's file the graph is the JSON form (`json_forms`) of a ``StoredGraph``. It is read when
it is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..ir import Graph
from .json_forms import checked, form_of
from .program import Originals, Program
from .stored_graph import StoredGraph, graph_of, stored


class _Inline:
    """Writes and reads elements as hexadecimal digits in the text itself. It holds small constants
    only: the others are the program's."""

    sizes = ()

    def bytes(self, data: memoryview) -> str:
        return data.hex()

    def view(self, text: Any) -> bytes:
        return bytes.fromhex(checked(text, str))


def graph_text(program: Program) -> tuple[str, Originals] | None:
    """The graph for files, with ``Program.originals``; None if the program doesn't have it."""
    graph = program.compiled
    if graph is None:
        return None
    every = range(len(program.constants))
    originals = program.originals or tuple(((number, ""),) for number in every)
    if isinstance(graph, str):
        return graph, originals
    return json.dumps(form_of(StoredGraph).write(_Inline(), stored(graph))), originals


def compiled_graph(program: Program) -> Graph | None:
    """The graph, whose constants have numbers into ``Program.originals`` as sources; None if the
    program doesn't have it. ValueError if its text was not written by ``graph_text``."""
    text = program.compiled
    if not isinstance(text, str):
        return text
    try:
        graph = graph_of(form_of(StoredGraph).read(_Inline(), json.loads(text)))
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    for mine, its in ((graph.inputs, program.inputs), (graph.outputs, program.outputs)):
        if {name: value.descriptor for name, value in mine.items()} != dict(its):
            raise ValueError("it has other inputs or outputs than the program")
    count = len(program.originals)
    for value in graph.constants():
        if value.data is None and value.source not in range(count):
            raise ValueError(f"the program has {count} constants, not {value.source}")
    return graph


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
