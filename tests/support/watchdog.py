"""Messages before the end of a run: failures at once, and where a process hangs that no signal
wakes.

pytest-timeout ends a test by a signal, which Python handles only between two of its own steps. A
test that hangs below Python, in a driver's call or while it holds the interpreter's lock, would
block the run for ever without a message; and an aborted run prints no summary.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any

import pytest

#: Seconds after a test's own limit at which its process reports where it hangs, and ends.
GRACE = 60
#: Lines of a failure that are shown at once; the summary has them all.
LINES = 40

_stderr: pytest.StashKey[int] = pytest.StashKey()


def configure(config: pytest.Config) -> None:
    """Has to be called before output is captured."""
    config.stash[_stderr] = os.dup(sys.__stderr__.fileno())


def watch(item: pytest.Item) -> None:
    """If a process stays in ``item``, fixtures included, for longer than its limit and GRACE, it
    prints the stacks of all threads and ends: a failure of that test (pytest-xdist goes on without
    the process)."""
    stderr = item.config.stash[_stderr]
    faulthandler.dump_traceback_later(limit(item) + GRACE, exit=True, file=stderr)


def unwatch() -> None:
    """The test is over."""
    faulthandler.cancel_dump_traceback_later()


def limit(item: pytest.Item) -> float:
    """Seconds that a test may take, as pytest-timeout has it."""
    marker = item.get_closest_marker("timeout")
    if marker is None:
        return float(item.config.getini("timeout"))
    return float(marker.args[0] if marker.args else marker.kwargs["timeout"])


def show_failure(report: Any, terminal: Any) -> None:
    """Prints the end of a failure at once."""
    if not report.failed:
        return
    lines = report.longreprtext.splitlines()
    terminal.write_line("")
    terminal.write_line(f"FAILED so far ({report.when}): {report.nodeid}", red=True)
    for line in lines[-LINES:]:
        terminal.write_line(f"  {line}")
    terminal.flush()
