"""A profile as Chrome's Trace Event Format (JSON object form), for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webnn_vk.support.errors import sanitize

from .report import Recorded, ReportLine, title_of

#: The rows in order: thread numbers and names.
ROWS = {1: "runs", 2: "batches", 3: "CPU steps", 4: "kernels", 5: "transfers"}
_PROCESS = 1


def trace(found: Recorded) -> dict[str, Any]:
    """The trace: times in microseconds from the beginning of the profile."""
    events = [*_names(found), *_slices(found), *_counters(found)]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _names(found: Recorded) -> Iterator[dict[str, Any]]:
    process = {"name": f"webnn_vk on {sanitize(found.device)}"}
    yield {"ph": "M", "pid": _PROCESS, "tid": 0, "name": "process_name", "args": process}
    for number, name in ROWS.items():
        yield {"ph": "M", "pid": _PROCESS, "tid": number, "name": "thread_name",
               "args": {"name": name}}
        yield {"ph": "M", "pid": _PROCESS, "tid": number, "name": "thread_sort_index",
               "args": {"sort_index": number}}


def _slice(
    row: int, name: str, kind: str, start: float, end: float, **about: Any
) -> dict[str, Any]:
    start = max(start, 0.0)
    return {"ph": "X", "pid": _PROCESS, "tid": row, "name": name, "cat": kind,
            "ts": round(start * 1e6, 3), "dur": round(max(end - start, 0.0) * 1e6, 3),
            "args": about}


def _slices(found: Recorded) -> Iterator[dict[str, Any]]:
    for number, run in enumerate(found.runs):
        # Runs overlap, as one waits while others run, so these are asynchronous events.
        for phase, at in (("b", run.queued), ("e", max(run.done, run.queued))):
            yield {"ph": phase, "pid": _PROCESS, "tid": 1, "id": number, "cat": "run",
                   "name": f"run {number} of graph {run.program}",
                   "ts": round(max(at, 0.0) * 1e6, 3),
                   "args": {"waited_us": round((run.begun - run.queued) * 1e6, 3)}}
    for batch in found.batches:
        yield _slice(2, f"put together {batch.works} works", "host", batch.begun, batch.submitted)
    for one in found.hosts:
        line = found.line_of(one)
        yield _slice(3, _title(line), "cpu", one.start, one.end, run=one.run, kernel=line.kernel,
                     variant=line.variant)
    for one in found.kernels:
        line = found.line_of(one)
        yield _slice(
            4, _title(line), "kernel", one.start, one.end, run=one.run, line=one.line,
            kernel=line.kernel, variant=line.variant, groups=line.groups, flops=line.flops,
            bytes=line.bytes,
        )
    for kind, size, start, end in found.transfers:
        yield _slice(5, kind, "transfer", start, end, bytes=size)


def _title(line: ReportLine) -> str:
    return title_of(line.operators) or line.kernel


def _counters(found: Recorded) -> Iterator[dict[str, Any]]:
    """The used bytes of the arena when kernels begin."""
    live = [
        [sum(b.size for b in memory.blocks if b.first <= line <= b.last)
         for line in range(memory.lines)]
        for memory in found.memory
    ]
    for one in found.kernels:
        yield {"ph": "C", "pid": _PROCESS, "tid": 0, "name": "intermediates",
               "ts": round(max(one.start, 0.0) * 1e6, 3),
               "args": {"bytes": live[one.graph][one.line]}}
