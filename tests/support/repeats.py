"""The only failures that CI repeats, once: tests named in tests/flaky.txt, and tests whose process
crashed (the validation layer's table of devices has no lock). At most MOST of both in a run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.paths import ROOT

MOST = 5
FLAKY = ROOT / "tests" / "flaky.txt"


def listed() -> list[str]:
    """The names in tests/flaky.txt. A line has the date, the rate, the name and the reason."""
    lines = FLAKY.read_text(encoding="utf-8").splitlines()
    return [line.split(maxsplit=3)[2] for line in lines if line.strip() and line[0] != "#"]


def repeatable(stats: dict[str, list[Any]], flaky: Sequence[str]) -> list[str]:
    """The failed tests if all of them may be repeated, otherwise none."""
    failed = [report for name in ("failed", "error") for report in stats.get(name, [])]
    names = list(dict.fromkeys(report.nodeid for report in failed))
    if len(names) > MOST or not all(_crashed(r) or r.nodeid in flaky for r in failed):
        return []
    return names


def _crashed(report: Any) -> bool:
    return report.when == "???" and "crashed while running" in str(report.longrepr)


def repeat(config: pytest.Config, stats: dict[str, list[Any]]) -> tuple[list[str], bool]:
    """Repeats what may be, each in a process of its own; lines about it, and whether all that
    failed passes now. Nothing outside CI, and not in such a process itself."""
    if not os.environ.get("CI") or not getattr(config.option, "numprocesses", None):
        return [], False
    lines, passed = [], []
    for name in repeatable(stats, listed()):
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        passed.append(done.returncode == 0)
        lines.append(f"REPEATED, {'passed' if passed[-1] else 'failed again'}: {name}")
        if not passed[-1]:
            lines += done.stdout.splitlines()[-40:]
    return lines, bool(passed) and all(passed)
