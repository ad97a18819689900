"""docs/onnx.md: differences between ONNX's operators and WebNN's; cases of ONNX's backend suite
that are beyond WebNN, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import onnx_definitions
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "onnx.md"
START, END = "<!-- table -->", "<!-- /table -->"
DIFFERENCES = r"(<!-- differences -->\n).*?(<!-- /differences -->)"

_ROUNDED = (
    "our result is within the tolerance of the exact result; the expected one was rounded in "
    "between"
)


@dataclass(frozen=True)
class Exceptions:
    """Cases within the predicate that don't pass on some devices ("engine" is the CPU device with
    ONNX Runtime), and why."""

    reason: str
    devices: tuple[str, ...]
    suite: str
    names: tuple[str, ...]


#: The complete list: everything else passes on every device. An entry that passes, or doesn't
#: exist, fails tests/conformance/onnx/test_backend.py.
EXCEPTIONS = (
    Exceptions(_ROUNDED, ("cpu", "vulkan"), "node", (
        "test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded",
    )),
    Exceptions(_ROUNDED, ("cpu", "vulkan", "engine"), "node", (
        "test_dft_inverse", "test_dft_inverse_opset19",
    )),
)
#: Cases that pass or fail on the CPU device with ONNX Runtime as on ONNX Runtime itself.
AS_ONNX_RUNTIME = {
    ("light", "light_squeezenet"): "all channels are equal (1e10) before a softmax; on some "
    "processors ONNX Runtime rounds them differently",
}
_DEVICES = {"cpu": "CPU device", "vulkan": "Vulkan", "engine": "CPU device with ONNX Runtime"}


def failing(device: str) -> dict[tuple[str, str], str]:
    """The reason why a case, by suite and name, doesn't pass on a device."""
    return {
        (group.suite, name): group.reason
        for group in EXCEPTIONS if device in group.devices for name in group.names
    }


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


def all_records() -> list[Any]:
    """Every record of an ONNX operator, by domain, name and opset."""
    import webnn_vk.onnx  # noqa: F401  (fills the table of records)
    from webnn_vk.onnx.records import _RECORDS

    return sorted(
        (r for records in _RECORDS.values() for r in records),
        key=lambda r: (r.domain, r.name, r.first),
    )


def _operators() -> str:
    from webnn_vk.onnx.reading import OLDEST_OPSET

    by_domain: dict[str, set[str]] = defaultdict(set)
    for record in all_records():
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
