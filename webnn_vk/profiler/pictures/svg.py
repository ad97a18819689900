"""Scenes as SVG: a file or a fragment for a page."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from html import escape

from .picture import Picture
from .scene import CHARACTERS, COLUMN, GAP, HEAD, LINE, MARGIN, WIDTH, Edge, Item, Level, scene

#: The largest width of a character beside an edge, in pixels.
FLOW_CHARACTER = 7

_LIGHT = {
    "ground": "#fbfbfa", "card": "#ffffff", "ink": "#1d1f23", "faint": "#5f6670",
    "edge": "#8a929d", "plain": "#eceef1", "vulkan": "#dcebff", "vulkan-line": "#1f6feb",
    "cpu": "#ffe6cc", "cpu-line": "#b45309", "new": "#15803d", "gone": "#c0262d",
}
_DARK = {
    "ground": "#14161a", "card": "#1c1f25", "ink": "#e8eaed", "faint": "#a3abb6",
    "edge": "#7b8491", "plain": "#2a2e36", "vulkan": "#16304f", "vulkan-line": "#6cb0ff",
    "cpu": "#47290c", "cpu-line": "#f0a35a", "new": "#4ade80", "gone": "#ff7b80",
}
_RULES = """
.picture { font: 12px system-ui, sans-serif; background: var(--p-ground); }
.picture text { fill: var(--p-ink); font-size: 12px; }
.picture .flow, .picture .head, .picture .legend text { fill: var(--p-faint); font-size: 11px; }
.picture .flow { text-anchor: middle; }
.picture .behind { fill: var(--p-ground); } .picture .frame ~ g .behind { fill: var(--p-card); }
.picture .title { font-weight: 600; font-size: 14px; }
.picture .edge { fill: none; stroke: var(--p-edge); }
.picture .box { fill: var(--p-plain); stroke: var(--p-edge); }
.picture .vulkan > .box, .picture .vulkan > .shut > .box { fill: var(--p-vulkan); }
.picture .cpu > .box, .picture .cpu > .shut > .box { fill: var(--p-cpu);
  stroke: var(--p-cpu-line); }
.picture .both > .shut > .box { fill: var(--p-vulkan); stroke: var(--p-cpu-line); }
.picture .kernel > .box { stroke: var(--p-vulkan-line); stroke-width: 2; }
.picture .view > .box, .picture .from > .box, .picture .to > .box { fill: none;
  stroke-dasharray: 3 3; }
.picture .copy > .box { fill: var(--p-card); stroke: var(--p-cpu-line); stroke-dasharray: 6 3; }
.picture .group > .shut, .picture .group > .open > .bar { cursor: pointer; }
.picture .group > .shut > .under { fill: var(--p-plain); stroke: var(--p-edge); }
.picture .frame { fill: var(--p-card); stroke: var(--p-edge); stroke-dasharray: 8 4; }
.picture .bar { fill: var(--p-plain); }
.picture .new > .box, .picture .new > .shut > .box { stroke: var(--p-new); stroke-width: 3; }
.picture .gone > .box, .picture .gone > .shut > .box { stroke: var(--p-gone); stroke-width: 3;
  stroke-dasharray: 7 4; }
.picture .share { fill: var(--p-cpu-line); }
.picture .found > .box, .picture .found > .shut > .box { stroke: var(--p-ink); stroke-width: 4; }
.picture .current > .box { stroke: var(--p-vulkan-line); stroke-width: 5; }
.picture .lit > .box, .picture .lit > .shut > .box { stroke: var(--p-ink); }
"""


def style(dark: str) -> str:
    """The style sheet. ``dark``: the condition of the dark theme, a selector before ``.picture`` or
    a media query."""
    light = ".picture {" + "".join(f" --p-{k}: {v};" for k, v in _LIGHT.items()) + " }"
    night = "".join(f" --p-{k}: {v};" for k, v in _DARK.items())
    night = f"{dark} {{ .picture {{{night} }} }}" if dark.startswith("@") else \
        f"{dark} .picture {{{night} }}"
    return f"{light}\n{night}{_RULES}"


def resource(path: str) -> str:
    """The text of a file in the profiler's folder."""
    place = importlib.resources.files("webnn_vk.profiler").joinpath(path)
    return place.read_text(encoding="utf-8")


def svg(*pictures: Picture, fold: bool = True) -> str:
    """A file with pictures side by side. The viewer's settings select the light or dark theme, and
    folded groups open where scripts run (in a browser). Raises ``PicturesUnavailable`` without the
    layout library."""
    levels = [scene(picture, fold) for picture in pictures]
    explained, least = _legend(pictures, levels)
    width = max(sum(level.width for level in levels), least)
    height = max(level.height for level in levels) + 2 * HEAD + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" width="{_n(width)}" '
        f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" data-least="{_n(least)}">',
        f"<style>{style('@media (prefers-color-scheme: dark)')}</style>",
        explained,
        f'<g class="panels" transform="translate(0 {2 * HEAD})">',
    ]
    at = 0.0
    for level in levels:
        parts.append(f'<g class="panel" transform="translate({_n(at)} 0)">')
        parts.append(f'<text class="title" x="{MARGIN}" y="4">{escape(level.title)}</text>')
        parts += _level(level, hover=False)
        parts.append("</g>")
        at += level.width
    parts += ["</g>", f"<script><![CDATA[\n{resource('pictures/open.js')}]]></script>", "</svg>"]
    return "\n".join(parts) + "\n"


def fragment(picture: Picture, fold: bool = True) -> str:
    """The picture without style and script, for a page that has both; ``data-tip`` has the texts to
    show on hovering."""
    level = scene(picture, fold)
    return "".join([
        f'<svg class="picture" role="img" aria-label="{escape(picture.title)}" '
        f'width="{_n(level.width)}" height="{_n(level.height)}">',
        *_level(level, hover=True), "</svg>",
    ])


def legend() -> tuple[tuple[str, str], ...]:
    """Classes of boxes and their meanings."""
    return (
        ("group", "click to open"), ("kernel", "one kernel"), ("vulkan", "on the device"),
        ("cpu", "on the CPU"), ("new", "made"), ("gone", "taken away"),
    )


def _legend(pictures: Sequence[Picture], levels: Sequence[Level]) -> tuple[str, float]:
    """The legend of the classes that occur, and its width."""
    boxes = [box for picture in pictures for box in picture.boxes]
    seen = {word for box in boxes for word in (box.mark, box.kind, box.device)}
    seen |= {item.kind for level in levels for item in level.items}
    parts = [f'<g class="legend" transform="translate({MARGIN} {MARGIN})">']
    at = 0
    for classes, text in legend():
        if classes in seen:
            if classes == "group":
                parts.append(f'<g class="group"><g class="shut"><rect class="under" x="{at + 3}" '
                             'y="-5" width="18" height="12" rx="2"/></g></g>')
            parts.append(f'<g class="{classes}"><rect class="box" x="{at}" y="-8" width="18" '
                         f'height="12" rx="2"/></g><text x="{at + 26}" y="3">{text}</text>')
            at += 40 + 7 * len(text)
    return "".join([*parts, "</g>"]), 2.0 * MARGIN + at


def _level(level: Level, hover: bool) -> Iterator[str]:
    yield '<g class="level"><g class="edges">'
    for edge in level.edges:
        bends = ";".join(f"{_n(x)},{row}" for x, row in edge.bends)
        yield (f'<path class="edge" data-edge="{edge.source},{edge.target},{_n(edge.start)},'
               f'{_n(edge.end)}" data-bends="{bends}" d="{_path(level, edge)}"/>')
    yield '</g><g class="items">'
    for item in level.items:
        yield from _item(level, item, hover)
    yield "</g></g>"


def _path(level: Level, edge: Edge) -> str:
    """A path, straight in rows and curved between them, with an arrow head; as in open.js."""
    source, target = level.items[edge.source], level.items[edge.target]
    x, y = source.x + edge.start, level.tops[source.row] + level.heights[source.row]
    path = f"M{_n(x)} {_n(level.tops[source.row] + source.height)}V{_n(y)}"
    for column, row in edge.bends:
        path += _curve(x, y, column, level.tops[row])
        x, y = column, level.tops[row] + level.heights[row]
        path += f"V{_n(y)}"
    return path + _curve(x, y, target.x + edge.end, level.tops[target.row]) + "m-3 -6l3 6l3 -6"


def _curve(x: float, y: float, column: float, top: float) -> str:
    """A curve from the bottom of a row to the top of the next."""
    half = GAP / 2
    return f"C{_n(x)} {_n(y + half)} {_n(column)} {_n(top - half)} {_n(column)} {_n(top)}"


def _item(level: Level, item: Item, hover: bool) -> Iterator[str]:
    classes = " ".join(filter(None, ("item", item.kind, item.device, item.mark)))
    left, top = item.x - WIDTH / 2, level.tops[item.row]
    tip = f' data-tip="{escape(item.about)}"' if hover else ""
    title = "" if hover else f"<title>{escape(item.about)}</title>"
    place = f'transform="translate({_n(left)} {_n(top)})" data-at="{_n(item.x)},{item.row},' \
            f'{item.height},{len(item.flows)}"'
    if item.inner is None:
        yield f'<g class="{classes}" {place}{tip}>{title}'
        yield from _shape(item)
    else:
        yield f'<g class="{classes}" {place}>'
        yield f'<g class="shut" tabindex="0" role="button" aria-expanded="false"{tip}>{title}'
        yield f'<rect class="under" x="4" y="4" width="{WIDTH}" height="{item.height}" rx="4"/>'
        yield from _shape(item)
        yield '</g><g class="open" style="display: none">'
        width, height = item.inner.width, item.inner.height + HEAD
        title = " · ".join(item.texts[:2])
        title = title if len(title) <= CHARACTERS + 6 else item.texts[0]
        yield (f'<rect class="frame" width="{_n(width)}" height="{_n(height)}" rx="6"/>'
               f'<rect class="bar" tabindex="0" role="button" aria-expanded="true" '
               f'width="{_n(width)}" height="{HEAD}" rx="6"/>'
               f'<text class="head" x="10" y="16" pointer-events="none">− {escape(title)}</text>'
               f'<g transform="translate(0 {HEAD})">')
        yield from _level(item.inner, hover)
        yield "</g></g>"
    yield '<g class="flows">'
    for number, text in enumerate(item.flows):
        y = item.height + LINE * number + 16
        # Hides edges behind the text, which would look like letters.
        wide = min(FLOW_CHARACTER * len(text) + 8, COLUMN)
        yield (f'<rect class="behind" x="{_n(WIDTH / 2 - wide / 2)}" y="{y - 11}" '
               f'width="{_n(wide)}" height="{LINE}"/>')
        yield f'<text class="flow" x="{_n(WIDTH / 2)}" y="{y}">{escape(text)}</text>'
    yield "</g></g>"


def _shape(item: Item) -> Iterator[str]:
    round_ = 12 if item.kind in ("input", "output") else 4
    yield f'<rect class="box" width="{WIDTH}" height="{item.height}" rx="{round_}"/>'
    if item.share is not None:
        yield (f'<rect class="share" x="1" y="{item.height - 3}" '
               f'width="{_n(max(item.share * (WIDTH - 2), 0.5))}" height="3"/>')
    for number, text in enumerate(item.texts):
        head = ' class="head"' if item.kind == "kernel" and not number else ""
        yield f'<text{head} x="9" y="{18 + LINE * number}">{escape(text)}</text>'


def _n(value: float) -> str:
    """A number of pixels as a short text."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
