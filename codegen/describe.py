"""What a template wants: its buffers, parameters, constants and options with their legal values.

For the library's templates that is in `shaders/templates.json`, which is generated from the kernels
that the library makes (`python -m tests.support.generate templates`). Of other templates it is read
from their text: what they load, store and look at.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from .arguments import template_name, write_spec
from .render import SHADERS, template_info, template_texts
from .spec import Buffer, KernelSpec

#: The generated file.
TABLE = SHADERS / "templates.json"

#: An option with more values than this is told by an example.
MOST_VALUES = 12

_CALL = re.compile(r"\b(load|store)(4?)_([A-Za-z]\w*)\s*\(")
_PARAM = re.compile(r"\bP\.([A-Za-z]\w*)")


def summarise(specs: Iterable[KernelSpec]) -> dict[str, Any]:
    """Template → what these specs have, as plain JSON data: every name with all its variants, and
    the shortest spec as an example."""
    by_template: dict[str, list[KernelSpec]] = {}
    for spec in specs:
        by_template.setdefault(spec.template, []).append(spec)
    return {name: _summary(group) for name, group in sorted(by_template.items())}


def _summary(specs: Sequence[KernelSpec]) -> dict[str, Any]:
    rows: dict[str, list[list[tuple[str, str]]]] = {
        "buffers": [
            [(b.name, _buffer(b)) for b in s.buffers] for s in specs
        ],
        "params": [
            [(p.name, p.type if p.count == 1 else f"{p.type}[{p.count}]") for p in s.params]
            for s in specs
        ],
        "constants": [
            [(c.name, f"{c.type} = {c.default}") for c in s.constants] for s in specs
        ],
        "options": [[(name, repr(value)) for name, value in s.options] for s in specs],
    }
    shortest = min(specs, key=lambda spec: (len(spec.key()), spec.key()))
    return {
        **{kind: _variants(lists) for kind, lists in rows.items()},
        "example": shortest.to_json(),
    }


def _buffer(b: Buffer) -> str:
    texel = f":{b.portions}:{b.load}" * (b.load != "storage")
    return f"{b.data_type}:{b.access}:{b.width}{texel}"


def _variants(lists: Sequence[Sequence[tuple[str, str]]]) -> dict[str, Any]:
    """Name → "values", sorted (of too many, the shortest one alone), "of" how many, and "always":
    whether every spec has it."""
    found: dict[str, set[str]] = {}
    times: dict[str, int] = {}
    for row in lists:
        for name, value in row:
            found.setdefault(name, set()).add(value)
            times[name] = times.get(name, 0) + 1
    return {
        name: {
            "values": sorted(values) if len(values) <= MOST_VALUES
            else [min(values, key=lambda value: (len(value), value))],
            "of": len(values),
            "always": times[name] == len(lists),
        }
        for name, values in found.items()
    }


@functools.cache
def table() -> dict[str, Any]:
    """The generated file's contents; empty where it is missing."""
    try:
        return json.loads(TABLE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def describe(name: str) -> str:
    """A template in words, with a command line that works for those of the library. Raises
    RenderError where there is none of that name."""
    name = template_name(name)
    about = template_info(name)
    lines = [f"{name}: {about.comment or '(no description)'}", ""]
    known = table().get(name)
    if known is None:
        return "\n".join([*lines, *_read_from_text(name, about.options)])
    for kind, title in (("buffers", "buffers (data type : access : width)"),
                        ("params", "parameters (P.NAME)"),
                        ("constants", "specialisation constants (beside LX, LY, LZ)"),
                        ("options", "options")):
        lines.append(f"{title}:")
        lines += [f"    {row}" for row in _rows(known[kind])] or ["    none"]
    example = KernelSpec.from_json(known["example"])
    command = shlex.join(["python", "-m", "webnn_vk.codegen", "compile", *write_spec(example)])
    return "\n".join([*lines, "", "for example:", f"    {command}"])


def _rows(found: dict[str, Any]) -> list[str]:
    width = max(map(len, found), default=0)
    return [
        f"{name:<{width}}  {' | '.join(entry['values'])}"
        + f"  (for example; {entry['of']} are in use)" * (entry["of"] > len(entry["values"]))
        + "  (not always)" * (not entry["always"])
        for name, entry in found.items()
    ]


def description(name: str) -> dict[str, Any]:
    """The same for JSON: "template", "comment", "buffers", "params", "constants", "options" as
    `table()` has them, and "command", the example's words. For a template that is none of the
    library's, what its text tells: "buffers" by name with "access" and "width", the names of
    "params" and "options". Raises RenderError."""
    name = template_name(name)
    about = template_info(name)
    found: dict[str, Any] = {"template": name, "comment": about.comment}
    known = table().get(name)
    if known is None:
        return {**found, **_in_text(name), "options": list(about.options)}
    kinds = {kind: known[kind] for kind in ("buffers", "params", "constants", "options")}
    example = write_spec(KernelSpec.from_json(known["example"]))
    return {**found, **kinds,
            "command": ["python", "-m", "webnn_vk.codegen", "compile", *example]}


def _in_text(name: str) -> dict[str, Any]:
    """The buffers and parameters that a template's own text uses."""
    text = template_texts(name)[name]
    buffers: dict[str, dict[str, Any]] = {}
    for verb, four, buffer in _CALL.findall(text):
        found = buffers.setdefault(buffer, {"access": "", "width": 1})
        found["access"] = "".join(sorted({*found["access"], "r" if verb == "load" else "w"}))
        found["width"] = 4 if four else found["width"]
    return {"buffers": buffers, "params": list(dict.fromkeys(_PARAM.findall(text)))}


def _read_from_text(name: str, options: Sequence[str]) -> list[str]:
    """What the text of a template without declared types tells."""
    found = _in_text(name)
    lines = ["read from its text:", "    buffers"]
    for buffer, use in found["buffers"].items():
        wide = ":4" * (use["width"] == 4)
        lines.append(f"        --buffer {buffer}:TYPE:{use['access']}{wide}")
    lines.append("    parameters")
    lines += [f"        --param {param}" for param in found["params"]]
    lines.append("    options")
    lines += [f"        --option {option}=VALUE" for option in options]
    return lines
