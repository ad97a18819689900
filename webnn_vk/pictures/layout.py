"""Where boxes stand: layers and columns by igraph's layered (Sugiyama) layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXTRA = "webnn_vk[pictures]"


class PicturesUnavailable(ImportError):
    """The library that lays out graphs is not installed."""


@dataclass(frozen=True)
class Arrangement:
    """``places``: (column, row) of each vertex; ``bends`` of each edge where it passes the rows
    between its ends. Columns are one apart at least; neither is a pixel."""

    places: tuple[tuple[float, int], ...]
    bends: tuple[tuple[tuple[float, int], ...], ...]


def arranged(count: int, edges: Sequence[tuple[int, int]]) -> Arrangement:
    """A layout of ``count`` vertices and edges that run downward, the same for the same graph.
    ``PicturesUnavailable`` without igraph."""
    try:
        import igraph
    except ImportError:
        raise PicturesUnavailable(
            f"graphs are laid out by igraph: pip install '{EXTRA}'"
        ) from None
    if not count:
        return Arrangement((), ())
    graph = igraph.Graph(count, list(edges), directed=True)
    layout = graph.layout_sugiyama(hgap=1, vgap=1)
    left = min(
        [x for x, _ in layout.coords] + [x for bends in layout.edge_routing for x, _ in bends]
    )

    def place(x: float, y: float) -> tuple[float, int]:
        return round(x - left, 3), round(y)

    return Arrangement(
        tuple(place(x, y) for x, y in layout.coords),
        tuple(tuple(place(x, y) for x, y in bends) for bends in layout.edge_routing),
    )
