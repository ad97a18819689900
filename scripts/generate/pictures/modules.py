"""The folders of the package in layers: each is above all folders that it imports."""

from __future__ import annotations

from functools import cache

from scripts.generate.pictures import drawing
from tests.support.imports import import_graph

#: Subfolders that are drawn as boxes inside their folder.
_COMPILER, _DRIVERS = "compiler", ("vulkan", "kompute", "null")
#: Modules beside the folders; they only re-export names or start a program.
_MODULES = ("__main__", "onnx_backend", "typing")
#: The contents of a folder, in the few words that fit into a box.
CAPTIONS = {
    "support": "errors, settings, promises, threads, forks, waiting",
    "codegen": "with shaders/: specs → GLSL → SPIR-V",
    "driver": "the driver interface, DeviceProfile",
    "types": "data types, descriptors, how operands lie in memory",
    "ops": "one record per operator",
    "ir": "values, nodes, graphs, their text; graph → ONNX",
    "passes": "graph → graph: folding, rewrites, placement",
    "kernels": "fusion, kernel families, schedules, cost model",
    "program": "the executable as plain data, saved graphs",
    "runtime": "timeline, devices, memory, set-up, CPU engines, tuning",
    "gpu": "our Vulkan device as an object",
    "profiler": "profiles, pictures of graphs",
    "api": "navigator, context, builder, tensor, graph; interop/",
    "onnx": "ONNX models in and out",
    "distributed": "Ray, Spark",
    "generate": "decoder models that write text",
    "bridge": "process of the npm package",
    "webnn_file": "graphs as text files",
    "examples": "programs that use public names only",
    "tools": "command line, doctor, demo, shader archive of the wheel",
}

_MARGIN, _GAP, _TOP, _HEIGHT, _PART = 12, 8, 48, 38, 24


def packages() -> dict[str, frozenset[str]]:
    """Folder → the folders that it imports. The compiler's folders and the drivers count
    separately."""
    found: dict[str, set[str]] = {}
    for module, targets in import_graph().items():
        own = _top(module)
        if own:
            found.setdefault(own, set()).update(filter(None, map(_top, targets)))
    return {name: frozenset(targets - {name}) for name, targets in found.items()}


def _top(module: str) -> str:
    parts = [*module.split("."), "", ""]
    return parts[2] if parts[1] == _COMPILER or parts[2] in _DRIVERS else parts[1]


def rows(graph: dict[str, frozenset[str]]) -> list[list[str]]:
    """The packages by the length of the longest chain of imports below them: the lowest first."""

    @cache
    def depth(name: str) -> int:
        return 1 + max((depth(target) for target in graph[name]), default=-1)

    count = 1 + max(map(depth, graph))
    return [sorted(name for name in graph if depth(name) == level) for level in range(count)]


def joined(graph: dict[str, frozenset[str]], members: dict[str, str]) -> dict[str, frozenset[str]]:
    """The graph with some packages merged: ``members`` maps each to its whole."""
    found: dict[str, set[str]] = {}
    for name, targets in graph.items():
        whole = members.get(name, name)
        found.setdefault(whole, set()).update(members.get(t, t) for t in targets)
    return {name: frozenset(targets - {name}) for name, targets in found.items()}


def layers() -> tuple[list[list[str]], list[str]]:
    """The folders in rows and the compiler's own in order, the lowest first."""
    graph = {
        name: targets - {*_MODULES} for name, targets in packages().items() if name not in _MODULES
    }
    parts = [n for n in ("types", "ops", "ir", "passes", "kernels", "program") if n in graph]
    inner = rows({name: graph[name] & {*parts} for name in parts})
    whole = dict.fromkeys(parts, _COMPILER) | dict.fromkeys(_DRIVERS, "driver")
    return rows(joined(graph, whole)), [name for row in inner for name in row]


def picture() -> str:
    """The SVG."""
    graph = packages()
    lines, inner = layers()
    middle, width = drawing.WIDTH / 2, drawing.WIDTH - 2 * _MARGIN
    parts = [
        drawing.text(middle, 22, "Folders in layers", anchor="middle"),
        drawing.text(middle, 38, "a folder imports only what stands below it; neighbours in a row "
                     "don't import each other", "dim small", "middle"),
    ]

    def box(name: str, x: float, y: float, width: float, height: float, kind: str) -> None:
        about = f"{name} imports " + (", ".join(sorted(graph[name])) or "nothing of the package")
        parts.append(drawing.rect(x, y, width, height, kind, about))

    def labelled(name: str, x: float, y: float, width: float, height: float) -> None:
        kind = {"support": "e", "codegen": "c", "driver": "c"}.get(name, "a")
        box(name, x, y, width, height, kind)
        parts.append(drawing.text(x + width / 2, y + 16, f"{name}/", anchor="middle"))
        parts.append(drawing.text(
            x + width / 2, y + 30, CAPTIONS[name], "text small", "middle"
        ))

    y = float(_TOP)
    for line in reversed(lines):
        if line == [_COMPILER]:
            height = 22 + len(inner) * (_PART + 4) + 4
            parts.append(drawing.rect(_MARGIN, y, width, height, "e"))
            parts.append(drawing.text(middle, y + 16, f"{_COMPILER}/", anchor="middle"))
            for number, name in enumerate(reversed(inner)):
                top = y + 22 + number * (_PART + 4)
                box(name, _MARGIN + _GAP, top, width - 2 * _GAP, _PART, "b")
                parts.append(drawing.text(_MARGIN + 2 * _GAP, top + 16, f"{name}/"))
                parts.append(drawing.text(
                    _MARGIN + 10 * _GAP, top + 16, CAPTIONS[name], "text small"
                ))
            y += height + _GAP
            continue
        each = (width - _GAP * (len(line) - 1)) / len(line)
        height = _HEIGHT + (_PART + 6) * ("driver" in line)
        for column, name in enumerate(line):
            x = _MARGIN + column * (each + _GAP)
            labelled(name, x, y, each, height)
            if name == "driver":
                small = (each - 4 * (len(_DRIVERS) + 1)) / len(_DRIVERS)
                for number, driver in enumerate(_DRIVERS):
                    left, top = x + 4 + number * (small + 4), y + _HEIGHT
                    box(driver, left, top, small, _PART, "d")
                    parts.append(drawing.text(
                        left + small / 2, top + 16, f"{driver}/", anchor="middle"
                    ))
        y += height + _GAP
    title = "The folders of webnn_vk in layers; each imports only what stands below it"
    return drawing.svg(y, title, parts)
