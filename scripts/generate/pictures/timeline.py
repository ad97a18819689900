"""The timeline: calls of two contexts on one device, and the batches that the scheduler makes of
them."""

from __future__ import annotations

from types import SimpleNamespace

from scripts.generate.pictures import drawing
from webnn_vk.runtime.schedule import PlannedBatch, Schedule, StreamState
from webnn_vk.runtime.throttle import Cost, throttle_of
from webnn_vk.runtime.work import Run, RunGraph

#: The caller of each call, in the order of the calls; the third needs the CPU inside its graph.
CALLS = (
    ("A", "write_tensor"), ("A", "dispatch"), ("A", "dispatch (CPU step)"), ("B", "write_tensor"),
    ("B", "dispatch"), ("A", "read_tensor"), ("B", "read_tensor"),
)
_HOST = 2
_ROW, _TOP, _BOX = 34, 84, 24
_CALLS, _BATCHES, _WIDE, _NARROW = 14, 232, 158, 212
_KINDS = {"A": "a", "B": "b"}


def batches() -> list[tuple[list[int], bool]]:
    """The batches in the order in which they start: the numbers of their calls, and whether the CPU
    does a part. The CPU's part ends when no other batch can start."""
    schedule = Schedule(throttle_of(None), streams=2)
    streams = {name: StreamState() for name in ("A", "B")}
    works = []
    for number, (stream, name) in enumerate(CALLS):
        if name.startswith("dispatch"):
            graph = SimpleNamespace(cost=Cost(seconds=0.001), on_host=number == _HOST)
            works.append(RunGraph(graph, {}, {}))
        else:
            works.append(Run(lambda: None, lambda error: None))
        schedule.append(streams[stream], works[-1:])
    found: list[tuple[list[int], bool]] = []
    on_host: list[PlannedBatch] = []
    while True:
        batch = schedule.next()
        if batch is None and not on_host:
            return found
        if batch is None:
            schedule.host_done(on_host.pop(0))
            continue
        if batch.stream is not None:
            on_host.append(batch)
        numbers = [next(n for n, work in enumerate(works) if work is w) for w in batch.works]
        found.append((numbers, batch.stream is not None))


def picture() -> str:
    """The SVG."""
    middle = drawing.WIDTH / 2
    parts = [
        drawing.text(middle, 22, "Calls become batches", anchor="middle"),
        drawing.text(middle, 38, "two contexts, A and B, on one device; as runtime/schedule.py "
                     "decides", "dim small", "middle"),
        drawing.text(_CALLS, 66, "calls return at once", "dim"),
        drawing.text(_BATCHES, 66, "batches, in the order of their start", "dim"),
    ]
    y = float(_TOP)
    boxes = []
    for numbers, host in batches():
        height = 20.0 * len(numbers) + 26
        where = "the CPU's part, on A's thread" if host else "one submit to the device"
        boxes.append(drawing.rect(_BATCHES, y, _NARROW, height, "c" if host else "e"))
        boxes.append(drawing.text(_BATCHES + 8, y + 16, where, "dim small"))
        for row, number in enumerate(numbers):
            stream, name = CALLS[number]
            line = y + 26 + 20 * row
            boxes.append(drawing.rect(_BATCHES + 8, line - 4, _NARROW - 16, 18, _KINDS[stream]))
            boxes.append(drawing.text(
                _BATCHES + 14, line + 9, f"{number + 1}  {stream}: {name}", "text small"
            ))
            start = _TOP + number * _ROW + _BOX / 2
            parts.append(drawing.line([
                (_CALLS + _WIDE, start), (_BATCHES - 1, line + 5)
            ], arrow=True))
        y += height + 14
    for number, (stream, name) in enumerate(CALLS):
        top = _TOP + number * _ROW
        boxes.append(drawing.rect(_CALLS, top, _WIDE, _BOX, _KINDS[stream]))
        boxes.append(drawing.text(_CALLS + 8, top + 16, f"{number + 1}  {stream}: {name}"))
    notes = (
        "What A calls behind its CPU step waits for it; B goes on.",
        "A second thread waits for the ends of batches and resolves",
        "promises, each context's in the order of its calls.",
    )
    y = max(y, _TOP + len(CALLS) * _ROW) + 8
    for note in notes:
        boxes.append(drawing.text(_CALLS, y + 6, note, "dim"))
        y += 18
    title = "Calls of two contexts and the batches that they become"
    return drawing.svg(y + 6, title, parts + boxes)
