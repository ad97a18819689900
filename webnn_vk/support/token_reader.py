"""Reading a text token by token, for recursive-descent parsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any


class TokenReader:
    """A text, and the current position, which is after any blanks between tokens. Subclasses
    define ``BLANK``, ``WORD`` and ``fail``."""

    #: The space between tokens; matches everywhere.
    BLANK: re.Pattern[str]
    #: A keyword or an identifier.
    WORD: re.Pattern[str]
    #: The most items of a list, if that is bounded.
    MOST: int | None = None

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.skip()

    def fail(self, message: str) -> Exception:
        """An error at the current position."""
        raise NotImplementedError

    def expected(self, what: str) -> Exception:
        """The error that something else follows."""
        return self.fail(f"{what} is expected")

    def skip(self) -> None:
        """Read what lies between tokens."""
        self.at = self.BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]

    def follows(self, token: str) -> bool:
        """Whether ``token`` follows."""
        return self.text.startswith(token, self.at)

    def accept(self, token: str) -> bool:
        """Read ``token`` if it follows; returns whether it does."""
        if not self.follows(token):
            return False
        self.at += len(token)
        self.skip()
        return True

    def expect(self, token: str) -> None:
        """Read ``token``, which has to follow."""
        if not self.accept(token):
            raise self.expected(repr(token))

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """Read a token of a pattern; ``what`` names it in the error."""
        found = pattern.match(self.text, self.at)
        if found is None:
            raise self.expected(what)
        self.at = found.end()
        self.skip()
        return found.group()

    def keyword(self, word: str) -> bool:
        """Read the whole ``word`` if it follows; returns whether it does."""
        found = self.WORD.match(self.text, self.at)
        return found is not None and found.group() == word and self.accept(word)

    def items(
        self, closing: str, read: Callable[[], Any], most: int | None = None, *,
        trailing: bool = False,
    ) -> list[Any]:
        """The results of ``read``, separated by commas, up to and with ``closing``. At most
        ``most`` items (``MOST`` by default); a comma may precede ``closing`` if ``trailing``."""
        found: list[Any] = []
        most = self.MOST if most is None else most
        while not self.accept(closing):
            if found:
                self.expect(",")
                if trailing and self.accept(closing):
                    break
            if len(found) == most:
                raise self.fail(f"more than {most} items in one list")
            found.append(read())
        return found
