"""What a GLSL compiler takes, and the errors that it answers with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST_STATEMENT = 20_000

#: What modules are made for: the version of Vulkan -> that of SPIR-V. A device has to have both.
TARGETS = {"vulkan1.2": (1, 5), "vulkan1.3": (1, 6)}

# A directive that reads a file, with the comments and blanks that may stand in it.
_INCLUDE = re.compile(r"#(?:\s|\0|/\*.*?\*/)*include", re.DOTALL)
# What compilers join lines by: a backslash at the end of one.
_JOINED_LINES = re.compile(r"\\[ \t\f\v]*(?:\r\n|\n|\r)")


# How compilers begin an error: with the line of the GLSL.
_ERROR = re.compile(r"(?:ERROR: [^\n:]*:|\.comp:)(\d+):")


class GlslError(RuntimeError):
    """GLSL that does not compile. `log` is the compiler's, `text` the whole source. `origins`:
    FILE:LINE of the template that each line of it comes from, where there is one."""

    def __init__(self, name: str, log: str, text: str, origins: Sequence[str] = ()) -> None:
        self.name, self.log, self.text = name, log.strip(), text
        told = "\n".join(_located(line, origins) for line in self.log.splitlines())
        excerpt = _excerpt(self.log, text)
        super().__init__(f"{name}: the GLSL does not compile\n{told}\n{excerpt}")


def _located(line: str, origins: Sequence[str]) -> str:
    """A line of a log, with its place in a template before it."""
    error = _ERROR.search(line)
    number = int(error[1]) if error else 0
    origin = origins[number - 1] if 0 < number <= len(origins) else ""
    return f"{origin}: {line}" if origin else line


class CompilerUnavailable(RuntimeError):
    """A compiler that was found but cannot be loaded or run, or that does not do its work.

    ``passing``: for want of files, memory, processes or room on the disk; it may work again later.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        self.passing = passing
        super().__init__(message)


@dataclass(frozen=True)
class Source:
    """One shader to compile: its GLSL, the name that errors mention, and which of `TARGETS` it is
    for.

    Raises ValueError for what could crash a compiler, a zero byte or an extremely long statement,
    and for `#include`: the text may be anyone's, and compilers open whatever file it names.
    """

    text: str
    name: str = "shader"
    target: str = "vulkan1.2"

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise ValueError(
                f"{self.name}: target {self.target!r}; accepted: {', '.join(TARGETS)}"
            )
        # A C string ends there: the library would compile the part before.
        if "\0" in self.text:
            raise ValueError(f"{self.name}: the GLSL contains a zero byte")
        # In comments too, and whether lines are joined or not: where a comment ends is for the
        # compiler to say, and none is needed for our own shaders.
        for text in (self.text, _JOINED_LINES.sub("", self.text)):
            if _INCLUDE.search(text):
                raise ValueError(
                    f"{self.name}: the GLSL has an #include; no file is read, so put the text in "
                    "its place"
                )
        # glslang walks a + b + c + … by recursion: 100,000 terms overflow the stack.
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
