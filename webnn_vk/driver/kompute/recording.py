"""Recorded commands: runs of dispatches that Kompute submits as one, and transfers between them.

Kompute puts no barrier between dispatches, so a barrier command starts a new submission, after a
wait for the previous one. Its copies move whole tensors only, so transfers go through the host's
view of a tensor: the memory itself or the staging twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from webnn_vk.driver.commands import Command, CopyCommand, DispatchCommand, FillCommand
from webnn_vk.driver.kompute.memory import Buffer
from webnn_vk.driver.kompute.pipelines import Bound, Pipelines

#: A part of a recording; the call runs it to its end. It keeps its resources alive.
Part = Callable[[], None]


class Mover:
    """Copies and fills by the host, which moves tensors to and from their staging twins."""

    def __init__(self, kp: Any, manager: Any) -> None:
        self._kp, self._manager = kp, manager

    def copy(self, command: CopyCommand) -> Part:
        """A copy of bytes."""
        source: Buffer = command.source.held.buffer
        target: Buffer = command.destination.held.buffer
        first, to, size = command.source_offset, command.destination_offset, command.size

        def run() -> None:
            self._fetch(source)
            if size != target.size:
                self._fetch(target)
            target.bytes[to : to + size] = source.bytes[first : first + size]
            self._send(target)

        return run

    def fill(self, command: FillCommand) -> Part:
        """A fill with a 32-bit value."""
        target: Buffer = command.destination.held.buffer
        first, count = command.offset // 4, command.size // 4

        def run() -> None:
            if command.size != target.size:
                self._fetch(target)
            target.words[first : first + count] = command.value
            self._send(target)

        return run

    def _fetch(self, buffer: Buffer) -> None:
        """Updates the staging twin."""
        if buffer.stale:
            self._eval(self._kp.OpTensorSyncLocal([buffer.tensor]))
            buffer.stale = False

    def _send(self, buffer: Buffer) -> None:
        """Updates the tensor."""
        if buffer.twin:
            self._eval(self._kp.OpTensorSyncDevice([buffer.tensor]))

    def _eval(self, operation: Any) -> None:
        # A new sequence each: Kompute's command buffers can't be recorded again.
        self._manager.sequence().record(operation).eval()


def _dispatches(kp: Any, manager: Any, bound: Sequence[Bound]) -> Part:
    """Dispatches that need no barrier in between, recorded in one sequence of Kompute's."""
    sequence = manager.sequence()
    for one in bound:
        sequence.record(kp.OpAlgoDispatch(one.algorithm))

    def run() -> None:
        sequence.eval()  # with the GIL held, to its end
        for one in bound:
            for buffer in one.buffers:
                buffer.stale = buffer.twin

    return run


def parts(commands: Sequence[Command], kp: Any, manager: Any, pipelines: Pipelines,
          mover: Mover) -> Iterator[Part]:
    """The parts of checked commands, in order."""
    for kind, run in groupby(commands, type):
        if kind is DispatchCommand:
            # Kompute would take no workgroups for as many as the tensor has elements.
            some = [c for c in run if isinstance(c, DispatchCommand) and all(c.groups)]
            if some:
                yield _dispatches(kp, manager, [pipelines.bind(command) for command in some])
        else:  # barriers only divide
            for command in run:
                if isinstance(command, CopyCommand):
                    yield mover.copy(command)
                elif isinstance(command, FillCommand):
                    yield mover.fill(command)


class KomputeRecording:
    """See `driver.resources.Recording`. `parts`: None once freed."""

    __slots__ = ("__weakref__", "parts")

    def __init__(self, made: tuple[Part, ...]) -> None:
        self.parts: tuple[Part, ...] | None = made

    def free(self) -> None:
        """Releases it once its last submission is done, which holds its parts until then."""
        self.parts = None
