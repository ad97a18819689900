"""The table of chips in docs/devices.md, from docs/chips.json:

    python -m bench chips --json docs/chips.json
    python -m bench chips --graph pack --json docs/chips.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "devices.md"
FIGURES = ROOT / "docs" / "chips.json"
MODELS, ARCHIVE = "models", "pack"


def text() -> str:
    """The table: a row a chip, with the figures of the models and of the shader archive."""
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    archive = {row["chip"]: row for row in found if row["graphs"] == ARCHIVE}
    lines = [
        "| chip | `--chip` | driver | models: pipelines | spilling | refused | longest compilation "
        "| least occupancy | archive: pipelines | spilling | refused | date |",
        f"|{' --- |' * 12}",
    ]
    for row in found:
        if row["graphs"] != MODELS:
            continue
        whole = archive.get(row["chip"], {})
        cells = [
            row["product"], f"`{row['chip']}`", row["driver"],
            *(row[key] for key in ("pipelines", "spilling", "refused", "longest", "occupancy")),
            *(whole.get(key, "–") for key in ("pipelines", "spilling", "refused")),
            max(row["date"], whole.get("date", "")),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """The page with its table updated."""
    page = PAGE.read_text(encoding="utf-8")
    pattern = r"(<!-- chips -->\n).*?(<!-- end of chips -->)"
    made = re.sub(pattern, lambda found: f"{found[1]}{text()}\n{found[2]}", page, flags=re.DOTALL)
    return {PAGE: made}
