"""The suite's location, its names and values in Python, and the tests that are left out."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support.paths import SHARED

SUITE = SHARED / "wpt"
PRESENT = SUITE.is_dir()
#: The reason of every test that is skipped for lack of the suite: one line at the end of the run.
ABSENT = "the web-platform-tests are not beside this checkout (../shared/wpt, ../shared/wpt-js)"
SKIPPED_FILE = Path(__file__).with_name("skipped.json")


@cache
def comparer() -> ModuleType:
    """The suite's own decoder and comparer."""
    spec = importlib.util.spec_from_file_location("wpt_compare", SUITE / "wpt_compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snake(name: str) -> str:
    """``convTranspose2d`` → ``conv_transpose2d`` (the mapping rules of the API)."""
    if name == "isNaN":
        return "is_nan"
    return re.sub(r"(?<=[a-z0-9])([A-Z]+)", r"_\1", name).lower()


def files(folder: str) -> list[str]:
    return sorted(p.stem for p in (SUITE / folder).glob("*.json")) if PRESENT else []


def load(folder: str, name: str) -> Any:
    return json.loads((SUITE / folder / f"{name}.json").read_text())


@cache
def skipped() -> dict[str, dict[str, str]]:
    """Tests that are left out on purpose: section → name → reason."""
    return json.loads(SKIPPED_FILE.read_text())
