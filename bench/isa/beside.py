"""`python -m bench isa --captured FOLDER`: the bound of each workload on a chip, ours and peers'.

The folder has a folder for each peer, with a folder for each workload, which contains the records
of a capturing driver (`capture`). Nothing is run: the peers' modules are compiled for the chip like
ours, and the same analysis (`bound`) judges both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from webnn_vk.tools import ToolError

from ..table import show
from . import result_of
from .bound import CHIPS

OURS = "webnn_vk"
NOTE = (
    "µs at least: what the kernels execute, each instruction as often as it runs, in vector unit, "
    "LDS or memory, whichever takes longest; in brackets with whole workgroups on each of the "
    "chip's {units} compute units. Share: of multiply-adds in the dispatch that takes longest. "
    "Ahead: the fastest peer's by ours. Peers' kernels are those that they chose for the device "
    "that they were captured on."
)


def rows_for(chip: str, folder: Path, timeout: float | None = None) -> list[dict[str, Any]]:
    """A mapping for each workload and engine, ours first: "workload", "who" (the engine), "bound"
    (`bound.Bound` as plain data; None where "error" gives the reason), "dispatches".

    The workloads are the ones in `workloads.WORKLOADS` that any peer in the folder has. Raises
    `NoDriver`, and `ToolError` for a chip without published data, a folder without captures, or a
    process that fails.
    """
    if chip not in CHIPS:
        raise ToolError(f"no published data of {chip} for a bound; known chips: {', '.join(CHIPS)}")
    if not any(folder.glob("*/*/log.txt")):
        raise ToolError(f"no captures in {folder}: PEER/WORKLOAD/log.txt is expected")
    return list(result_of("bench.isa.beside_child", chip, [str(folder.absolute())], timeout))


def main(chips: Sequence[str], folder: Path, json_file: Path | None) -> None:
    """Print a table for each chip, write the bounds as JSON."""
    everything = {}
    for chip in chips:
        everything[chip] = rows_for(chip, folder)
        titles, rows = table(everything[chip])
        show((f"{chip}: {titles[0]}", *titles[1:]), rows)
        print()
        for line in failures(everything[chip]):
            print(line)
        print(NOTE.format(units=CHIPS[chip].units))
    if json_file:
        small = {
            chip: [{k: v for k, v in row.items() if k != "dispatches"} for row in rows]
            for chip, rows in everything.items()
        }
        json_file.write_text(json.dumps(small, indent=1) + "\n", encoding="utf-8")


def table(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Titles and rows: a row for each workload, with a column for each engine."""
    peers = sorted({row["who"] for row in found} - {OURS})
    by_workload: dict[str, dict[str, dict[str, Any]]] = {}
    for row in found:
        by_workload.setdefault(row["workload"], {})[row["who"]] = row
    titles = ["workload", "ours", *peers, "our share", "limited by", "ahead"]
    rows = []
    for workload, of in by_workload.items():
        ours = of[OURS]["bound"]
        others = [of[peer]["bound"]["all"] for peer in peers if peer in of and of[peer]["bound"]]
        ahead = f"{min(others) / ours['all']:.2f}×" if ours and others else "-"
        rows.append([
            workload,
            *(_time(of.get(who)) for who in (OURS, *peers)),
            f"{ours['share']:.0%}" if ours and ours["share"] else "-",
            ours["port"] if ours else "-",
            ahead,
        ])
    return titles, rows


def _time(row: dict[str, Any] | None) -> str:
    if row is None or row["bound"] is None:
        return "-" if row is None else "?"
    return f"{row['bound']['all']:.2f} ({row['bound']['whole']:.1f})"


def failures(found: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each ``?`` of the table."""
    return [
        f"  ? {row['who']}, {row['workload']}: {row['error']}" for row in found if row["error"]
    ]
