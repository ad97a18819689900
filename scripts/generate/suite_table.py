"""docs/javascript.md: what web-platform-tests' webnn/ gives in Node, from docs/javascript.json.

    python -m scripts.generate.suite_table RESULTS.json…

counts the results that `npm run wpt -- PATH --json RESULTS.json` wrote, and stores the counts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

COUNTS = ROOT / "docs" / "javascript.json"
PAGE = ROOT / "docs" / "javascript.md"
START, END = "<!-- suite -->", "<!-- /suite -->"
DEVICES = ("cpu", "gpu", "npu")


def device_of(variant: str) -> str:
    """The column of a variant: ``?op=add&device=gpu`` is in gpu's column."""
    return next((d for d in DEVICES if variant.endswith(d)), "other")


def count(results: list[dict[str, str]]) -> dict[str, Any]:
    """Passed and all subtests by file and variant, and what failed with the message."""
    counts: dict[str, dict[str, list[int]]] = {}
    failed = []
    for result in results:
        row = counts.setdefault(result["file"], {}).setdefault(result["variant"], [0, 0])
        row[0] += result["status"] == "PASS"
        row[1] += 1
        if result["status"] != "PASS":
            failed.append({key: result[key][:300] for key in sorted(result)})
    return {"counts": dict(sorted(counts.items())), "failed": failed}


def text() -> str:
    """The generated part of the page."""
    stored = json.loads(COUNTS.read_text(encoding="utf-8"))
    folders: dict[str, Counter[str]] = {}
    rows = []
    for file, variants in stored["counts"].items():
        cells: dict[str, list[int]] = {}
        for variant, (passed, all_of_them) in variants.items():
            cell = cells.setdefault(device_of(variant), [0, 0])
            cell[0] += passed
            cell[1] += all_of_them
        name = file.removeprefix("webnn/")
        total = folders.setdefault(name.split("/")[0] if "/" in name else name, Counter())
        for passed, all_of_them in cells.values():
            total.update(passed=passed, all=all_of_them)
        total["files"] += 1
        shown = [f"{c[0]}/{c[1]}" if (c := cells.get(d)) else "" for d in (*DEVICES, "other")]
        rows.append(f"| {name} | {' | '.join(shown)} |")
    lines = ["| | files | passed | subtests |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | {total['files']} | {total['passed']} | {total['all']} |"
        for name, total in folders.items()
    ]
    sums = sum(folders.values(), Counter())
    lines += [f"| all | {sums['files']} | {sums['passed']} | {sums['all']} |", ""]
    if stored["failed"]:
        lines += ["| fails | why |", "| --- | --- |"]
        lines += [
            f"| {f['file']}{f['variant']}: {f['subtest']} | {f['message']} |"
            for f in stored["failed"]
        ]
    else:
        lines.append("No subtest fails.")
    head = "| file | `?cpu` | `?gpu` | `?npu` | no variant |"
    return "\n".join([*lines, "", head, "| --- | --- | --- | --- | --- |", *rows])


def files() -> dict[Path, str]:
    """The page with its generated part updated."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    after = rest.split(END)[1]
    return {PAGE: f"{before}{START}\n{text()}\n{END}{after}"}


if __name__ == "__main__":
    found = [result for path in sys.argv[1:] for result in json.loads(Path(path).read_text())]
    COUNTS.write_text(json.dumps(count(found), indent=1, ensure_ascii=False) + "\n", "utf-8")
