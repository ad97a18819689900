"""The rows of a run as its file and as a table on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Bytes a second by the data sheets.
BANDWIDTH = {"H200": 4.8e12, "H100": 3.35e12}


def read_rows(parts: Mapping[str, Path]) -> list[Row]:
    """The rows that the stages wrote so far."""
    rows = []
    for stage, part in parts.items():
        for line in part.read_text().splitlines() if part.exists() else ():
            try:
                rows.append({"stage": stage, **json.loads(line)})
            except ValueError:
                continue  # cut off in the middle
    return rows


def add_shares(rows: Sequence[Row], card: str) -> None:
    """Add shares of the data sheet's bandwidth, and of the one that PyTorch's copy reached."""
    sheet = next((rate for name, rate in BANDWIDTH.items() if name in card), None)
    copy = next((r["rate"] for r in rows if r["kind"] == "ceiling" and "bytes" in r["what"]), None)
    for r in rows:
        for name, peak in (("share_of_sheet", sheet), ("share_of_copy", copy)):
            if peak and r.get("gigabytes"):
                r[name] = 1e9 * r["gigabytes"] / peak


def save(out: Path, about: Row, stages: Sequence[Row], rows: Sequence[Row]) -> None:
    """Write the file in one step."""
    kept = [r for r in rows if r["kind"] not in ("expected", "found")]
    text = json.dumps({**about, "stages": list(stages), "rows": kept}, indent=1)
    new = out.with_name(out.name + ".new")
    new.write_text(text + "\n")
    new.replace(out)


def result_of(stage: str, rows: Sequence[Row], seconds: float, note: str) -> Row:
    """How a stage ended: how many of its results there are, and a note if it failed."""
    mine = [r for r in rows if r["stage"] == stage]
    expected = next((r["count"] for r in mine if r["kind"] == "expected"), None)
    return {"stage": stage, "note": note, "seconds": round(seconds, 1), "expected": expected,
            "found": sum(r["kind"] == "found" for r in mine)}


def print_summary(rows: Sequence[Row], stages: Sequence[Row]) -> bool:
    """Print the table. Whether all results are right and complete."""
    for r in rows:
        if (text := _line(r)) is not None:
            print(text)
    right = [r for r in rows if r["kind"] == "right"]
    suite = [r for r in right if r["what"] == "suite"]
    wrong = [{k: v for k, v in r.items() if k not in ("kind", "stage")}
             for r in right if not r["ok"]]
    print(f"right: {len(right) - len(wrong)} of {len(right)}; the suite's vectors: "
          f"{sum(r['passed'] for r in suite)} of {sum(r['cases'] for r in suite)}, "
          f"{sum(r['skipped'] for r in suite)} skipped")
    for r in wrong[:12]:
        print("wrong:", r)
    for r in rows:
        if r["kind"] in ("error", "peer error"):
            print(f"{r['kind']}: {r['stage']}, {r['what']}: {r['error'][:200]}")
    bad = []
    for s in stages:
        print(f"stage {s['stage']:9} {s['found']} of {s['expected']} results, {s['seconds']} s",
              s["note"])
        if s["note"] or s["found"] != s["expected"]:
            bad.append(s["stage"])
    print("stages that failed or are incomplete:", ", ".join(bad) or "none")
    return bool(rows) and not bad and not wrong


def _line(r: Row) -> str | None:
    """A row as a line of the table; None for a kind that has none."""
    match r["kind"]:
        case "product" | "kernel" | "model":
            return _measured(r)
        case "decoder":
            kind = f"{r['dtype']}, {r['activations']}" if "activations" in r else r["dtype"]
            return (f"decoder {r.get('peer', 'ours'):9} {kind:16} {r['valid']:5} tokens: "
                    f"{r['token_s']:7.1f} a second, prompt {r['prompt_tokens_s']:9.1f} a second")
        case "end to end":
            theirs = f"{1e3 * r['ort']['seconds']:8.3f} ms" if r["ort"] else "failed"
            return (f"{r['workload']:22} ours {1e3 * r['ours']['seconds']:8.3f} ms, "
                    f"ONNX Runtime {theirs}")
        case "latency":
            return f"{r['what']:55} {1e9 * r['seconds']:10.1f} ns"
        case "latencies, us" | "transfers, GB/s":
            return f"{r['kind']} {r['values']}"
        case "note":
            return f"note: {r['text']}"
        case "tuned":
            return f"tuned {r['size']} {r['usual_seconds']} -> {r['seconds']} s"
        case "cold":
            return f"cold {r['turn']} {r['wall']} {r['context_built_first']}"
    return None


def _measured(r: Row) -> str:
    what = (f"{r['way']} {r['m']}x{r['n']}x{r['k']}" + " transposed" * r["transposed"]
            if r["kind"] == "product" else r.get("what") or r.get("model"))
    count = r.get("chain", 1)
    ours = r["queued" if r["kind"] == "model" else "device"] / count
    text = f"{r['dtype']:8} {what:46} {1e6 * ours:10.1f} us"
    if r.get("ratio"):
        text += f"  torch {1e6 * r['torch'] / count:9.1f}  ratio {r['ratio']:5.2f}"
        text += "" if r["torch_graph"] else " (no graph)"
    if r.get("share_of_sheet"):
        text += f"  {100 * r['share_of_sheet']:3.0f} % of bandwidth"
    return text + f"  {r['clocks'][-1]} MHz" * bool(r["clocks"][-1])
