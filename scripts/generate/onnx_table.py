"""docs/onnx.md: differences between ONNX's operators and WebNN's; cases of ONNX's backend suite
that are beyond WebNN, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.support import onnx_definitions
from tests.support.onnx_exceptions import AS_ONNX_RUNTIME, EXCEPTIONS
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "onnx.md"
START, END = "<!-- table -->", "<!-- /table -->"
DIFFERENCES = r"(<!-- differences -->\n).*?(<!-- /differences -->)"

_DEVICES = {"cpu": "CPU device", "vulkan": "Vulkan", "engine": "CPU device with ONNX Runtime"}


def text() -> str:
    """The generated part of the page."""
    import onnx

    from tests.support.onnx_cases import SUITES, cases, outside

    lines = [
        f"{_made_with()} (opset {onnx.defs.onnx_opset_version()}).", "",
        "| suite | cases | in scope | of those failing |", "| --- | --: | --: | --: |",
    ]
    reasons: dict[str, list[str]] = defaultdict(list)
    for suite in SUITES:
        within = 0
        for case in cases(suite):
            reason = outside(case)
            if reason is None:
                within += 1
            else:
                reasons[reason].append(case.name)
        names = {n for group in EXCEPTIONS if group.suite == suite for n in group.names}
        lines.append(f"| {suite} | {len(cases(suite))} | {within} | {len(names)} |")
    lines += ["", "## Cases out of scope", "", "| reason | cases | |", "| --- | --: | --- |"]
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        listed = " ".join(f"`{n.removeprefix('test_')}`" for n in sorted(names))
        lines.append(f"| {reason} | {len(names)} | {listed} |")
    lines += ["", "## Failing", "", "| case | on | reason |", "| --- | --- | --- |"]
    lines += [
        f"| `{name}` | {', '.join(_DEVICES[d] for d in group.devices)} | {group.reason} |"
        for group in EXCEPTIONS for name in group.names
    ]
    lines += [
        f"| `{name}` | {_DEVICES['engine']}, as on ONNX Runtime itself | {why} |"
        for (_, name), why in AS_ONNX_RUNTIME.items()
    ]
    lines += ["", "## Operators with a record", "", _operators()]
    return "\n".join(lines)


def _differences() -> str:
    """Where the definitions differ of operators that both sides have."""
    lines = ["| ONNX | WebNN | ONNX's definition |", "| --- | --- | --- |"]
    for row in onnx_definitions.DIFFERENCES:
        lines.append(f"| `{row.onnx}` | `{row.webnn}` | {row.says} |")
    return "\n".join(lines)


def _made_with() -> str:
    import onnx

    return f"Made with onnx {onnx.__version__}"


def _operators() -> str:
    from webnn_vk.onnx.reading import OLDEST_OPSET

    by_domain: dict[str, set[str]] = defaultdict(set)
    for record in onnx_definitions.all_records():
        if record.last >= OLDEST_OPSET:
            by_domain[record.domain or "ai.onnx"].add(record.name)
    return "\n\n".join(
        f"**{domain}**: " + " ".join(f"`{name}`" for name in sorted(names))
        for domain, names in sorted(by_domain.items())
    )


def files() -> dict[Path, str]:
    """The page with its generated part updated; unchanged if onnx is missing or has another version
    than the one it was made with."""
    old, count = re.subn(
        DIFFERENCES, lambda marks: f"{marks[1]}{_differences()}\n{marks[2]}",
        PAGE.read_text(encoding="utf-8"), flags=re.DOTALL,
    )
    assert count == 1, f"the marks of the differences are gone from {PAGE.name}"
    before, rest = old.split(START)
    own, after = rest.split(END)
    try:
        other = own.strip() and f"{_made_with()} " not in own
    except ImportError:
        other = True
    return {PAGE: old if other else f"{before}{START}\n{text()}\n{END}{after}"}
