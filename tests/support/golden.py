"""Golden files: texts that a test compares with, kept in the repository.

``python -m pytest tests/unit/program/test_golden_programs.py --update-golden`` writes them anew;
what changed then shows in ``git diff``.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "unit" / "goldens"


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


def compare(config: pytest.Config, name: str, text: str) -> None:
    """The test fails unless ``text`` is what the golden file ``name`` holds."""
    path = FOLDER / name
    if config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    if not path.is_file():
        pytest.fail(f"{path} is missing; --update-golden writes it")
    wanted = path.read_text(encoding="utf-8")
    if text != wanted:
        lines = difflib.unified_diff(
            wanted.splitlines(), text.splitlines(), "golden", "now", lineterm="", n=1
        )
        shown = "\n".join([*lines][:80])
        pytest.fail(f"{name} differs (--update-golden accepts it):\n{shown}", pytrace=False)
