"""A profile as one page of HTML that needs nothing else: no network, no files beside it."""

from __future__ import annotations

import importlib.resources
import json
from collections import defaultdict
from typing import Any

from .report import ProfileReport, Recorded, title_of

#: Slices of the timeline that a page holds; of longer profiles the first.
MOST_SLICES = 20_000
_MARK = "/*PROFILE*/null"


def page(found: Recorded, report: ProfileReport) -> str:
    """The page's text."""
    template = importlib.resources.files("webnn_vk.profiler").joinpath("page.html")
    # In a script "</" and "<!--" would end it or hide its end.
    data = json.dumps(contents(found, report)).replace("<", "\\u003c")
    return template.read_text(encoding="utf-8").replace(_MARK, data)


def contents(found: Recorded, report: ProfileReport) -> dict[str, Any]:
    """What the page shows, as plain data; times in seconds."""
    roofline = report.roofline
    return {
        "device": report.device, "summary": report.summary, "seconds": report.seconds,
        "runs": report.runs,
        "roofline": roofline and {"flops": roofline.flops, "bandwidth": roofline.bandwidth},
        "kernels": [
            {
                "graph": k.graph, "line": k.line,
                "operators": title_of(k.operators), "device": k.device,
                "kernel": k.kernel, "variant": k.variant, "runs": k.runs, "seconds": k.seconds,
                "flops": k.flops, "bytes": k.bytes, "roof": k.share_of(roofline),
            }
            for k in report.kernels
        ],
        "sums": [
            *[{"name": h.name, "count": h.count, "seconds": h.seconds} for h in report.host],
            *[{"name": f"{t.kind}, {t.bytes / 1e6:.3f} MB", "count": t.count, "seconds": t.seconds}
              for t in report.transfers],
        ],
        "rows": _rows(found),
        "memory": [
            {
                "arena": m.arena, "weights": m.weights, "lines": m.lines,
                "bases": _bases(m.blocks),
                "blocks": [[b.block, b.offset, b.size, b.first, b.last] for b in m.blocks],
            }
            for m in report.memory
        ],
        "names": [
            [title_of(line.operators) for line in lines] for lines in found.lines
        ],
    }


def _bases(blocks: Any) -> list[int]:
    """Where each block of the arena begins when they are drawn one above the other."""
    ends: dict[int, int] = defaultdict(int)
    for block in blocks:
        ends[block.block] = max(ends[block.block], block.offset + block.size)
    bases, at = [], 0
    for number in range(max(ends, default=-1) + 1):
        bases.append(at)
        at += ends[number]
    return bases


def _rows(found: Recorded) -> list[dict[str, Any]]:
    """The rows of the timeline: slices of [start, end, name, family]."""
    rows: list[tuple[str, list[list[Any]]]] = [
        ("waiting", [[r.queued, r.begun, f"run {n} waits", "wait"]
                     for n, r in enumerate(found.runs)]),
        ("batches", [[b.begun, b.submitted, f"{b.works} works put together", "host"]
                     for b in found.batches]),
        ("CPU steps", [
            [s.start, s.end, title_of(line.operators), line.kernel]
            for s, last in found.hosts for line in [found.host_line(s.graph, s.line, last)]
        ]),
        ("kernels", [
            [s.start, s.end, title_of(line.operators), line.kernel]
            for s in found.kernels for line in [found.lines[s.graph][s.line]]
        ]),
        ("transfers", [[start, end, f"{kind} {size} bytes", kind]
                       for kind, size, start, end in found.transfers]),
    ]
    return [
        {"name": name, "left_out": max(len(slices) - MOST_SLICES, 0),
         "slices": [[round(max(s[0], 0), 9), round(max(s[1], 0), 9), *s[2:]]
                    for s in slices[:MOST_SLICES]]}
        for name, slices in rows if slices
    ]
