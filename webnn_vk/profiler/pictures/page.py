"""A self-contained HTML page of pictures before and after each pass, with search, groups that open,
and a dark and a light theme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .picture import Picture
from .svg import fragment, templates


def page(title: str, summary: str, pictures: Sequence[tuple[Picture, Picture]]) -> str:
    """The page of graphs before and after each pass (a pair of the same picture: a single graph).
    Raises ``PicturesUnavailable`` without the layout library."""
    data = {"title": title, "summary": summary, "graphs": drawn(pictures)}
    return templates().get_template("pictures/graphs.html").render(kind="graph", data=data)


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
