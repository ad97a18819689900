"""Interfaces of templates: buffers, parameters, constants and options with their legal values.

For the library's templates this is in `shaders/templates.json`, which is generated from the kernels
that the library makes (`python -m scripts.generate templates`). For other templates it is
read from their text: what they load and store, and which options they use.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from typing import Any

from .arguments import template_name, write_spec
from .render import SHADERS, template_info, template_texts
from .spec import KernelSpec

#: The generated file.
TABLE = SHADERS / "templates.json"

_CALL = re.compile(r"\b(load|store)(4?)_([A-Za-z]\w*)\s*\(")
_PARAM = re.compile(r"\bP\.([A-Za-z]\w*)")


@functools.cache
def table() -> dict[str, Any]:
    """The contents of the generated file; empty where it is missing."""
    try:
        return json.loads(TABLE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def describe(name: str) -> str:
    """`description` as text, with a command line that works for a template of the library. Raises
    RenderError for an unknown name."""
    found = description(name)
    lines = [f"{found['template']}: {found['comment'] or '(no description)'}", ""]
    if "command" not in found:
        return "\n".join([*lines, *_read_from_text(found)])
    for kind, title in (("buffers", "buffers (data type : access : width)"),
                        ("params", "parameters (P.NAME)"),
                        ("constants", "specialisation constants (beside LX, LY, LZ)"),
                        ("options", "options")):
        lines.append(f"{title}:")
        lines += [f"    {row}" for row in _rows(found[kind])] or ["    none"]
    return "\n".join([*lines, "", "for example:", f"    {shlex.join(found['command'])}"])


def _rows(found: dict[str, Any]) -> list[str]:
    width = max(map(len, found), default=0)
    return [
        f"{name:<{width}}  {' | '.join(entry['values'])}"
        + f"  (for example; {entry['of']} are in use)" * (entry["of"] > len(entry["values"]))
        + "  (not always)" * (not entry["always"])
        for name, entry in found.items()
    ]


def description(name: str) -> dict[str, Any]:
    """The interface of a template, for JSON: "template", "comment", "buffers", "params",
    "constants" and "options" as in `table()`, and "command", the words of an example. For a
    template that is not in the library, the interface comes from its text: "buffers" by name with
    "access" and "width", and the names of "params" and "options". Raises RenderError for an
    unknown name."""
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
    """The buffers and parameters that a template's text uses."""
    text = template_texts(name)[name]
    buffers: dict[str, dict[str, Any]] = {}
    for verb, four, buffer in _CALL.findall(text):
        found = buffers.setdefault(buffer, {"access": "", "width": 1})
        found["access"] = "".join(sorted({*found["access"], "r" if verb == "load" else "w"}))
        found["width"] = 4 if four else found["width"]
    return {"buffers": buffers, "params": list(dict.fromkeys(_PARAM.findall(text)))}


def _read_from_text(found: dict[str, Any]) -> list[str]:
    """The lines for a template without declared types."""
    lines = ["read from its text:", "    buffers"]
    for buffer, use in found["buffers"].items():
        wide = ":4" * (use["width"] == 4)
        lines.append(f"        --buffer {buffer}:TYPE:{use['access']}{wide}")
    lines.append("    parameters")
    lines += [f"        --param {param}" for param in found["params"]]
    lines.append("    options")
    lines += [f"        --option {option}=VALUE" for option in found["options"]]
    return lines
