"""A progress bar on stderr, shown on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO


class Progress:
    """Counts steps under a changing title; drawn only when `stream` is a terminal."""

    WIDTH = 30

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.total = max(total, 1)
        self.done = 0
        self.shown = self.stream.isatty()
        self._drawn = ""

    def step(self, title: str, count: int = 1) -> None:
        """`count` more of the total are done; `title` says what is going on."""
        self.done = min(self.done + count, self.total)
        if not self.shown:
            return
        filled = self.WIDTH * self.done // self.total
        line = f"\r{'█' * filled}{'░' * (self.WIDTH - filled)} {title:<24.24}"
        if line != self._drawn:
            self.stream.write(line)
            self.stream.flush()
            self._drawn = line

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._drawn:
            self.stream.write("\r" + " " * (len(self._drawn) - 1) + "\r")
            self.stream.flush()
            self._drawn = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
