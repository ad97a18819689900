"""Prints at the end how many examples each operator was tried with."""

import sys
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    example = sys.modules.get("tests.conformance.differential.example")
    counted = example.COUNTS if example else {}
    for way in dict.fromkeys(way for _, way in counted):
        terminalreporter.section(f"differential, {way}: examples / data types of each operator")
        counts = {name: c for (name, made), c in sorted(counted.items()) if made == way}
        cells = [f"{name} {c.examples}/{c.types()}" for name, c in counts.items()]
        for i in range(0, len(cells), 4):
            terminalreporter.write_line("".join(c.ljust(30) for c in cells[i : i + 4]).rstrip())
        total = sum(c.examples for c in counts.values())
        terminalreporter.write_line(f"{total} examples of {len(counts)} operators")
