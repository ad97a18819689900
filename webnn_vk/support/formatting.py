"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """Seconds as text, in the unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.3f} s"


def aligned(
    rows: Sequence[Sequence[str]], *, widest: int | None = None, numbers: bool = False
) -> list[str]:
    """The lines of a table. ``widest``: the width at which cells are cut; ``numbers``: align all
    columns but the first to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = [width if widest is None else min(widest, width) for width in widths]
    return [
        "  ".join(
            cell[:width].rjust(width) if numbers and column else cell[:width].ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
