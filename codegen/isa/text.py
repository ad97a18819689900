"""What a chip's compiler made of a module, for people: the driver's figures, a table of loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import Compiled, IsaError
from .listing import Block, Kind, Mix, fma_share, loops, mix, parse

#: The driver's statistics that say most, with their titles here.
FIGURES = {
    "VGPRs": "vector registers", "SGPRs": "scalar registers",
    "Spilled VGPRs": "vector registers spilled", "Spilled SGPRs": "scalar registers spilled",
    "LDS size": "bytes of shared memory", "Scratch size": "bytes of scratch memory",
    "Subgroups per SIMD": "waves per SIMD", "Code size": "bytes of code",
    "Instructions": "instructions",
}
TITLES = (
    "part", "instr", "FMA", "vector", "LDS by bytes", "loads by bytes", "stores by bytes", "scalar",
    "waits", "FMAs a lane", "share",
)


def figures(compiled: Compiled) -> list[tuple[str, str]]:
    """Title and value of each of `FIGURES` that the driver gave. `IsaError` where it compiled
    nothing."""
    if compiled.error:
        raise IsaError(compiled.error)
    return [
        (title, str(compiled.statistics[name]))
        for name, title in FIGURES.items() if name in compiled.statistics
    ]


def parts(assembly: str) -> list[tuple[str, Mix]]:
    """The whole kernel, and each loop by the blocks between which it runs. Instructions are counted
    as they stand in the listing, not as often as they run."""
    blocks = parse(assembly)
    found = [("all", mix(blocks))]
    return found + [(_title(loop), mix(loop)) for loop in loops(blocks)]


def _title(loop: Sequence[Block]) -> str:
    first, last = loop[0].number, loop[-1].number
    return f"loop BB{first}" if first == last else f"loop BB{first} to BB{last}"


def row(title: str, found: Mix) -> tuple[str, ...]:
    """A row of `TITLES`. "16×4" among those by bytes: four instructions of 16 bytes a lane; share:
    of the multiply-adds in what the vector unit, shared memory and memory issue."""
    kinds = found.kinds
    return (
        title, str(found.instructions), str(kinds[Kind.FMA]), str(kinds[Kind.VECTOR]),
        _widths(found.lds), _widths(found.loads), _widths(found.stores),
        str(kinds[Kind.SCALAR] + kinds[Kind.SCALAR_MEMORY] + kinds[Kind.BRANCH]),
        str(kinds[Kind.WAIT]), str(found.multiply_adds), f"{fma_share(found):.0%}",
    )


def _widths(counts: dict[int, int]) -> str:
    return " ".join(f"{width}×{count}" for width, count in sorted(counts.items())) or "-"


def data(compiled: Compiled) -> dict[str, Any]:
    """For JSON."""
    return {
        "statistics": compiled.statistics,
        "parts": [dict(zip(TITLES, row(*part), strict=True)) for part in parts(compiled.assembly)],
    }


def report(compiled: Compiled) -> str:
    """The figures and the table as text. `IsaError` where the compiler failed."""
    lines = [f"{value:>8} {title}" for title, value in figures(compiled)]
    rows = [TITLES, *(row(*part) for part in parts(compiled.assembly))]
    return "\n".join([*lines, "", *_aligned(rows)])


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join([cells[0].ljust(widths[0]), *(
            cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)
        )])
        for cells in zip(*columns, strict=True)
    ]
