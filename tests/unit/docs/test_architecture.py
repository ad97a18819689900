"""docs/architecture.md describes each pass."""

import re

from tests.support.paths import ROOT
from webnn_vk.compiler.program.compile import PASSES


def test_every_pass_is_told():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Passes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {step.name for step in PASSES} - {"dead_code"}  # told in the text
