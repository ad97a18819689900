"""Prints what the pack is like at the end of the run."""

from collections.abc import Callable
from typing import Any

import pytest

_lines: pytest.StashKey[list[str]] = pytest.StashKey()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """``say(line)``: printed when the run ends."""
    return request.config.stash.setdefault(_lines, []).append


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash.get(_lines, []):
        terminalreporter.write_line(line)
