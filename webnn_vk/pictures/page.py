"""Pictures in a page of HTML that needs nothing else: which of them, before and after each pass,
search, groups that open, dark and light."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from .picture import Picture
from .svg import fragment, legend, script, style

_DARK = ":root[data-theme=dark]"


def page(title: str, summary: str, pictures: Sequence[tuple[Picture, Picture]]) -> str:
    """The page of graphs before and after each pass (the same twice: a graph by itself).
    ``PicturesUnavailable`` without the library that lays out."""
    return filled(_text("graphs.html"), "/*GRAPHS*/null", {
        "title": title, "summary": summary, "legend": legend_html(), "graphs": drawn(pictures),
    })


def drawn(pictures: Sequence[tuple[Picture, Picture]]) -> list[dict[str, Any]]:
    """What ``panel`` of panel.js takes: titles and drawings."""
    return [
        {
            "title": f"{after.title}: {count(after)}", "svg": fragment(after),
            "before": None if before is after else fragment(before),
        }
        for before, after in pictures
    ]


def count(picture: Picture) -> str:
    """How much is in it, in words."""
    kinds = [box.kind for box in picture.boxes]
    kernels = kinds.count("kernel")
    others = sum(kind in ("node", "view", "copy") for kind in kinds)
    said = [(kernels, "kernel")] * bool(kernels)
    said += [(others, "other" if kernels else "operator")] * bool(others or not kernels)
    return ", ".join(f"{number} {name}{'s' * (number != 1)}" for number, name in said)


def filled(template: str, mark: str, data: Any) -> str:
    """A page with its data, and what pages share."""
    scripts = "\n".join([_text("page.js"), script(), _text("panel.js")])
    text = template.replace("/*STYLE*/", _text("page.css") + style(_DARK))
    text = text.replace("/*SCRIPT*/", scripts)
    # In a script "</" and "<!--" would end it or hide its end.
    return text.replace(mark, json.dumps(data).replace("<", "\\u003c"))


def legend_html() -> str:
    """What colours and borders mean."""
    return "".join(
        f'<span><svg class="picture" width="20" height="14"><g class="{classes}"><rect class="box" '
        f'x="1.5" y="1.5" width="17" height="11" rx="2"/></g></svg>{escape(text)}</span>'
        for classes, text in legend() if classes != "group"
    )


def _text(name: str) -> str:
    place = importlib.resources.files("webnn_vk.pictures").joinpath(name)
    return place.read_text(encoding="utf-8")
