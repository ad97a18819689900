"""A profile as one self-contained HTML page: it needs no network and no other files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from webnn_vk.support.formatting import duration

from .pictures import Picture, PicturesUnavailable, of_program
from .pictures.page import drawn
from .pictures.svg import templates
from .report import ProfileReport, Recorded, title_of

#: The number of timeline slices in a page; longer profiles are cut.
MOST_SLICES = 20_000
#: Explanations of the host's times.
_ABOUT = {
    "waiting in the queue": "a run, from its call until its batch is begun",
    "putting together": "a batch: recorded and staged",
    "CPU steps": "operators that the CPU computes",
    "device at work": "a batch, from its submission until its end was seen",
}


def page(
    found: Recorded, report: ProfileReport, passes: Sequence[tuple[Picture, Picture]] = ()
) -> str:
    """The page's text. ``passes``: pictures of a graph before and after each pass."""
    data = {**contents(found, report), **_graphs(found, passes)}
    return templates().get_template("page.html").render(kind="profile", data=data)


def _graphs(
    found: Recorded, passes: Sequence[tuple[Picture, Picture]]
) -> dict[str, Any]:
    """The graphs that ran, with the shares of their kernels, then the graphs between passes."""
    seconds: list[dict[int, float]] = [defaultdict(float) for _ in found.programs]
    totals = [0.0] * len(found.programs)
    for one in found.measured_slices():
        totals[one.graph] += one.seconds
        # Successive CPU steps are timed together, so their separate times are unknown.
        if one.last in (None, one.line):
            seconds[one.graph][one.line] += one.seconds
    ran = [
        of_program(program, f"graph {n}, as it ran" if n else "as it ran", found.lines[n],
                   seconds[n], totals[n])
        for n, program in enumerate(found.programs)
    ]
    try:
        graphs = drawn([*((picture, picture) for picture in ran), *passes])
    except PicturesUnavailable as error:
        return {"graphs": [], "notdrawn": str(error)}
    return {"graphs": graphs, "notdrawn": "No graph ran."}


def contents(found: Recorded, report: ProfileReport) -> dict[str, Any]:
    """The contents of the page besides the graphs, as plain data; times in seconds."""
    return {
        **asdict(report), "facts": _facts(report),
        "kernels": [
            {**asdict(k), "operators": title_of(k.operators), "roof": k.share_of(report.roofline)}
            for k in report.kernels
        ],
        "sums": [
            *[(h.name, h.count, h.seconds, _ABOUT.get(h.name, "")) for h in report.host],
            *[(t.kind, t.count, t.seconds, f"{t.bytes / 1e6:.3f} MB, time on the device")
              for t in report.transfers],
        ],
        "rows": _rows(found),
        "memory": [{**asdict(m), "bases": _bases(m.blocks)} for m in report.memory],
        "names": [[title_of(line.operators) for line in lines] for lines in found.lines],
    }


def _facts(report: ProfileReport) -> list[tuple[str, str, str]]:
    """The facts at the top of the page: names, values and explanations."""
    facts = [
        ("runs of graphs", str(report.runs), f"in {duration(report.seconds)}"),
        ("measured", f"{report.measured} of {report.runs}",
         "" if report.every is None else f"one in {report.every}"),
        ("kernels on the device", duration(report.kernel_seconds), "in what was measured"),
        ("steps on the CPU", duration(report.host_seconds), "in what was measured"),
        ("transfers", duration(sum(t.seconds for t in report.transfers)), "on the device"),
    ]
    if not report.timed:
        facts.append(("times of kernels", "none", "the device writes no timestamps"))
    elif report.stamp_seconds:
        facts.append(("measuring cost", report.cost,
                      f"of the time; {duration(report.stamp_seconds)} a timestamp"))
    if report.roofline is not None:
        facts.append(("the device can do", f"{report.roofline.flops / 1e9:.1f} GFLOP/s",
                      f"{report.roofline.bandwidth / 1e9:.1f} GB/s of memory"))
        if (share := report.share) is not None:
            facts.append(("the kernels reach", f"{share:.0%}", "of that, all together"))
    return facts


def _bases(blocks: Any) -> list[int]:
    """The start of each block of the arena when blocks are drawn above each other."""
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
    rows: list[tuple[str, str, list[list[Any]]]] = [
        ("waiting", _ABOUT["waiting in the queue"], [
            [r.queued, r.begun, f"run {n} waits", "wait"] for n, r in enumerate(found.runs)
        ]),
        ("batches", _ABOUT["putting together"], [
            [b.begun, b.submitted, f"{b.works} works put together", "host"] for b in found.batches
        ]),
        ("CPU steps", _ABOUT["CPU steps"], [
            [s.start, s.end, title_of(line.operators), line.kernel]
            for s in found.hosts for line in [found.line_of(s)]
        ]),
        ("kernels", "kernels at work on the device", [
            [s.start, s.end, title_of(line.operators), line.kernel]
            for s in found.kernels for line in [found.line_of(s)]
        ]),
        ("transfers", "copies to, from and on the device", [
            [start, end, f"{kind} {size} bytes", kind] for kind, size, start, end in found.transfers
        ]),
    ]
    return [
        {"name": name, "about": about, "left_out": max(len(slices) - MOST_SLICES, 0),
         "slices": [[round(max(s[0], 0), 9), round(max(s[1], 0), 9), *s[2:]]
                    for s in slices[:MOST_SLICES]]}
        for name, about, slices in rows if slices
    ]
