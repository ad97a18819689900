"""Memory of a graph's inputs and outputs that one ``context.compute`` passes to the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from webnn_vk.compiler.program import Program

from .storage import Storage

#: Storages by name: of the inputs, and of the outputs.
Tensors = tuple[Mapping[str, Storage], Mapping[str, Storage]]

#: Sets of memory that a graph keeps for its next runs: as many runs in flight allocate and record
#: nothing.
MAX_SETS = 64
#: The bytes of all sets of a graph; one set may have more.
MAX_BYTES = 256 << 20


class Workspace:
    """Sets of memory of one program that no work uses, so that the commands recorded for them can
    be reused. Each method is one step into C: interrupts and threads can't observe it half-done."""

    def __init__(self, program: Program) -> None:
        described = [*program.inputs.values(), *program.outputs.values()]
        #: Bytes of a set.
        self.size = size = sum(d.byte_length for d in described)
        self._kept: deque[Tensors] = deque(maxlen=max(1, min(MAX_SETS, MAX_BYTES // max(size, 1))))

    def take(self) -> Tensors | None:
        """Takes the set that was used last, which then belongs to the caller; None if there is
        none."""
        try:
            return self._kept.pop()
        except IndexError:
            return None

    def keep(self, tensors: Tensors) -> None:
        """Leaves a set for a later call: all work on it is over, and none of it failed."""
        self._kept.append(tensors)

    def clear(self) -> None:
        """Let go of the memory."""
        self._kept.clear()
