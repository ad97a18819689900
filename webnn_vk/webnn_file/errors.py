"""Errors of graph files."""

from __future__ import annotations


class GraphFileError(ValueError):
    """A ``.webnn`` file, or the weights beside it, can't be taken. ``line`` is the text's, from 1;
    None for what concerns no line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.line = line
