"""Folding: stretches of a large picture become groups that can be opened.

A picture's boxes stand in topological order, so that any division of it into stretches leaves a
graph without circles. Repeated stretches (the layers of a transformer, the blocks of a residual
network) become a group each; else boundaries are where the least flows across.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .picture import Picture

#: So many boxes are shown without folding.
SHOWN = 36
#: About so many members a group gets where nothing repeats.
MEMBERS = 12
#: A value that is read so far behind its writer, in boxes (or a third of all), says nothing about
#: where to divide: a mask that all layers read, the skip connection around half of the network.
FAR = 48


@dataclass(frozen=True)
class Group:
    """Members: numbers of a picture's boxes and groups of them. ``title`` of the folded group."""

    title: str
    members: tuple[Group | int, ...]

    def boxes(self) -> list[int]:
        """The numbers of all boxes in it."""
        return [n for m in self.members for n in ([m] if isinstance(m, int) else m.boxes())]


def folded(picture: Picture, most: int = SHOWN) -> Group:
    """The whole picture as one group: with groups in it where there are more than ``most`` boxes.
    Inputs and outputs stay outside of the others."""
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
    """The boxes, consecutive ones, as members of a group."""
    if len(boxes) <= most:
        return tuple(boxes)
    flows = _flows(picture, boxes)
    narrow = min(flows[:-1], default=0)
    # Blocks end where the least flows on.
    ends = [n + 1 for n, flow in enumerate(flows[:-1]) if flow == narrow] + [len(boxes)]
    blocks = [boxes[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    if len(blocks) == 1:
        ends = list(range(MEMBERS, len(boxes), MEMBERS)) + [len(boxes)]
        blocks = [boxes[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    made: list[tuple[str, Sequence[int]]] = []
    repeat = _repeat([tuple(picture.boxes[n].names for n in block) for block in blocks])
    if repeat is None:
        made = [("", stretch) for stretch in _even(blocks, len(boxes))]
    else:
        start, period, count = repeat
        before, after = blocks[:start], blocks[start + period * count :]
        made += [("", stretch) for stretch in _even(before, len(boxes))]
        for turn in range(count):
            at = start + turn * period
            stretch = [n for block in blocks[at : at + period] for n in block]
            made.append((f"{turn + 1} of {count} alike", stretch))
        made += [("", stretch) for stretch in _even(after, len(boxes))]
    members: list[Group | int] = []
    for title, stretch in made:
        # A few boxes are no less clear than a group of them.
        if len(stretch) <= 3 and not title:
            members += stretch
        elif len(stretch) == len(boxes):
            members += [Group(title, tuple(stretch[i : i + MEMBERS]))
                        for i in range(0, len(stretch), MEMBERS)]
        else:
            members.append(Group(title, _divided(picture, stretch, most)))
    return tuple(members)


def _flows(picture: Picture, boxes: Sequence[int]) -> list[int]:
    """How many values flow across the boundary behind each of the boxes."""
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


def _even(blocks: Sequence[Sequence[int]], total: int) -> list[Sequence[int]]:
    """Blocks joined to stretches of about equal size: few enough to be shown at once."""
    size = max(-(-total // MEMBERS), 4)
    stretches: list[list[int]] = []
    for block in blocks:
        if not stretches or len(stretches[-1]) + len(block) > size:
            stretches.append([])
        stretches[-1] += block
    return [s for s in stretches if s]


def _repeat(blocks: Sequence[object]) -> tuple[int, int, int] | None:
    """(start, period, count) of the repetition that covers most of the blocks, in the fewest of
    them at a time; None where nothing repeats. What has one box alone is no repetition."""
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
    """What a folded group says: how much is in it, and what most of it is."""
    inner = [picture.boxes[n] for n in boxes]
    names = Counter(name for box in inner for name in box.names)
    kernels = sum(box.kind == "kernel" for box in inner)
    # Between passes every box is an operator.
    head = f"{sum(names.values())} operators"
    if kernels:
        head += f" in {kernels} kernels"
    common = [f"{name} ×{count}" if count > 1 else name for name, count in names.most_common(4)]
    on_cpu = sum(box.device == "cpu" for box in inner)
    said = [head, ", ".join(common[:2])]
    if common[2:]:
        said.append(", ".join(common[2:]) + (", …" if len(names) > 4 else ""))
    if on_cpu and on_cpu < len(inner):
        said.append(f"{on_cpu} of them on the CPU")
    return tuple(said)
