"""Memory of a graph's inputs and outputs that one ``context.compute`` passes to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from .storage import Storage

#: Storages by name: of the inputs, and of the outputs.
Tensors = tuple[Mapping[str, Storage], Mapping[str, Storage]]


class Workspace:
    """One set of memory that no work uses, so that the commands recorded for it can be reused. Each
    method is one step into C: interrupts and threads can't observe it half-done."""

    def __init__(self) -> None:
        self._kept: deque[Tensors] = deque(maxlen=1)

    def take(self) -> Tensors | None:
        """Takes the set, which then belongs to the caller; None if there is none."""
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def keep(self, tensors: Tensors) -> None:
        """Leaves a set for the next call: all work on it is over, and none of it failed."""
        self._kept.append(tensors)

    def clear(self) -> None:
        """Let go of the memory."""
        self._kept.clear()
