"""A folded picture with positions: levels of boxes and groups, in pixels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webnn_vk.support.dataclass import dataclass

from .folding import Group, folded, summary
from .layout import arranged
from .picture import Box, Picture

#: Pixels: the width of a box, from one column to the next, between rows, of a line of text.
WIDTH, COLUMN, GAP, LINE = 212, 236, 30, 15
#: Characters that fit into a box, and lines of operators and values that one shows.
CHARACTERS, LINES = 28, 6
#: The margin around a picture and an open group, and the height of a group's title.
MARGIN, HEAD = 14, 24


@dataclass(frozen=True)
class Item:
    """An item of a level: a box, a group (``inner`` is its content) or, inside a group, a "from" or
    "to" that represents boxes outside. ``texts`` are its lines, ``flows`` the values that leave it,
    ``height`` its height without these. ``x`` is its centre, ``row`` its row."""

    kind: str
    texts: tuple[str, ...]
    height: int
    flows: tuple[str, ...] = ()
    device: str = ""
    mark: str = ""
    about: str = ""
    share: float | None = None
    inner: Level | None = None
    x: float = 0.0
    row: int = 0

    @property
    def whole(self) -> int:
        """Its height with the values below it."""
        return self.height + LINE * len(self.flows) + (4 if self.flows else 0)

    @property
    def title(self) -> str:
        """The title of an open group."""
        title = " · ".join(self.texts[:2])
        return title if len(title) <= CHARACTERS + 6 else self.texts[0]


@dataclass(frozen=True)
class Edge:
    """An edge between two items. ``start`` and ``end``: offsets from their centres; ``bends``: (x,
    row) on the way."""

    source: int
    target: int
    start: float
    end: float
    bends: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Level:
    """The content of a picture or a group, with all groups closed."""

    title: str
    items: tuple[Item, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float
    tops: tuple[float, ...]
    heights: tuple[int, ...]


def scene(picture: Picture, fold: bool = True) -> Level:
    """A picture with positions. Large ones are folded unless ``fold`` is False. Raises
    ``PicturesUnavailable`` without the layout library."""
    group = folded(picture) if fold else Group(picture.title, tuple(range(len(picture.boxes))))
    return _Scene(picture).level(group)


class _Scene:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.edges = list(picture.edges())
        self.total = picture.seconds

    def level(self, group: Group) -> Level:
        items: list[Item] = []
        place: dict[int, int] = {}
        for member in group.members:
            boxes = [member] if isinstance(member, int) else member.boxes()
            place |= dict.fromkeys(boxes, len(items))
            items.append(self._box(member) if isinstance(member, int) else self._group(member))
        links: dict[tuple[int, int, int], None] = {}
        outside: dict[int, int] = {}
        leaving: dict[int, list[int]] = defaultdict(list)
        for source, target, value in self.edges:
            if source in place and target in place:
                if place[source] != place[target]:
                    links[place[source], place[target], value] = None
            elif target in place:
                outside.setdefault(value, source)
            elif source in place:
                leaving[value].append(target)
        items, links = self._ends(items, links, place, outside, leaving)
        return _placed(group.title, self._with_flows(items, links), list(links))

    def _ends(
        self, items: list[Item], links: dict[tuple[int, int, int], None],
        place: Mapping[int, int], outside: Mapping[int, int], leaving: Mapping[int, Sequence[int]],
    ) -> tuple[list[Item], dict[tuple[int, int, int], None]]:
        """Add items that represent the boxes outside of a group."""
        labels = [box.label for box in self.picture.boxes]
        ends = [("from", value, f"from {labels[source]}") for value, source in outside.items()]
        for value, targets in leaving.items():
            many = f"{len(targets)}: " if len(targets) > 1 else ""
            ends.append(("to", value, f"to {many}{labels[targets[0]]}"))
        for kind, value, text in ends:
            # The edges' ends inside of the group.
            near = [(s, t)[kind == "from"] for s, t, v in self.edges if v == value]
            for at in dict.fromkeys(place[n] for n in near if n in place):
                pair = (len(items), at) if kind == "from" else (at, len(items))
                links[*pair, value] = None
            items.append(Item(kind, (cut(text),), 12 + LINE, about=text))
        return items, links

    def _with_flows(
        self, items: Sequence[Item], links: Mapping[tuple[int, int, int], None]
    ) -> list[Item]:
        flows: dict[int, dict[int, str]] = defaultdict(dict)
        for source, _, value in links:
            flows[source][value] = self.picture.values.get(value, "")
        return [
            replace(item, flows=_few(flows[number].values())) for number, item in enumerate(items)
        ]

    def _box(self, number: int) -> Item:
        box = self.picture.boxes[number]
        share = box.seconds / self.total if box.seconds is not None and self.total else None
        title = box.title if share is None else f"{cut(box.title, CHARACTERS - 8)}  {share:.1%}"
        about = "\n".join(filter(None, [box.label, *box.about, box.reason]))
        texts = (cut(title), *_few(box.operators))
        return Item(box.kind, texts, 12 + LINE * len(texts), device=box.device, mark=box.mark,
                    about=about, share=share)

    def _group(self, group: Group) -> Item:
        boxes = group.boxes()
        inner = [self.picture.boxes[n] for n in boxes]
        share = sum(b.seconds or 0.0 for b in inner) / self.total if self.total else None
        texts = tuple(
            cut(text) for text in (group.title, *summary(self.picture, boxes)) if text
        )
        if share is not None:
            texts = (*texts, f"{share:.1%} of the time")
        about = "\n".join(["click to open", *dict.fromkeys(b.label for b in inner)][:16])
        mark = next((box.mark for box in inner if box.mark), "")
        return Item("group", texts, 12 + LINE * len(texts), device=_device(inner), mark=mark,
                    about=about, share=share, inner=self.level(group))


def _device(boxes: Sequence[Box]) -> str:
    devices = {box.device for box in boxes}
    return devices.pop() if len(devices) == 1 else "both" if "cpu" in devices else "vulkan"


def cut(text: str, most: int = CHARACTERS) -> str:
    """The text, with its middle omitted if it is longer than ``most`` characters: names often begin
    alike."""
    half = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


def _few(texts: Iterable[str]) -> tuple[str, ...]:
    """The lines that a box shows of several."""
    lines = tuple(map(cut, texts))
    if len(lines) > LINES:
        lines = (*lines[: LINES - 1], f"and {len(lines) - LINES + 1} more")
    return lines


def _placed(
    title: str, items: Sequence[Item], links: Sequence[tuple[int, int, int]]
) -> Level:
    arrangement = arranged(len(items), [(s, t) for s, t, _ in links])
    placed = [
        replace(item, x=MARGIN + WIDTH / 2 + COLUMN * column, row=row)
        for item, (column, row) in zip(items, arrangement.places, strict=True)
    ]
    heights = [0] * (1 + max((item.row for item in placed), default=0))
    for item in placed:
        heights[item.row] = max(heights[item.row], item.whole)
    tops, at = [], float(MARGIN)
    for height in heights:
        tops.append(at)
        at += height + GAP
    bends = [
        tuple((MARGIN + WIDTH / 2 + COLUMN * column, row) for column, row in path)
        for path in arrangement.bends
    ]
    edges = tuple(_edges(placed, links, bends))
    right = max([item.x + WIDTH / 2 for item in placed] + [x + 8 for path in bends for x, _ in path]
                or [0.0])
    return Level(title, tuple(placed), edges, right + MARGIN, at - GAP + MARGIN, tuple(tops),
                 tuple(heights))


def _edges(
    items: Sequence[Item], links: Sequence[tuple[int, int, int]],
    bends: Sequence[tuple[tuple[float, int], ...]],
) -> Iterator[Edge]:
    """Edges that begin and end side by side: below a box ordered by value, above it by origin."""
    leaving: dict[int, list[int]] = defaultdict(list)
    coming: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for number, (source, target, value) in enumerate(links):
        if value not in leaving[source]:
            leaving[source].append(value)
        path = bends[number]
        coming[target].append((path[-1][0] if path else items[source].x, number))
    ends = {
        number: _spread(place, len(edges))
        for edges in coming.values() for place, (_, number) in enumerate(sorted(edges))
    }
    for number, (source, target, value) in enumerate(links):
        values = leaving[source]
        yield Edge(source, target, _spread(values.index(value), len(values)), ends[number],
                   bends[number])


def _spread(place: int, count: int) -> float:
    """The offset from the centre of a box for the end at this place out of ``count``."""
    room = min(WIDTH - 40, 36 * (count - 1))
    return round(room * (place / (count - 1) - 0.5), 1) if count > 1 else 0.0
