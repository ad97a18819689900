"""Commands shown on pages: finds them, and runs one as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The page's code blocks in a language."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [text for name, text in found if name == language]


def commands(page: Path) -> list[str]:
    """The commands in a page's shell blocks, one per line, without comments."""
    lines = (line.split("  #")[0].strip() for text in blocks(page, "sh")
             for line in text.splitlines())
    return [line for line in lines if line]


def environment(**variables: str) -> dict[str, str]:
    """The tests' environment with this Python's programs first on PATH."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **variables}


def run(command: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a folder, in a shell."""
    return subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=folder,
        env=environment(**variables),
    )
