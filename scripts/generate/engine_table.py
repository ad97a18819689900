"""docs/cpu-engine.md: the operators that ONNX Runtime computes wrongly, and the vectors of which it
computes other results from the exported model."""

from __future__ import annotations

from pathlib import Path

from tests.support.onnx_exceptions import WRONG_IN_ONNX_RUNTIME
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "cpu-engine.md"
START, END = "<!-- table -->", "<!-- /table -->"


def text() -> str:
    """The generated part of the page."""
    from webnn_vk.onnx.runtime_limits import DEVIATIONS, LIMITS

    lines = []
    for limits in (LIMITS, DEVIATIONS):
        lines += ["| operators | data types | reason |", "| --- | --- | --- |"]
        for limit in limits:
            listed = " ".join(f"`{name}`" for name in limit.operators)
            lines.append(f"| {listed} | {', '.join(limit.types) or 'all'} | {limit.reason} |")
        lines.append("")
    lines += [
        "These graphs of the conformance suite give other results when exported to ONNX "
        "Runtime:", "",
        "| vector | why it differs |", "| --- | --- |",
    ]
    lines += [f"| {name} | {why} |" for name, why in WRONG_IN_ONNX_RUNTIME.items()]
    return "\n".join(lines)


def files() -> dict[Path, str]:
    """The page with its generated part updated."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    after = rest.split(END)[1]
    return {PAGE: f"{before}{START}\n{text()}\n{END}{after}"}
