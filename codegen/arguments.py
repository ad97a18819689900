"""A `KernelSpec` on the command line: read from its arguments, and written as them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from .spec import Buffer, Constant, KernelSpec, Param, SpecError


def template_name(text: str) -> str:
    """The full name of a template; `copy` means `copy.comp.j2`."""
    return text if text.endswith(".j2") else f"{text}.comp.j2"


def read_spec(
    template: str,
    *,
    buffers: Sequence[str] = (),
    params: Sequence[str] = (),
    constants: Sequence[str] = (),
    options: Sequence[str] = (),
    features: Sequence[str] = (),
) -> KernelSpec:
    """The spec described by texts in the forms of `webnn_vk.codegen --help`. Raises SpecError."""
    return KernelSpec(
        template_name(template),
        tuple(map(_buffer, buffers)),
        tuple(map(_param, params)),
        tuple(map(_constant, constants)),
        tuple(map(_option, options)),
        frozenset(features),
    )


def write_spec(spec: KernelSpec) -> list[str]:
    """The command-line arguments for a spec: the template, then options."""
    words = [spec.template.removesuffix(".comp.j2")]
    for b in spec.buffers:
        words += ["--buffer", _joined(b.name, (b.data_type, b.access, b.width, b.portions, b.load),
                                      (None, "r", 1, 1, "storage"))]
    for p in spec.params:
        words += ["--param", _joined(p.name, (p.type, p.count), ("uint", 1))]
    for c in spec.constants:
        words += ["--constant", _joined(c.name, (c.type, c.default), ("uint", 1))]
    for name, value in spec.options:
        words += ["--option", f"{name}={_written(value)}"]
    for feature in sorted(spec.features):
        words += ["--feature", feature]
    return words


def _joined(name: str, values: Sequence[Any], defaults: Sequence[Any]) -> str:
    """Fields joined by colons, without defaults at the end."""
    count = len(values)
    while count and values[count - 1] == defaults[count - 1]:
        count -= 1
    return ":".join(map(str, (name, *values[:count])))


def _written(value: Any) -> str:
    if isinstance(value, str):
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return value
    return repr(value)


def _fields(text: str, most: int) -> list[str]:
    fields = text.split(":")
    if len(fields) > most:
        raise SpecError(f"{text!r}: at most {most} parts separated by ':' are accepted")
    return fields


def _int(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise SpecError(f"{text!r} is no whole number") from None


def _buffer(text: str) -> Buffer:
    name, *rest = _fields(text, 6)
    if not rest:
        raise SpecError(f"buffer {text!r}: NAME:TYPE is needed")
    return Buffer(name, *rest[:2], *map(_int, rest[2:4]), *rest[4:])


def _param(text: str) -> Param:
    name, *rest = _fields(text, 3)
    return Param(name, *rest[:1], *map(_int, rest[1:]))


def _constant(text: str) -> Constant:
    name, *rest = _fields(text, 3)
    if len(rest) < 2:
        return Constant(name, *rest)
    return Constant(name, rest[0], float(rest[1]) if rest[0] == "float" else _int(rest[1]))


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"option {text!r}: NAME=VALUE is accepted")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
