"""The additional summary at the end of a run, gathered from every worker process."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.drivers import NO_DRIVER

#: Names of the properties that tests record (`record_property`) for the end of the run; they arrive
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
    """How many tests were skipped for lack of a Vulkan driver."""
    return sum(NO_DRIVER in str(report.longrepr) for report in stats.get("skipped", []))


_RUN = ("passed", "failed", "error", "xfailed", "xpassed")


def skipped(stats: dict[str, list[Any]]) -> list[str]:
    """The reasons of skipped tests, with the number of tests for each, the most frequent first."""
    reasons: Counter[str] = Counter()
    for report in stats.get("skipped", []):
        described = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        first, *_ = str(described).removeprefix("Skipped: ").splitlines() or ["no reason"]
        reasons[first] += 1
    return [f"skipped {count}: {reason}" for reason, count in reasons.most_common()]


def of_all(stats: dict[str, list[Any]], collected: int, left_out: Mapping[str, int]) -> str:
    """The last line: how many of the collected tests ran. ``left_out``: numbers of tests that
    weren't selected, by reason."""
    done = {report.nodeid for name in _RUN for report in stats.get(name, [])}
    without = {report.nodeid for report in stats.get("skipped", [])} - done
    share = f" ({100 * len(done) / collected:.1f} %)" if collected else ""
    counts = {**left_out, "skipped": len(without)}
    others = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{collected} tests collected, {len(done)} run{share}" + f"; {others}" * bool(others)


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


def commands(stats: dict[str, list[Any]], seed: str) -> list[str]:
    """For each failure of an exploring run, the command that repeats it."""
    failed = dict.fromkeys(
        report.nodeid for name in ("failed", "error") for report in stats.get(name, [])
    )
    return [
        f"repeat with: scripts/test --explore --seed {shlex.quote(seed)} {shlex.quote(name)}"
        for name in failed
    ]
