"""The modules and packages in layers: each stands below all that import it."""

from __future__ import annotations

from functools import cache
from itertools import permutations

from tests.support.imports import import_graph
from tests.support.pictures import drawing

_BOX, _HEIGHT, _ROW, _COLUMNS, _TOP = 82, 24, 46, 5, 52
#: From the left edge to the first column, and from a column to the next.
_LEFT, _STEP = 9, 90
#: What stands beside the layers: Vulkan and other drivers, shaders.
_BESIDE = ("codegen", "kompute", "null", "vulkan")


def packages() -> dict[str, frozenset[str]]:
    """Folder → those that it imports. The compiler's folders and the drivers count on their own."""
    found: dict[str, set[str]] = {}
    for module, targets in import_graph().items():
        own = _top(module)
        if own:
            found.setdefault(own, set()).update(filter(None, map(_top, targets)))
    return {name: frozenset(targets - {name}) for name, targets in found.items()}


def _top(module: str) -> str:
    parts = [*module.split("."), "", ""]
    within = parts[1] == "compiler" or parts[2] in _BESIDE
    return parts[2] if within else parts[1]


def rows(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """The packages by how many stand below them at most: the lowest first."""

    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(target) for target in graph[name]), default=-1)

    count = 1 + max(map(depth, graph))
    return [sorted(name for name in graph if depth(name) == level) for level in range(count)]


def direct(graph: dict[str, frozenset[str]]) -> dict[str, list[str]]:
    """The imports that don't follow from others: the targets that no other target reaches."""

    @cache
    def reached(name: str) -> frozenset[str]:
        return graph[name].union(*(reached(target) for target in graph[name]))

    return {
        name: sorted(t for t in targets if not any(t in reached(o) for o in targets))
        for name, targets in graph.items()
    }


def placed(lines: list[list[str]], edges: list[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """The line and the column of each package: columns such that few edges run behind boxes, and
    short ones at that. Lines are looked at in turn, several times."""
    places = {
        name: (number, column + (_COLUMNS - len(names)) // 2)
        for number, names in enumerate(lines) for column, name in enumerate(names)
    }
    for _ in range(4):
        for number, names in enumerate(lines):
            tried = (
                {name: (number, column) for name, column in zip(names, columns, strict=True)}
                for columns in permutations(range(_COLUMNS), len(names))
            )
            places |= min(tried, key=lambda some: _cost({**places, **some}, edges))
    return places


def _cost(places: dict[str, tuple[int, int]], edges: list[tuple[str, str]]) -> float:
    taken = set(places.values())
    cost = 0.0
    for name, target in edges:
        (line, column), (to_line, to_column) = places[name], places[target]
        cost += abs(column - to_column)
        for between in range(line + 1, to_line):
            at = column + (to_column - column) * (between - line) / (to_line - line)
            cost += 4 * any(abs(at - c) < 0.5 for r, c in taken if r == between)
    return cost


def picture() -> str:
    """The SVG."""
    graph = packages()
    base, *others = rows(graph)
    edges = [
        (name, target) for name, targets in direct(graph).items()
        for target in targets if target not in base
    ]
    lines = list(reversed(others))
    places = placed(lines, edges)
    under = [base[start : start + _COLUMNS] for start in range(0, len(base), _COLUMNS)]
    places |= {
        name: (len(lines) + number, column)
        for number, names in enumerate(under) for column, name in enumerate(names)
    }
    points = {
        name: (_LEFT + column * _STEP, _TOP + line * _ROW)
        for name, (line, column) in places.items()
    }
    middle = drawing.WIDTH / 2
    parts = [
        drawing.text(middle, 22, "Who imports whom: downward only", anchor="middle"),
        drawing.text(middle, 38, "without what follows from other lines, and without the lowest "
                     "modules, which all use", "dim small", "middle"),
    ]
    for name, target in edges:
        (x, y), (to_x, to_y) = points[name], points[target]
        parts.append(drawing.line([
            (x + _BOX / 2, y + _HEIGHT), (to_x + _BOX / 2, to_y)
        ]))
    for name, (x, y) in points.items():
        kind = "e" if name in base else "c" if name in _BESIDE else "a"
        about = f"{name} imports " + (", ".join(sorted(graph[name])) or "nothing of the package")
        parts.append(drawing.rect(x, y, _BOX, _HEIGHT, kind, about))
        parts.append(drawing.text(
            x + _BOX / 2, y + 16, name, "text small" if len(name) > 10 else "text", "middle"
        ))
    height = _TOP + (len(lines) + len(under)) * _ROW
    title = "The modules of webnn_vk in layers; each imports only what stands below it"
    return drawing.svg(height, title, parts)
