"""Draws mutants: one small change each, at a random place of the code that decides results."""

from __future__ import annotations

import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

#: Folders whose code decides results.
FOLDERS = ("webnn_vk/compiler", "webnn_vk/runtime", "codegen", "shaders")
#: Files that decide speed, or what people read.
_APART = re.compile(
    r"cost|heuristic|tuning|tuner|describe|inspect|origins|/isa/|profil|message|texts?\.py|"
    r"templates\.json|\.pyi$|nanoseconds|__main__|__pycache__"
)
_SUFFIXES = (".py", ".j2", ".glsl")

#: By kind: tokens of Python and GLSL, and what each becomes.
_SWAPS = {
    "operator": {
        "+": "-", "*": "+", "//": "*", "/": "*", "%": "//", "<<": ">>", ">>": "<<", "&&": "||",
        "||": "&&", "==": "!=", "!=": "==", "and": "or", "or": "and", "min": "max", "max": "min",
        "all": "any", "any": "all",
    },
    "bound": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
    "sign": {"-": "+", "-=": "+=", "+=": "-="},
    "type": {
        "float": "int", "uint": "int", "int": "uint", "float32": "float16", "int32": "uint32",
        "uint32": "int32", "int64": "int32", "uint8": "int8", "int8": "uint8", "float16": "float32",
    },
}
#: Names of steps between elements, which a mutant raises by one.
_STRIDE = re.compile(r"\w*(?:stride|pitch|step|offset)\w*")
_BARRIER = re.compile(r"barrier\s*\(|Barrier\w*\(", re.IGNORECASE)
_GLSL = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\{#.*?#\}|#[^\n]*|\"[^\"\n]*\"|'[^'\n]*')|"
    r"[A-Za-z_]\w*|\d+|<<|>>|&&|\|\||[-+<>=!]=|[-+*/%<>]",
    re.DOTALL,
)
KINDS = (*_SWAPS, "number", "stride", "barrier")


@dataclass(frozen=True)
class Mutant:
    """``text`` at an offset of a file becomes ``by``."""

    file: str
    offset: int
    text: str
    by: str
    kind: str

    def __str__(self) -> str:
        line = (ROOT / self.file).read_text(encoding="utf-8")[: self.offset].count("\n") + 1
        return f"{self.kind}: {self.file}:{line}: {self.text!r} becomes {self.by!r}"

    def apply(self, root: Path) -> None:
        """Changes the file below ``root``, another checkout."""
        path = root / self.file
        source = path.read_text(encoding="utf-8")
        assert source.startswith(self.text, self.offset), f"{path} is of another commit"
        rest = source[self.offset + len(self.text):]
        path.write_text(source[: self.offset] + self.by + rest, encoding="utf-8")


def draw(seed: int, count: int) -> list[Mutant]:
    """Mutants of this seed: the kinds in turn, each at a place that chance chooses."""
    chance = random.Random(seed)
    places: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for path in files():
        for mutant in mutants(path):
            places[mutant.kind].append(mutant)
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    chance.shuffle(kinds)
    drawn: list[Mutant] = []
    for kind in kinds:
        found = chance.choice(places[kind])
        while found in drawn or not _valid(found):
            found = chance.choice(places[kind])
        drawn.append(found)
    return drawn


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in _SUFFIXES and not _APART.search(name):
                yield path


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a file."""
    source = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    tokens = _of_python(source) if path.suffix == ".py" else _of_glsl(source)
    for offset, text in tokens:
        for kind, swaps in _SWAPS.items():
            by = swaps.get(text)
            if by == "//" and path.suffix != ".py":
                by = "*"
            if by:
                yield Mutant(name, offset, text, by, kind)
        if text.isdigit():
            yield Mutant(name, offset, text, str(int(text) + 1), "number")
        elif _STRIDE.fullmatch(text) and not re.match(r"\s*[=(.,:)]", source[offset + len(text):]):
            yield Mutant(name, offset, text, f"({text} + 1)", "stride")
    offset = 0
    for line in source.splitlines(keepends=True):
        if _BARRIER.search(line) and not re.match(r"\s*(#|//|def |class |void )", line):
            indent = line[: len(line) - len(line.lstrip())]
            by = f"{indent}pass\n" if path.suffix == ".py" else "\n"
            yield Mutant(name, offset, line, by, "barrier")
        offset += len(line)


def _of_python(source: str) -> Iterator[tuple[int, str]]:
    """(offset, token), without docstrings, annotations, imports and the texts of errors."""
    tree = ast.parse(source)
    apart: set[int] = set()
    for node in ast.walk(tree):
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        nodes = [n for n in annotations if n is not None]
        if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, ast.Assert)):
            nodes.append(node)
        for found in nodes:
            apart.update(range(found.lineno, (found.end_lineno or found.lineno) + 1))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.OP, tokenize.NUMBER, tokenize.NAME):
            line, column = token.start
            if line not in apart:
                yield starts[line - 1] + column, token.string


def _of_glsl(source: str) -> Iterator[tuple[int, str]]:
    """(offset, token) of a template, without comments, directives and texts."""
    for match in _GLSL.finditer(source):
        if match["skip"] is None:
            yield match.start(), match[0]


def _valid(mutant: Mutant) -> bool:
    """Whether Python still reads the file. That a shader compiles shows in the tests."""
    if not mutant.file.endswith(".py"):
        return True
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    rest = source[mutant.offset + len(mutant.text):]
    try:
        ast.parse(source[: mutant.offset] + mutant.by + rest)
    except SyntaxError:
        return False
    return True
