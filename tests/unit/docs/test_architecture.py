"""docs/architecture.md describes each folder and each pass, on three screens."""

import re

from tests.support.paths import ROOT
from webnn_vk.compiler.program.compile import PASSES

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_it_fits_on_three_screens():
    assert PAGE.count("\n") <= 100 and len(PAGE.split()) <= 1500


def test_every_folder_is_described():
    rows = " ".join(re.findall(r"^\| (`.*?) \|", PAGE.partition("\n## ")[0], re.MULTILINE))
    folders = {path.parent.name for path in (ROOT / "webnn_vk").glob("*/__init__.py")}
    assert {f"`{name}/" for name in folders} <= set(re.findall(r"`\w+/", rows))


def test_every_pass_is_described():
    section = PAGE.partition("\n## Passes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {step.name for step in PASSES} - {"dead_code"}  # told in the text
