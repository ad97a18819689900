"""Folding: ranges of boxes in a large picture become groups that can be opened.

A picture's boxes are in topological order, so any division into ranges leaves a graph without
cycles. Repeated ranges (the layers of a transformer, the blocks of a residual network) become a
group each; otherwise ranges end where the fewest values flow on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from webnn_vk.support.dataclass import dataclass

from .picture import Picture

#: Pictures with at most this many boxes are not folded.
SHOWN = 36
#: About the number of members of a group where nothing repeats.
MEMBERS = 12
#: Values that are read this many boxes after their writer (or a third of all boxes) are ignored
#: when a picture is divided: masks that all layers read, long skip connections.
FAR = 48


@dataclass(frozen=True)
class Group:
    """Boxes of a picture, by number, and groups of boxes. ``title``: of the folded group."""

    title: str
    members: tuple[Group | int, ...]

    def boxes(self) -> list[int]:
        """The numbers of all boxes in the group."""
        return [n for m in self.members for n in ([m] if isinstance(m, int) else m.boxes())]


def folded(picture: Picture, most: int = SHOWN) -> Group:
    """The whole picture as one group. It contains groups where there are more than ``most`` boxes.
    Inputs and outputs are outside of inner groups."""
    inner = [n for n, box in enumerate(picture.boxes) if box.kind not in ("input", "output")]
    if len(inner) <= most:
        return Group(picture.title, tuple(range(len(picture.boxes))))
    members = _divided(picture, inner, most)
    by_first = {(m if isinstance(m, int) else m.boxes()[0]): m for m in members}
    kept = set(inner)
    order = [
        by_first[n] if n in kept else n for n in range(len(picture.boxes))
        if n not in kept or n in by_first
    ]
    return Group(picture.title, tuple(order))


def _divided(picture: Picture, boxes: Sequence[int], most: int) -> tuple[Group | int, ...]:
    """Consecutive boxes as members of a group."""
    if len(boxes) <= most:
        return tuple(boxes)
    flows = _flows(picture, boxes)
    narrow = min(flows[:-1])
    # Blocks, which may repeat, end where the fewest values flow on.
    ends = [0, *(n + 1 for n, flow in enumerate(flows[:-1]) if flow == narrow), len(boxes)]
    repeat = _repeat([
        tuple(picture.boxes[n].names for n in boxes[a:b])
        for a, b in zip(ends, ends[1:], strict=False)
    ])
    size = max(-(-len(boxes) // MEMBERS), 4)
    made: list[tuple[str, int, int]] = []
    at = 0
    if repeat is not None:
        start, period, count = repeat
        # Where there are very many repetitions, several form one group.
        together = -(-count // (2 * MEMBERS))
        period, count = period * together, count // together
        made += [("", a, b) for a, b in _even(flows, 0, ends[start], size)]
        for turn in range(count):
            at = ends[start + period * (turn + 1)]
            title = f"{turn + 1} of {count} alike"
            made.append((title, ends[start + period * turn], at))
    made += [("", a, b) for a, b in _even(flows, at, len(boxes), size)]
    members: list[Group | int] = []
    for title, begin, end in made:
        stretch = boxes[begin:end]
        # A few boxes are as clear as a group.
        if len(stretch) <= 3 and not title:
            members += stretch
        else:
            members.append(Group(title, _divided(picture, stretch, most)))
    return tuple(members)


def _flows(picture: Picture, boxes: Sequence[int]) -> list[int]:
    """The number of values that flow across the boundary after each box."""
    place = {number: at for at, number in enumerate(boxes)}
    ends: dict[tuple[int, int], int] = {}
    far = min(FAR, max(len(boxes) // 3, MEMBERS))
    for source, target, value in picture.edges():
        if source in place and target in place:
            key = place[source], value
            ends[key] = max(ends.get(key, 0), place[target])
    change = [0] * (len(boxes) + 1)
    for (start, _), end in ends.items():
        if end - start >= far:
            continue
        change[start] += 1
        change[end] -= 1
    flows, flow = [], 0
    for number in range(len(boxes)):
        flow += change[number]
        flows.append(flow)
    return flows


def _even(flows: Sequence[int], begin: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of about ``size`` from ``begin`` to ``end``, which end where few values flow on."""
    parts = -(-(end - begin) // size)
    last = begin
    for part in range(1, parts):
        ideal = begin + (end - begin) * part / parts
        first = max(round(ideal - size / 2), last + 1)
        around = range(first, min(round(ideal + size / 2), end - 1))
        if around:
            here = min(around, key=lambda n: (flows[n - 1], abs(n - ideal)))
            yield last, here
            last = here
    if last < end:
        yield last, end


def _repeat(blocks: Sequence[object]) -> tuple[int, int, int] | None:
    """(start, period, count) of the repetition that covers the most boxes, with the shortest
    period; None where nothing repeats. Periods of fewer than four boxes don't count."""
    best: tuple[int, int, int, int] | None = None
    sizes = [len(block) for block in blocks]  # type: ignore[arg-type]
    for period in range(1, len(blocks) // 2 + 1):
        run = 0
        for at in range(len(blocks) - period):
            run = run + 1 if blocks[at] == blocks[at + period] else 0
            count = run // period + 1
            if count < 2 or run % period:
                continue
            start = at + 1 - run
            unit = sum(sizes[start : start + period])
            found = (unit * count, -period, start, count)
            if unit >= 4 and (best is None or found[:2] > best[:2]):
                best = found
    if best is None or 2 * best[0] < sum(sizes):
        return None
    return best[2], -best[1], best[3]


def summary(picture: Picture, boxes: Sequence[int]) -> tuple[str, ...]:
    """The lines of a folded group: its size and its most common operators."""
    inner = [picture.boxes[n] for n in boxes]
    names = Counter(name for box in inner if box.kind != "copy" for name in box.names)
    kernels = sum(box.kind == "kernel" for box in inner)
    # Between passes every box is an operator.
    head = f"{names.total()} operator{'s' * (names.total() != 1)}"
    if kernels:
        head += f" in {kernels} kernel{'s' * (kernels != 1)}"
    common = [f"{name} ×{count}" if count > 1 else name for name, count in names.most_common(4)]
    on_cpu = sum(box.device == "cpu" for box in inner)
    said = [head, ", ".join(common[:2])]
    if common[2:]:
        said.append(", ".join(common[2:]) + (", …" if len(names) > 4 else ""))
    if on_cpu and on_cpu < len(inner):
        said.append(f"{on_cpu} of them on the CPU")
    return tuple(said)
