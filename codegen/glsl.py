"""The source of a shader, and the errors of GLSL compilers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from webnn_vk.support.dataclass import dataclass

_LONGEST_STATEMENT = 20_000

#: The target of modules, and its version of SPIR-V: what a device must support.
TARGET, SPIRV_VERSION = "vulkan1.2", (1, 5)

# A directive that reads a file, with comments and blanks inside.
_INCLUDE = re.compile(r"#(?:\s|\0|/\*.*?\*/)*include", re.DOTALL)
# A backslash at the end of a line, by which compilers join lines.
_JOINED_LINES = re.compile(r"\\[ \t\f\v]*(?:\r\n|\n|\r)")


# The beginning of a compiler's error, with the line of the GLSL.
_ERROR = re.compile(r"(?:ERROR: [^\n:]*:|\.comp:)(\d+):")


class GlslError(RuntimeError):
    """GLSL that does not compile. `log`: the compiler's messages; `text`: the whole source;
    `origins`: FILE:LINE of the template that each line of it comes from, if known."""

    def __init__(self, name: str, log: str, text: str, origins: Sequence[str] = ()) -> None:
        self.name, self.log, self.text = name, log.strip(), text
        told = "\n".join(_located(line, origins) for line in self.log.splitlines())
        excerpt = _excerpt(self.log, text)
        super().__init__(f"{name}: the GLSL does not compile\n{told}\n{excerpt}")


def _located(line: str, origins: Sequence[str]) -> str:
    """A line of a log, preceded by its place in a template."""
    error = _ERROR.search(line)
    number = int(error[1]) if error else 0
    origin = origins[number - 1] if 0 < number <= len(origins) else ""
    return f"{origin}: {line}" if origin else line


class CompilerUnavailable(RuntimeError):
    """A compiler was found but cannot be loaded or run, or does not work.

    ``temporary``: files, memory, processes or disk space are short, so it may work again later.
    """

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        self.temporary = temporary
        super().__init__(message)


@dataclass(frozen=True)
class Source:
    """One shader to compile: its GLSL, and its name in error messages.

    Raises ValueError for a zero byte and for an extremely long statement, which could crash a
    compiler, and for `#include`: the text may be untrusted, and compilers open any file it names.
    """

    text: str
    name: str = "shader"

    def __post_init__(self) -> None:
        # A C string would end there, so the library would compile only the part before.
        if "\0" in self.text:
            raise ValueError(f"{self.name}: the GLSL contains a zero byte")
        # Refused in comments too, and whether lines are joined or not: only the compiler knows
        # where a comment ends, and the library's shaders need no include.
        for text in (self.text, _JOINED_LINES.sub("", self.text)):
            if _INCLUDE.search(text):
                raise ValueError(
                    f"{self.name}: the GLSL has an #include; no file is read, so insert the "
                    "text instead"
                )
        # glslang parses a + b + c + … by recursion: 100,000 terms overflow the stack.
        longest = max(map(len, self.text.split(";")))
        if longest > _LONGEST_STATEMENT:
            raise ValueError(
                f"{self.name}: a GLSL statement of {longest} characters; at most "
                f"{_LONGEST_STATEMENT} are accepted"
            )


def _excerpt(log: str, text: str, around: int = 3, most: int = 3) -> str:
    """The numbered GLSL lines around the first errors of the log."""
    numbers = [int(n) for n in _ERROR.findall(log)]
    lines = text.splitlines()
    shown: list[str] = []
    last = 0
    for number in sorted(dict.fromkeys(numbers))[:most]:
        first = max(number - around, last + 1)
        if shown and first > last + 1:
            shown.append("      ...")
        for i in range(first, min(number + around, len(lines)) + 1):
            shown.append(f"{'>' if i == number else ' '}{i:5d} {lines[i - 1]}")
            last = i
    return "\n".join(shown)
