"""Tables on stdout."""

from __future__ import annotations

from collections.abc import Sequence


def show(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their content: the first aligned to the left, figures to the
    right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    print()
    for cells in (titles, ["-" * width for width in widths], *rows):
        first, *others = (
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        print("  ".join([first, *others]))
