"""Output of commands: tables and text, or only JSON, on stdout; progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import ToolError

#: The width of tables in files and pipes, where no terminal determines it: nothing is cut.
PIPED_WIDTH = 200


def console(stderr: bool = False) -> Console:
    """A console on the current stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def facts(pairs: Iterable[tuple[str, str]]) -> None:
    """Print lines of a title and a text."""
    for title, text in pairs:
        print(f"{title:<10}{text}")


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], right: Iterable[str] = ()
) -> None:
    """Print a table; the columns in ``right`` contain numbers. Cells are text, never markup."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    numbers = set(right)
    for name in head:
        shown.add_column(
            name, justify="right" if name in numbers else "left", overflow="fold",
            no_wrap=name in numbers,
        )
    for row in rows:
        shown.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console().print(shown)


def emit(data: Any) -> None:
    """Print JSON."""
    print(json.dumps(data, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    """Values that JSON has no form for: records, NumPy's numbers, sets, paths."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


class Steps:
    """The bar of ``working``."""

    def __init__(self, progress: Progress, title: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total)

    def begin(self, title: str, total: int | None = None) -> None:
        """Start again with another title, and a number of steps if that is known."""
        self._progress.reset(self._task, description=title, total=total)

    def step(self, title: str | None = None, count: int = 1) -> None:
        """``count`` more steps are done; by default the title stays."""
        self._progress.update(self._task, advance=count, description=title)

    def reach(self, count: float) -> None:
        """Set the number of steps done."""
        self._progress.update(self._task, completed=count)


@contextmanager
def working(title: str, total: int | None = None) -> Iterator[Steps]:
    """A progress bar on stderr; none where stderr is no terminal, and removed at the end."""
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
        console=console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
    )
    with progress:
        yield Steps(progress, title, total)


def writable(*files: tuple[Path | None, Sequence[str]]) -> list[Path]:
    """The paths that are not None, if files could be written there; ``ToolError`` before any work
    is done for them. Each comes with the suffixes that its name may have, none for any."""
    paths = []
    for path, suffixes in files:
        if path is None:
            continue
        if suffixes and path.suffix and path.suffix.lower() not in suffixes:
            raise ToolError(f"cannot write {path}: what is written is {' or '.join(suffixes)}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ToolError(f"cannot write {path}: no such folder, or it is one itself")
        paths.append(path)
    return paths


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """``ToolError`` where the file can't be written."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror or error}") from None


def size(count: float) -> str:
    """A number of bytes as text."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
