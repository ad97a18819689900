"""CONTRIBUTING.md, CHANGELOG.md and the pre-commit hooks name existing things."""

import re

import pytest

import webnn_vk
from tests.support.commands import commands
from tests.support.paths import ROOT
from tests.unit.test_layers import LAYERS

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    for name in ("CONTRIBUTING.md", "CHANGELOG.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
        assert links and not [link for link in links if not (ROOT / link).is_file()], name


def test_commands_name_files_that_exist():
    named = [word for line in commands(ROOT / "CONTRIBUTING.md") for word in line.split()
             if word.startswith(("tests/", "scripts/"))]
    assert named and all((ROOT / path).exists() for path in named)


def test_it_fits_on_a_page():
    assert PAGE.count("\n") <= 60


def test_folders_are_listed_in_the_order_of_the_layers():
    line = re.search(r"from the bottom up: (.+?)\.\sA folder", PAGE, re.DOTALL)[1]
    named = re.findall(r"`(\w+)`", line)
    order = [name.removeprefix("compiler.") for name in LAYERS]
    assert [name for name in named if name != "compiler"] == [n for n in order if n in named]


def test_the_changelog_has_the_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+)\]", text, re.MULTILINE)
    assert sections[0] == "Unreleased" and webnn_vk.__version__ in sections
    kinds = set(re.findall(r"^### (\w+)", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_hooks_run_what_is_installed():
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (local,) = config["repos"]
    assert local["repo"] == "local"  # nothing is downloaded
    entries = {hook["id"]: hook["entry"] for hook in local["hooks"]}
    assert set(entries) == {"ruff", "types", "generated"}
    for entry in entries.values():
        assert entry.startswith("python -m ")
        assert all((ROOT / word).exists() for word in entry.split() if word.startswith("tests/"))
