"""`python -m bench isa`: a table of our kernels as compiled by AMD's compiler."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..table import show
from . import Judgement, judge

TITLES = (
    "kernel", "VGPR", "SGPR", "LDS", "spills", "waves", "instr", "FMA", "vector", "scalar",
    "LDS by bytes", "loads by bytes", "stores by bytes", "loop's FMAs", "share",
)


def main(chips: Sequence[str], parts: Sequence[str], json_file: Path | None, isa: Path | None
         ) -> None:
    """Print a table for each chip; write everything as JSON, and the ISA into folders by chip."""
    judgements = []
    for chip in chips:
        judgement = judge(chip, parts, isa=isa / chip if isa else None)
        judgements.append(judgement)
        show(TITLES, rows(judgement))
        print()
        for line in judgement.lines():
            print(line)
    if json_file:
        everything = [dataclasses.asdict(judgement) for judgement in judgements]
        json_file.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def rows(judgement: Judgement) -> list[list[str]]:
    """A row of `TITLES` for each kernel. Instructions are counted as listed, not as executed. "LDS
    by bytes" 4×11: eleven LDS instructions of 4 bytes per lane. The last two columns are for the
    loop with the most multiply-adds: their number, and their share of the instructions of vector
    unit, LDS and memory."""
    return [_row(kernel) for kernel in judgement.kernels]


def _row(kernel: dict[str, Any]) -> list[str]:
    name = f"{kernel['part']}: {kernel['name']} ({kernel['use']})"
    if kernel["error"]:
        return [name, *["-"] * (len(TITLES) - 1)]
    found, mix = kernel["statistics"], kernel["mix"]
    kinds, loop = mix["kinds"], mix["loop"]
    return [
        name,
        str(found["VGPRs"]),
        str(found["SGPRs"]),
        str(found["LDS size"]),
        f"{found['Spilled VGPRs']}+{found['Spilled SGPRs']}",
        str(found["Subgroups per SIMD"]),
        str(found["Instructions"]),
        str(kinds["fma"]),
        str(kinds["vector"]),
        str(kinds["scalar"] + kinds["scalar_memory"]),
        *(_widths(mix[what]) for what in ("lds", "loads", "stores")),
        *((str(loop["multiply_adds"]), f"{loop['fma_share']:.0%}") if loop else ("-", "-")),
    ]


def _widths(counts: dict[str, int]) -> str:
    return " ".join(f"{width}×{count}" for width, count in counts.items()) or "-"
