"""Committed texts, so that a change in the library's output shows as a diff.

A test calls the fixture: ``golden("goldens/minilm-llvmpipe.txt", text)``, with a path relative to
its folder. ``pytest --update-golden`` writes the files instead of comparing; read the diff
afterwards.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

#: Lines of a difference that are shown.
_SHOWN = 60

Golden = Callable[[str, str], None]


def compare(file: Path, text: str, *, update: bool) -> None:
    """Fails unless the file has this text; with ``update`` writes the file."""
    if not text.endswith("\n"):
        text += "\n"
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
        return
    if not file.is_file():
        pytest.fail(f"{file} does not exist: run with --update-golden, and commit it",
                    pytrace=False)
    committed = file.read_text(encoding="utf-8")
    if committed != text:
        lines = list(difflib.unified_diff(
            committed.splitlines(), text.splitlines(), f"{file.name} (committed)",
            f"{file.name} (now)", lineterm="",
        ))
        more = [f"… {len(lines) - _SHOWN} more lines"] if len(lines) > _SHOWN else []
        shown = "\n".join([*lines[:_SHOWN], *more])
        pytest.fail(f"{shown}\nIf that is meant, run with --update-golden", pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(path, text)``: the text equals the file at that path in the test's folder."""

    def check(path: str, text: str) -> None:
        file = request.path.parent / path
        compare(file, text, update=request.config.option.update_golden)

    return check
