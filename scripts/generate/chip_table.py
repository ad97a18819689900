"""The tables of chips in docs/devices.md, from docs/chips.json and docs/estimates.json:

    python -m bench chips --json docs/chips.json
    python -m bench chips --graph pack --json docs/chips.json
    python -m bench estimates --json docs/estimates.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "devices.md"
FIGURES = ROOT / "docs" / "chips.json"
ESTIMATES = ROOT / "docs" / "estimates.json"
MODELS, ARCHIVE = "models", "pack"


def text() -> str:
    """The table: a row a chip, with the figures of the models and of the shader archive."""
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    archive = {row["chip"]: row for row in found if row["graphs"] == ARCHIVE}
    lines = [
        "| chip | `--chip` | driver | models: pipelines | spilling | refused | longest compilation "
        "| least occupancy | archive: pipelines | spilling | refused | longest compilation "
        "| date |",
        f"|{' --- |' * 13}",
    ]
    for row in found:
        if row["graphs"] != MODELS:
            continue
        whole = archive.get(row["chip"], {})
        cells = [
            row["product"], f"`{row['chip']}`", row["driver"],
            *(row[key] for key in ("pipelines", "spilling", "refused", "longest", "occupancy")),
            *(whole.get(key, "–") for key in ("pipelines", "spilling", "refused", "longest")),
            max(row["date"], whole.get("date", "")),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def estimates() -> str:
    """The table of estimated cycles: a row for each chip and family of kernels."""
    lines = [
        "| chip | kernels | problems | cycles before | now | best | now over best | date |",
        f"|{' --- |' * 8}",
    ]
    for row in json.loads(ESTIMATES.read_text(encoding="utf-8")):
        cycles = (f"{row[name] / 1e6:,.2f} M" for name in ("before", "chosen", "best"))
        cells = [
            f"`{row['chip']}`", row["family"], str(row["problems"]), *cycles,
            f"{row['ratio']:.2f}", row["date"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """The page with its tables updated."""
    page = PAGE.read_text(encoding="utf-8")
    for name, table in (("chips", text()), ("estimates", estimates())):
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        page, count = re.subn(
            pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", page,
            flags=re.DOTALL,
        )
        assert count == 1, name
    return {PAGE: page}
