"""What a run says at its end beyond pytest's own, gathered from every worker process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.drivers import NO_DRIVER

#: Names of the properties that tests record (`record_property`) for the end of the run; they come
#: with the reports from other processes: lines to print, and [way, operator, examples, types].
LINE, EXAMPLES = "summary line", "examples"


def properties(stats: dict[str, list[Any]], name: str) -> list[Any]:
    """The values that tests recorded under a name, each once."""
    return [
        value
        for reports in stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for key, value in report.user_properties
        if key == name
    ]


def without_driver(stats: dict[str, list[Any]]) -> int:
    """How many tests were skipped for want of a Vulkan driver."""
    return sum(NO_DRIVER in str(report.longrepr) for report in stats.get("skipped", []))


def share(collected: int, stats: dict[str, list[Any]]) -> str:
    """How many of the collected tests ran: neither left out nor skipped."""
    ran = {
        report.nodeid
        for outcome in ("passed", "failed", "error", "xfailed", "xpassed")
        for report in stats.get(outcome, [])
        if hasattr(report, "nodeid")
    }
    return f"collected {collected}, run {len(ran)} ({100 * len(ran) / max(collected, 1):.1f} %)"


def examples(counted: Iterable[list[Any]]) -> dict[str, list[str]]:
    """Lines by way of the differential tests: examples and data types of each operator."""
    ways: dict[str, list[tuple[str, int, int]]] = {}
    for way, operator, count, types in sorted(counted):
        ways.setdefault(way, []).append((operator, count, types))
    result = {}
    for way, counts in ways.items():
        cells = [f"{operator} {count}/{types}" for operator, count, types in counts]
        lines = [
            "".join(c.ljust(30) for c in cells[i : i + 4]).rstrip() for i in range(0, len(cells), 4)
        ]
        total = sum(count for _, count, _ in counts)
        result[way] = [*lines, f"{total} examples of {len(counts)} operators"]
    return result
