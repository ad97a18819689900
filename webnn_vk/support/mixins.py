"""Mixins of the public objects: dir(), HTML, ``async with``, no copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class PublicDir:
    """``dir()`` without internals, for completion."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return [
            name for name in super().__dir__()
            if not name.startswith("_") or (name.startswith("__") and name.endswith("__"))
        ]


class AsyncManager:
    """``async with`` for what is a context manager already and never waits for its end."""

    async def __aenter__(self) -> Any:
        return self.__enter__()  # type: ignore[attr-defined]

    async def __aexit__(self, *error: object) -> None:
        self.__exit__(*error)  # type: ignore[attr-defined]


class OneOfAKind:
    """No copies, which would get around checks and outlive ``destroy()``, and no pickles."""

    __slots__ = ()

    def __copy__(self) -> Any:
        raise TypeError(
            f"a copy of this {type(self).__name__} can't be made: it stands for something that "
            "a device has once; make another one, or pass this one on"
        )

    def __deepcopy__(self, memo: Any) -> Any:
        self.__copy__()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"this {type(self).__name__} can't be pickled: it stands for something that a device "
            "has for this process; pickle its contents, and create it there"
        )


def html_table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), caption: str = "") -> str:
    """A table for notebooks; everything in it is text, whatever names users chose."""
    from html import escape  # notebooks only

    lines = ["<table>"]
    if caption:
        lines.append(f"<caption>{escape(caption)}</caption>")
    if head:
        lines.append(f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>")
    lines += [f"<tr>{''.join(f'<td>{escape(str(c))}</td>' for c in row)}</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])
