"""The pages name the passes that there are."""

import re

from tests.support.paths import ROOT
from webnn_vk.program.compile import PASSES


def test_the_settings_page_lists_what_can_be_left_out():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `WEBNN_VK_SKIP_PASSES`"))
    optional = {step.name for step in PASSES if not step.required}
    assert set(re.findall(r"`(\w+)`", row)[1:]) == optional


def test_the_architecture_explains_each():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Passes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {step.name for step in PASSES} - {"dead_code"}  # told in the text
