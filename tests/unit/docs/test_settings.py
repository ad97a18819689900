"""docs/settings.md names every environment variable."""

import dataclasses
import re

from tests.support.paths import ROOT
from webnn_vk import Settings
from webnn_vk.compiler.program.compile import PASSES

PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\| `(WEBNN_VK_[A-Z_]+)", PAGE, re.MULTILINE))


def test_every_variable_is_there():
    used = set()
    for folder in ("webnn_vk", "codegen"):
        for path in (ROOT / folder).rglob("*.py"):
            used |= set(re.findall(r"WEBNN_VK_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))
    # Variables of the tests, not for users.
    ours = {"WEBNN_VK_DUMP_SPIRV", "WEBNN_VK_NULL_DEVICES", "WEBNN_VK_VERIFY_PASSES"}
    assert used - ours == DOCUMENTED


def test_every_setting_has_a_variable():
    names = {field.name for field in dataclasses.fields(Settings) if field.init}
    assert {f"WEBNN_VK_{name.upper()}" for name in names} <= DOCUMENTED


def test_every_pass_that_can_be_skipped_is_there():
    (row,) = re.findall(r"^\| `WEBNN_VK_SKIP_PASSES.*", PAGE, re.MULTILINE)
    optional = {step.name for step in PASSES if not step.required}
    assert set(re.findall(r"`([a-z_]+)`", row)) == optional
