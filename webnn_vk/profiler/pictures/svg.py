"""Scenes as SVG: a file or a fragment for a page."""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import Any

import jinja2

from . import scene as measures
from .picture import Picture
from .scene import GAP, HEAD, MARGIN, Edge, Level, scene

#: The largest width of a character beside an edge, in pixels.
FLOW_CHARACTER = 7
#: Classes of boxes and their meanings.
LEGEND = (
    ("group", "click to open"), ("kernel", "one kernel"), ("vulkan", "on the device"),
    ("cpu", "on the CPU"), ("new", "made"), ("gone", "taken away"),
)


def resource(path: str) -> str:
    """The text of a file in the profiler's folder."""
    place = importlib.resources.files("webnn_vk.profiler").joinpath(path)
    return place.read_text(encoding="utf-8")


@functools.cache
def templates() -> jinja2.Environment:
    """The templates of pages and pictures, and the files that they include."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource), undefined=jinja2.StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )
    environment.filters |= {"px": _pixels, "in_script": _in_script}
    names = ("WIDTH", "COLUMN", "LINE", "MARGIN", "HEAD")
    environment.globals |= {name: getattr(measures, name) for name in names}
    environment.globals |= {"path": _path, "FLOW_CHARACTER": FLOW_CHARACTER, "LEGEND": LEGEND}
    return environment


def macros() -> Any:
    """The macros of ``picture.svg.j2``."""
    return templates().get_template("pictures/picture.svg.j2").module


def svg(*pictures: Picture, fold: bool = True) -> str:
    """A file with pictures side by side. The viewer's settings select the light or dark theme, and
    folded groups open where scripts run (in a browser). Raises ``PicturesUnavailable`` without the
    layout library."""
    levels = [scene(picture, fold) for picture in pictures]
    seen = {word for picture in pictures for box in picture.boxes
            for word in (box.mark, box.kind, box.device)}
    seen |= {item.kind for level in levels for item in level.items}
    legend, at = [], 0
    for classes, text in LEGEND:
        if classes in seen:
            legend.append((classes, text, at))
            at += 40 + 7 * len(text)
    least = 2.0 * MARGIN + at
    width = max(sum(level.width for level in levels), least)
    height = max(level.height for level in levels) + 2 * HEAD + MARGIN
    return str(macros().file(levels, legend, width, height, least))


def fragment(picture: Picture, fold: bool = True) -> str:
    """The picture without style and script, for a page that has both; ``data-tip`` has the texts to
    show on hovering."""
    return str(macros().fragment(scene(picture, fold), picture.title))


def _path(level: Level, edge: Edge) -> str:
    """A path, straight in rows and curved between them, with an arrow head; as in open.js."""
    source, target = level.items[edge.source], level.items[edge.target]
    x, y = source.x + edge.start, level.tops[source.row] + level.heights[source.row]
    path = f"M{_pixels(x)} {_pixels(level.tops[source.row] + source.height)}V{_pixels(y)}"
    for column, row in edge.bends:
        path += _curve(x, y, column, level.tops[row])
        x, y = column, level.tops[row] + level.heights[row]
        path += f"V{_pixels(y)}"
    return path + _curve(x, y, target.x + edge.end, level.tops[target.row]) + "m-3 -6l3 6l3 -6"


def _curve(x: float, y: float, column: float, top: float) -> str:
    """A curve from the bottom of a row to the top of the next."""
    points = (x, y + GAP / 2, column, top - GAP / 2, column, top)
    return "C" + " ".join(map(_pixels, points))


def _in_script(data: Any) -> str:
    """Data as a constant of a script, which "</" and "<!--" would end or hide."""
    return json.dumps(data).replace("<", "\\u003c")


def _pixels(value: float) -> str:
    """A number of pixels as a short text."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
