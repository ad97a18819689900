"""The shaders' function library (`shaders/lib`, names `w_…`). Only the functions that a kernel
calls, directly or indirectly, are inserted, so that the compiler has little to parse."""

from __future__ import annotations

import functools
import re

import jinja2

from webnn_vk.support.dataclass import dataclass

#: The line of a rendered text that the functions replace.
MARK = "//<functions>"

_FILES = (
    "float", "float_exp", "float_trig", "float_half", "half", "integer", "low_precision", "int64",
)
_NAME = re.compile(r"\b[wW]_\w+")
_DEFINITION = re.compile(r"(?:const )?\w+ ([wW]_\w+)")
_COMMENT = re.compile(r"//.*")


@dataclass(frozen=True)
class _Library:
    """blocks: the texts in order, each with the name it defines ("": always included). needs: name
    -> the names that it needs directly or indirectly, including itself."""

    blocks: tuple[tuple[str, str], ...]
    needs: dict[str, frozenset[str]]


def _blocks(text: str) -> list[tuple[str, str]]:
    """Top-level definitions with the comments right above them, as (name, text)."""
    blocks, lines, name, depth = [], [], None, 0
    for line in text.splitlines():
        if not line and name is None:
            lines = []  # a comment on the file
            continue
        lines.append(line)
        if line.startswith("//"):
            continue
        if name is None:
            match = _DEFINITION.match(line)
            name = match.group(1) if match else ""
        depth += sum(map(line.count, "({")) - sum(map(line.count, ")}"))
        if depth == 0 and line.endswith(("}", ";")):
            blocks.append((name, "\n".join(lines)))
            lines, name = [], None
    return blocks


@functools.cache
def _library(
    environment: jinja2.Environment, int64_used: bool, int64_native: bool, exact_conversions: bool
) -> _Library:
    blocks = []
    for file in _FILES[: None if int64_used else -1]:
        template = environment.get_template(f"lib/{file}.glsl.j2")
        blocks += _blocks(template.render(
            int64_native=int64_native, exact_conversions=exact_conversions
        ))
    direct: dict[str, set[str]] = {}
    for name, text in blocks:
        direct.setdefault(name, set()).update(_NAME.findall(_COMMENT.sub("", text)))
    direct = {name: {n for n in names if n in direct} for name, names in direct.items()}
    needs = {}
    for name in direct:
        reached, front = {name}, [name]
        while front:
            front = [n for f in front for n in direct[f] if n not in reached]
            reached.update(front)
        needs[name] = frozenset(reached)
    return _Library(tuple(blocks), needs)


def insert_functions(
    text: str, environment: jinja2.Environment, *, int64_used: bool, int64_native: bool,
    exact_conversions: bool,
) -> str:
    """`text` with its line `MARK` replaced by the library functions it calls, callees first."""
    library = _library(environment, int64_used, int64_native, exact_conversions)
    reached = {""}
    for name in set(_NAME.findall(text)) & library.needs.keys():
        reached |= library.needs[name]
    chosen = "\n".join(block for name, block in library.blocks if name in reached)
    return text.replace(MARK, chosen, 1)
