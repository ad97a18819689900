"""Other drivers that judge lavapipe's results: how their absence is reported.

If a driver that CI can install is missing there, the test fails. Elsewhere its tests are skipped
and counted under a separate heading at the end of the run.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, NoReturn

import pytest

MISSING = "MISSING JUDGE"


def missing(what: str) -> NoReturn:
    """Fails in CI if apt could have installed the driver; skips with a message elsewhere."""
    if os.environ.get("CI") and shutil.which("apt-get"):
        pytest.fail(f"{MISSING}: {what}", pytrace=False)
    skip(what)


def skip(what: str) -> NoReturn:
    """Skips a test, counted under the heading."""
    pytest.skip(f"{MISSING}: {what}")


def missing_ones(stats: dict[str, list[Any]]) -> list[str]:
    """Why judges are missing, with the number of tests that each of them would have run."""
    counts: dict[str, int] = {}
    for report in stats.get("skipped", []):
        _, found, reason = str(report.longrepr).partition(f"{MISSING}: ")
        if found:
            reason = reason.rstrip("')\"")
            counts[reason] = counts.get(reason, 0) + 1
    return [f"{count} tests skipped: {reason}" for reason, count in counts.items()]
