"""The positions of boxes: rows and columns by fast-sugiyama's layered layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webnn_vk.support import packages
from webnn_vk.support.dataclass import dataclass

#: The library's unit; it rounds to fractions of it.
_SPACING = 64.0
#: The distance between values with the same path, in columns.
_BESIDE = 0.04

Place = tuple[float, int]
Link = tuple[int, int]


class PicturesUnavailable(ImportError):
    """The library that lays out graphs is not installed."""


@dataclass(frozen=True)
class Arrangement:
    """``places``: (column, row) of each vertex; ``bends``: where each edge crosses the rows between
    its ends. Columns in a row are at least one apart, except for edges with the same ends. Columns
    and rows are not pixels."""

    places: tuple[Place, ...]
    bends: tuple[tuple[Place, ...], ...]


def arranged(count: int, edges: Sequence[Link]) -> Arrangement:
    """A layout of ``count`` vertices with downward edges, the same for the same graph. Raises
    ``PicturesUnavailable`` without fast-sugiyama."""
    places: dict[int, Place] = {}
    paths: dict[Link, list[Place]] = {}
    right = 0.0
    # Unconnected parts are placed side by side, in the order of their first vertices.
    for vertices in _parts(count, edges):
        inside = set(vertices)
        there, bends = _arranged_part(vertices, sorted({e for e in edges if e[0] in inside}))
        places |= {n: (right + x, row) for n, (x, row) in there.items()}
        paths |= {e: [(right + x, row) for x, row in bent] for e, bent in bends.items()}
        right += 1 + max(x for x, _ in [*there.values(), *(p for b in bends.values() for p in b)])
    return Arrangement(
        tuple(places[n] for n in range(count)),
        tuple(
            tuple((round(x + _BESIDE * edges[:n].count(edge), 3), row) for x, row in paths[edge])
            for n, edge in enumerate(edges)
        ),
    )


def _parts(count: int, edges: Sequence[Link]) -> list[list[int]]:
    """The connected parts of a graph."""
    parts = [[n] for n in range(count)]
    for a, b in edges:
        if parts[a] is not parts[b]:
            parts[a] += parts[b]
            for n in parts[b]:
                parts[n] = parts[a]
    return sorted((sorted(part) for part in {id(p): p for p in parts}.values()), key=min)


def _arranged_part(
    vertices: Sequence[int], edges: Sequence[Link]
) -> tuple[dict[int, Place], dict[Link, list[Place]]]:
    """The place of each vertex, and the bends of each edge. Edges must be distinct, or the
    library's shortest ranking does not terminate."""
    missing = packages.problem("laying out graphs needs", "pictures")
    if missing:
        raise PicturesUnavailable(missing)
    try:
        from fast_sugiyama import from_edges
    except ImportError as error:  # installed, but broken
        raise PicturesUnavailable(f"fast-sugiyama can't be imported: {error}") from None
    if not edges:
        return {vertices[0]: (0.0, 0)}, {}
    number = {n: place for place, n in enumerate(vertices)}
    ((positions, _, _, links),) = from_edges(
        [(number[a], number[b]) for a, b in edges], vertex_spacing=_SPACING, dummy_vertices=True,
        dummy_size=_SPACING, ranking_type="minimize", check_layout=False,
    )
    # The library's axes begin on the right and at the bottom.
    most, top = (max(along) for along in zip(*(xy for _, xy in positions), strict=True))
    there = {
        n: (round((most - x) / _SPACING, 3), round((top - y) / _SPACING))
        for n, (x, y) in positions
    }
    return (
        {vertices[n]: place for n, place in there.items() if n < len(vertices)},
        {(vertices[path[0]], vertices[path[-1]]): [there[n] for n in path[1:-1]]
         for path in _paths(len(vertices), links or ())},
    )


def _paths(count: int, links: Sequence[Link]) -> Iterator[list[int]]:
    """The paths between vertices, through the dummy vertices (numbers from ``count`` on) that the
    library inserts in the rows between them."""
    onward = {a: b for a, b in links if a >= count}
    for start, at in links:
        if start < count:
            path = [start, at]
            while path[-1] >= count:
                path.append(onward[path[-1]])
            yield path
