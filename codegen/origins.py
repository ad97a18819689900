"""The origins of the lines of a kernel's GLSL, as template and line, for error messages.

The kernel is rendered again with a mark before each line of its templates' text. Included files,
macros and loops need no special treatment: their output has their marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jinja2
import jinja2.ext
from jinja2.lexer import Token, TokenStream

from .glsl import GlslError
from .library import MARK
from .render import environment, render, shown, variables
from .spec import KernelSpec

# Characters of the private-use area, which GLSL does not contain.
_OPEN, _CLOSE = "\ue000", "\ue001"
_PLACE = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class _Marks(jinja2.ext.Extension):
    """Puts a mark before each line of text in templates. ``places``: FILE:LINE by number of mark.
    """

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self.places: list[str] = []

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        file = shown(stream.filename, stream.name)
        for token in stream:
            if token.type == "data":
                lines = token.value.split("\n")
                marked = [self._mark(f"{file}:{token.lineno + i}") for i in range(len(lines))]
                text = "\n".join(map("".join, zip(marked, lines, strict=True)))
                token = Token(token.lineno, token.type, text)
            yield token

    def _mark(self, place: str) -> str:
        self.places.append(place)
        return f"{_OPEN}{len(self.places) - 1}{_CLOSE}"


def origins(spec: KernelSpec) -> list[str]:
    """FILE:LINE of each line of `render(spec)`; "" if unknown. Empty where the marks change the
    output of the templates."""
    plain = render(spec).splitlines()
    marking: Any = environment().overlay(extensions=[_Marks], cache_size=-1)
    try:
        marked = marking.get_template(spec.template).render(variables(spec))
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError):
        return []
    places = marking.extensions[_Marks.identifier].places
    texts, found = [], []
    for line in marked.split("\n"):
        text = _PLACE.sub("", line)
        # Use the last mark before the text. Marks before it are of earlier, empty lines.
        start = line[: len(line) - len(_after_marks(line))]
        numbers = _PLACE.findall(start)
        texts.append(text)
        found.append(places[int(numbers[-1])] if numbers else "")
    if MARK in texts:
        at = texts.index(MARK)
        count = len(plain) - len("\n".join(texts).splitlines()) + 1
        texts[at : at + 1] = plain[at : at + count]
        found[at : at + 1] = ["function library"] * count
    return found[: len(plain)] if texts[: len(plain)] == plain else []


def _after_marks(line: str) -> str:
    return re.sub(rf"\A(?:\s|{_PLACE.pattern})*", "", line)


def placed(error: GlslError, spec: KernelSpec) -> GlslError:
    """The error of a kernel's GLSL with lines of the templates besides lines of the GLSL."""
    return GlslError(error.name, error.log, error.text, origins(spec))
