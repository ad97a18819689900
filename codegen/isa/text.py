"""The result of a chip's compiler as text: the driver's statistics and a table of loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.support.formatting import aligned

from . import Compiled, IsaError
from .listing import Block, Kind, Mix, fma_share, loops, mix, parse

#: The most important statistics of the driver, with their titles.
STATISTICS = {
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


def statistics(compiled: Compiled) -> list[tuple[str, str]]:
    """Title and value of each of `STATISTICS` that the driver reports; of all statistics where it
    is not RADV. `IsaError` where compiling failed."""
    if compiled.error:
        raise IsaError(compiled.error)
    found = compiled.statistics
    titles = STATISTICS if "VGPRs" in found else {name: name for name in found}
    return [(title, str(found[name])) for name, title in titles.items() if name in found]


def parts(assembly: str) -> list[tuple[str, Mix]]:
    """The whole kernel, and each loop, named by its first and last block. Instructions are counted
    as listed, not as executed. Empty for the ISA of other makers than AMD."""
    if "s_endpgm" not in assembly:
        return []
    blocks = parse(assembly)
    found = [("all", mix(blocks))]
    return found + [(_title(loop), mix(loop)) for loop in loops(blocks)]


def _title(loop: Sequence[Block]) -> str:
    first, last = loop[0].number, loop[-1].number
    return f"loop BB{first}" if first == last else f"loop BB{first} to BB{last}"


def row(title: str, found: Mix) -> tuple[str, ...]:
    """A row of `TITLES`. By bytes, "16×4" means four instructions of 16 bytes per lane. Share: the
    multiply-adds' share of instructions of vector unit, shared memory and memory."""
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
    """The statistics and the table of loops as text. `IsaError` where the compiler failed."""
    lines = [f"{value:>8} {title}" for title, value in statistics(compiled)]
    found = [row(*part) for part in parts(compiled.assembly)]
    return "\n".join([*lines, *(["", *aligned([TITLES, *found], numbers=True)] if found else [])])
