"""Follows a guide as written: makes the files and changes that a page shows, in a copy of the
package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

#: The package, and the folders that are inside it once it is installed.
FOLDERS = ("webnn_vk", "codegen", "shaders", "examples")
_MADE = re.compile(r"Make `([\w/.]+)`[^\n]*\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DIFF = re.compile(r"^```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    """Text of a guide."""
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def made(text: str) -> dict[str, str]:
    """Files that a page shows in full."""
    return dict(_MADE.findall(text))


def changes(text: str) -> list[tuple[str, str, str]]:
    """Changes that a page shows: file, lines before, lines after."""
    found = []
    for block in _DIFF.findall(text):
        for part in re.split(r"^--- ", block, flags=re.MULTILINE)[1:]:
            file, *lines = part.splitlines()
            before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
            after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
            found.append((file, before, after))
    return found


def programs(text: str) -> list[str]:
    """The page's Python blocks that are not files."""
    files = set(made(text).values())
    return [code for code in _PYTHON.findall(text) if code not in files]


def follow(text: str, folder: Path) -> Path:
    """A copy of the package in the folder, with the page's additions and changes."""
    ignore = shutil.ignore_patterns("__pycache__", "pack.bin")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, content in made(text).items():
        assert not (folder / name).exists(), name
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    for name, before, after in changes(text):
        old = (folder / name).read_text(encoding="utf-8")
        assert old.count(before) == 1, f"{name} has {old.count(before)} times:\n{before}"
        (folder / name).write_text(old.replace(before, after), encoding="utf-8")
    return folder


def run(folder: Path, code: str) -> str:
    """Output of a program that imports the package from the folder and the tests' modules from
    here."""
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, "WEBNN_VK_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
