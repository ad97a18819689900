"""The imports between the package's modules, read from the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, which all callers share."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path, package: str) -> set[str]:
    """Absolute names that a file imports, including imports inside functions and for type checkers
    only."""
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*base, node.module or ""]).strip(".") if node.level else node.module
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return names


def modules() -> dict[str, Path]:
    """Every module of the package by its name, ``codegen`` included."""
    places = {
        "webnn_vk": ROOT / "webnn_vk",
        "webnn_vk.codegen": ROOT / "codegen",
        "webnn_vk.examples": ROOT / "examples",
    }
    named = {}
    for package, folder in places.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            named[".".join(parts).removesuffix(".__init__")] = path
    return named


def import_graph() -> dict[str, set[str]]:
    """Module → the modules of the package that it imports."""
    named = modules()
    graph = {}
    for name, path in named.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        targets = set()
        for target in imports(path, package):
            while target and target not in named:
                target = target.rpartition(".")[0]
            targets.add(target)
        graph[name] = targets - {"", name}
    return graph
