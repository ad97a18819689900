"""Pictures of the library's structure, drawn from the library itself: `docs/pictures/*.svg`.

They are as wide as a phone's screen, so that their text can be read there, and have a light and a
dark colour scheme. Written by `python -m scripts.generate pictures`.
"""

from __future__ import annotations

from pathlib import Path

from scripts.generate.pictures import compiler, modules, timeline
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "pictures"


def files() -> dict[Path, str]:
    """The files with their generated text."""
    return {
        FOLDER / "modules.svg": modules.picture(),
        FOLDER / "compiler.svg": compiler.picture(),
        FOLDER / "timeline.svg": timeline.picture(),
    }
