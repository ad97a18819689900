"""Other drivers that judge what lavapipe runs: how their absence and their figures are told.

A driver that CI can install and that is missing there is a failure; elsewhere its tests are
skipped, counted under a heading of their own at the end of the run.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, NoReturn

import pytest

MISSING = "MISSING JUDGE"
#: The property of a test's report that holds a line for the end of the run.
_LINE = "judge"


def missing(what: str) -> NoReturn:
    """Fails in CI where apt could have installed it; skips loudly elsewhere."""
    if os.environ.get("CI") and shutil.which("apt-get"):
        pytest.fail(f"{MISSING}: {what}", pytrace=False)
    skip(what)


def skip(what: str) -> NoReturn:
    """Skips a test, counted under the heading."""
    pytest.skip(f"{MISSING}: {what}")


def say(record_property: Any, lines: list[str]) -> None:
    """Lines for the end of the run, by a test's ``record_property``."""
    for line in lines:
        record_property(_LINE, line)


def summarise(terminalreporter: Any) -> None:
    """What the judges said, and which of them are missing."""
    stats = terminalreporter.stats
    reports = [r for outcome in ("passed", "failed") for r in stats.get(outcome, [])]
    lines = [v for r in reports for k, v in getattr(r, "user_properties", ()) if k == _LINE]
    if lines:
        terminalreporter.section("judges")
    for line in lines:
        terminalreporter.write_line(line)
    skipped: dict[str, int] = {}
    for report in stats.get("skipped", []):
        _, found, reason = str(report.longrepr).partition(f"{MISSING}: ")
        if found:
            reason = reason.rstrip("')\"")
            skipped[reason] = skipped.get(reason, 0) + 1
    if skipped:
        terminalreporter.section(MISSING, sep="!", red=True, bold=True)
        for reason, count in skipped.items():
            terminalreporter.write_line(f"{count} tests skipped: {reason}")
