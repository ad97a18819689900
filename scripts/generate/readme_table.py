"""The output of `webnn-vk operators` in the README."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.paths import ROOT
from webnn_vk.tools.operators import table

README = ROOT / "README.md"
MARKS = r"(<!-- operators -->\n).*?(<!-- /operators -->)"


def files() -> dict[Path, str]:
    text = README.read_text(encoding="utf-8")
    text, count = re.subn(
        MARKS, lambda marks: f"{marks[1]}{table()}\n{marks[2]}", text, flags=re.DOTALL
    )
    assert count == 1, "the marks of the table are gone from the README"
    return {README: text}
