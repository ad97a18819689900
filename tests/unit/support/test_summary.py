"""The last lines of a run: skipped tests by reason, and how many of the collected tests ran."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import summary
from tests.support.paths import ROOT

#: With this variable the last test of this file is skipped.
SKIPS = "WEBNN_VK_TESTS_SKIP"


@dataclass
class Report:
    nodeid: str
    longrepr: Any = None


def skip(nodeid: str, reason: str) -> Report:
    return Report(nodeid, ("tests/x.py", 3, f"Skipped: {reason}"))


def test_every_skipped_test_is_counted_by_its_reason():
    stats = {
        "passed": [Report("a"), Report("b")], "failed": [Report("c")], "error": [Report("c")],
        "xfailed": [Report("d")], "": [Report("a"), Report("e")],
        "skipped": [skip("e", "no kp\nmore"), skip("f", "no GPU"), skip("g", "no kp")],
    }
    assert summary.skipped(stats) == ["skipped 2: no kp", "skipped 1: no GPU"]
    assert summary.of_all(stats, 10, {"to explore": 1, "not drawn": 2}) == (
        "10 tests collected, 4 run (40.0 %); 1 to explore, 2 not drawn, 3 skipped"
    )
    assert summary.of_all({}, 0, {"to explore": 0}) == "0 tests collected, 0 run"


def test_a_find_has_its_command():
    twice = Report("t.py::a[b c]")
    stats = {"failed": [twice, twice], "error": [Report("t.py::d")]}
    assert summary.commands(stats, "17") == [
        "repeat with: scripts/test --explore --seed 17 't.py::a[b c]'",
        "repeat with: scripts/test --explore --seed 17 t.py::d",
    ]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_ends_with_them(processes):
    """From several processes as from one; the skipped test is one of this file."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", processes, __file__,
         "-k", "counted or skips"],
        capture_output=True, text=True, cwd=ROOT, timeout=250, env={**os.environ, SKIPS: "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, reason, last, final = done.stdout.splitlines()
    assert reason == "skipped 1: for the test above"
    assert last == "5 tests collected, 1 run (20.0 %); 3 deselected, 1 skipped"
    assert "1 passed, 1 skipped" in final


def test_skips():
    if SKIPS in os.environ:
        pytest.skip("for the test above")
