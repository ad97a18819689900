"""A self-contained HTML page of pictures before and after each pass, with search, groups that open,
and a dark and a light theme."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from .picture import Picture
from .svg import fragment, legend, resource, style

_DARK = ":root[data-theme=dark]"


def page(title: str, summary: str, pictures: Sequence[tuple[Picture, Picture]]) -> str:
    """The page of graphs before and after each pass (a pair of the same picture: a single graph).
    Raises ``PicturesUnavailable`` without the layout library."""
    return filled("graph", resource("pictures/graphs.html"), {
        "title": title, "summary": summary, "legend": legend_html(), "graphs": drawn(pictures),
    }, script=resource("pictures/graphs.js"))


def drawn(pictures: Sequence[tuple[Picture, Picture]]) -> list[dict[str, Any]]:
    """The argument of ``panel`` in panel.js: titles and drawings."""
    return [
        {
            "title": f"{after.title}: {count(after)}", "svg": fragment(after),
            "before": None if before is after else fragment(before),
        }
        for before, after in pictures
    ]


def count(picture: Picture) -> str:
    """The number of kernels and operators, in words."""
    kinds = [box.kind for box in picture.boxes]
    kernels = kinds.count("kernel")
    others = sum(kind in ("node", "view", "copy") for kind in kinds)
    said = [(kernels, "kernel")] * bool(kernels)
    said += [(others, "other" if kernels else "operator")] * bool(others or not kernels)
    return ", ".join(f"{number} {name}{'s' * (number != 1)}" for number, name in said)


def filled(kind: str, body: str, data: Any, *, script: str, css: str = "") -> str:
    """A page of a ``kind`` such as "graph": the common parts of all pages, ``body``, and ``data``,
    which ``script`` uses as a constant of this name."""
    shared = (resource(f"pictures/{name}.js") for name in ("page", "open", "panel"))
    parts = {
        "<!--KIND-->": kind,
        "<!--HEAD-->": kind.capitalize(),
        "/*STYLE*/": resource("pictures/page.css") + style(_DARK) + css,
        "<!--BODY-->": body,
        "/*SCRIPT*/": "\n".join([*shared, script]),
        # In a script "</" and "<!--" would end it or hide its end.
        "/*DATA*/null": json.dumps(data).replace("<", "\\u003c"),
    }
    text = resource("pictures/shell.html")
    for mark, part in parts.items():
        text = text.replace(mark, part, 1)
    return text


def legend_html() -> str:
    """The legend of colours and borders."""
    return "".join(
        f'<span><svg class="picture" width="20" height="14"><g class="{classes}"><rect class="box" '
        f'x="1.5" y="1.5" width="17" height="11" rx="2"/></g></svg>{escape(text)}</span>'
        for classes, text in legend() if classes != "group"
    )
