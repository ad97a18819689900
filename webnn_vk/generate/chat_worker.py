"""Renders a chat template, in a process of its own, with limits on time and memory.

A template is a program of the model's author. jinja2's sandbox keeps it from the interpreter's
objects, but not from nested loops or doubling a text. ``chat.py`` runs this file as a script: JSON
from stdin, {"text"} or {"error"} to stdout.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Any

#: Bytes of memory, seconds of processor time, and characters of the result.
MEMORY, SECONDS, CHARACTERS = 1 << 30, 2, 4_000_000


def main() -> None:
    """Read a request, render it, write the answer."""
    try:
        import resource

        for kind, limit in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, SECONDS)):
            resource.setrlimit(kind, (limit, limit))
    except (ImportError, ValueError, OSError):
        pass  # other systems than Linux: the caller ends the process after a time
    request = json.loads(sys.stdin.buffer.read())
    try:
        text = render(request["template"], request["values"])
        answer = {"text": text}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def render(template: str, values: dict[str, Any]) -> str:
    """The template's text, as transformers renders it."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %}: marks what the model writes, for those who train it."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: int | None = None,
        separators: tuple[str, str] | None = None, sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
            sort_keys=sort_keys,
        )

    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    parts, length = [], 0
    for part in environment.from_string(template).generate(**values):
        parts.append(part)
        length += len(part)
        if length > CHARACTERS:
            raise jinja2.TemplateError(f"the text has more than {CHARACTERS} characters")
    return "".join(parts)


if __name__ == "__main__":
    main()
