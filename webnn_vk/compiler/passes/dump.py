"""Texts of graphs in a folder, for work on passes (``WEBNN_VK_DUMP``)."""

from __future__ import annotations

import itertools
from pathlib import Path


class Dump:
    """The texts of one graph: ``00-input.txt``, ``01-fold.txt`` … in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    @classmethod
    def within(cls, parent: Path) -> Dump:
        """A new sub-folder ``graph-0000``, ``graph-0001`` … of ``parent``, which is created if it
        does not exist. Safe when several processes dump into it. OSError if that fails."""
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(sum(1 for _ in parent.glob("graph-*"))):
            folder = parent / f"graph-{number:04}"
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return cls(folder)
        raise AssertionError

    def write(self, name: str, text: str) -> None:
        """Write one more file. ``name`` is a pass's name: letters, digits and underscores."""
        (self.folder / f"{self._count:02}-{name}.txt").write_text(text + "\n", encoding="utf-8")
        self._count += 1
