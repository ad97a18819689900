"""MemoryError at chosen places: at the entry of a function of the library, on whichever thread
enters it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import webnn_vk

_OURS = str(Path(webnn_vk.__file__).parent)


class Shortage:
    """Counts the entries into functions of the library, and raises MemoryError at number ``at``,
    ``times`` times. Threads started within ``everywhere`` take part."""

    def __init__(self) -> None:
        self.passed = 0
        self.at = range(0)
        #: Where MemoryError was raised.
        self.places: list[str] = []
        self._on = False

    def begin(self, at: int = -1, times: int = 1) -> None:
        """From here on entries are counted, starting at 0."""
        self.passed, self.places, self.at = 0, [], range(at, at + times)
        self._on = True

    def end(self) -> None:
        """From here on no more."""
        self._on = False

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """For the calling thread and threads that are started meanwhile."""
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._on and frame.f_code.co_filename.startswith(_OURS):
            number, self.passed = self.passed, self.passed + 1
            if number in self.at:
                code = frame.f_code
                self.places.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
                # An exception from a trace function ends the tracing of its thread.
                raise MemoryError("injected")
        return None
