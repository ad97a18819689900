"""docs/onnx.md: where ONNX's operators and WebNN's differ; what of ONNX's backend suite is beyond
WebNN, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.support.paths import ROOT
from webnn_vk.graph import onnx_pairs

PAGE = ROOT / "docs" / "onnx.md"
START, END = "<!-- table -->", "<!-- /table -->"
DIFFERENCES = r"(<!-- differences -->\n).*?(<!-- /differences -->)"

#: Cases within the predicate that fail, and why; everything else passes on every device.
FAILING = {
    **{
        ("node", f"test_{name}"): "ours is within the tolerance of the exact result, the "
        "expectation was rounded on its way"
        for name in (
            "attention_4d_causal_fp16", "attention_4d_causal_fp16_expanded", "dft_inverse",
            "dft_inverse_opset19",
        )
    },
}
#: Those that on the CPU device with ONNX Runtime pass or fail as on ONNX Runtime itself.
AS_ONNX_RUNTIME = {
    ("light", "light_squeezenet"): "all channels are equal, of 1e10 each, before a softmax; on "
    "some processors ONNX Runtime rounds them unequally",
}

#: Of ``FAILING``, those that pass on the CPU device with ONNX Runtime.
PASSING_ON_ENGINE = {
    ("node", "test_attention_4d_causal_fp16"),
    ("node", "test_attention_4d_causal_fp16_expanded"),
}


def text() -> str:
    """The generated part of the page."""
    import onnx

    from tests.support.onnx_cases import SUITES, cases, outside

    lines = [
        f"{_made_with()} (opset {onnx.defs.onnx_opset_version()}).", "",
        "| suite | cases | WebNN's | of them failing |", "| --- | --: | --: | --: |",
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
        failing = sum(key[0] == suite for key in FAILING)
        lines.append(f"| {suite} | {len(cases(suite))} | {within} | {failing} |")
    lines += ["", "## Beyond WebNN", "", "| reason | cases | |", "| --- | --: | --- |"]
    for reason, names in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        listed = " ".join(f"`{n.removeprefix('test_')}`" for n in sorted(names))
        lines.append(f"| {reason} | {len(names)} | {listed} |")
    lines += ["", "## Failing", "", "| case | reason |", "| --- | --- |"]
    lines += [f"| `{name}` | {why} |" for (_, name), why in FAILING.items()]
    lines += [
        f"| `{name}` (CPU device with ONNX Runtime, as on ONNX Runtime itself) | {why} |"
        for (_, name), why in AS_ONNX_RUNTIME.items()
    ]
    lines += ["", "## Operators with a record", "", _operators()]
    return "\n".join(lines)


def _differences() -> str:
    """Where the definitions of operators part that both sides have."""
    lines = ["| ONNX | WebNN | ONNX's definition |", "| --- | --- | --- |"]
    for row in onnx_pairs.DIFFERENCES:
        lines.append(f"| `{row.onnx}` | `{row.webnn}` | {row.says} |")
    return "\n".join(lines)


def _made_with() -> str:
    import onnx

    return f"Made with onnx {onnx.__version__}"


def _operators() -> str:
    import webnn_vk.onnx  # noqa: F401  (fills the table of records)
    from webnn_vk.onnx.reading import OLDEST_OPSET
    from webnn_vk.onnx.records import all_records

    by_domain: dict[str, set[str]] = defaultdict(set)
    for record in all_records():
        if record.last >= OLDEST_OPSET:
            by_domain[record.domain or "ai.onnx"].add(record.name)
    return "\n\n".join(
        f"**{domain}**: " + " ".join(f"`{name}`" for name in sorted(names))
        for domain, names in sorted(by_domain.items())
    )


def files() -> dict[Path, str]:
    """The page with its generated part made anew; as it is where another version of onnx is
    installed than it was made with, or none."""
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
