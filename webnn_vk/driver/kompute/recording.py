"""Recorded commands: runs of dispatches that Kompute submits as one, and transfers between them.

Kompute puts no barrier between dispatches, so what a barrier command divides goes in submissions of
their own, each waited for. Its copies move whole tensors only: transfers go through what the host
sees of a tensor, the memory itself or the staging twin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from webnn_vk.driver.commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
)
from webnn_vk.driver.kompute.memory import Buffer
from webnn_vk.driver.kompute.pipelines import Bound, Pipelines


class Dispatches:
    """Dispatches that need no barrier in between, recorded in one sequence of Kompute's."""

    def __init__(self, kp: Any, manager: Any, bound: Sequence[Bound]) -> None:
        self._bound = tuple(bound)
        self._sequence = manager.sequence()
        for one in bound:
            self._sequence.record(kp.OpAlgoDispatch(one.algorithm))
        self._twins = [buffer for one in bound for buffer in one.buffers if buffer.twin]

    def run(self) -> None:
        """Runs them to their end, with the GIL held."""
        self._sequence.eval()
        for buffer in self._twins:
            buffer.stale = True


class Copy:
    """A copy of bytes, by the host."""

    def __init__(self, mover: Mover, command: CopyCommand) -> None:
        self._mover, self._command = mover, command
        source: Any = command.source
        target: Any = command.destination
        self._source, self._target = source.buffer, target.buffer

    def run(self) -> None:
        """Copies."""
        command, whole = self._command, self._command.size == self._target.size
        self._mover.fetch(self._source)
        if not whole:
            self._mover.fetch(self._target)
        first, to, size = command.source_offset, command.destination_offset, command.size
        self._target.bytes[to : to + size] = self._source.bytes[first : first + size]
        self._mover.send(self._target)


class Fill:
    """A fill with a 32-bit value, by the host."""

    def __init__(self, mover: Mover, command: FillCommand) -> None:
        self._mover, self._command = mover, command
        target: Any = command.destination
        self._target = target.buffer

    def run(self) -> None:
        """Fills."""
        command = self._command
        if command.size != self._target.size:
            self._mover.fetch(self._target)
        first = command.offset // 4
        self._target.words[first : first + command.size // 4] = command.value
        self._mover.send(self._target)


class Mover:
    """Moves tensors to and from their staging twins."""

    def __init__(self, kp: Any, manager: Any) -> None:
        self._kp, self._manager = kp, manager

    def fetch(self, buffer: Buffer) -> None:
        """Brings the staging twin up to date."""
        if buffer.stale:
            self._eval(self._kp.OpTensorSyncLocal([buffer.tensor]))
            buffer.stale = False

    def send(self, buffer: Buffer) -> None:
        """Brings the tensor up to date."""
        if buffer.twin:
            self._eval(self._kp.OpTensorSyncDevice([buffer.tensor]))

    def _eval(self, operation: Any) -> None:
        # A new sequence each: Kompute's command buffers can't be recorded again.
        self._manager.sequence().record(operation).eval()


Part = Dispatches | Copy | Fill


def parts(commands: Sequence[Command], kp: Any, manager: Any, pipelines: Pipelines,
          mover: Mover) -> Iterator[Part]:
    """What checked commands come to, in order."""

    def kind(command: Command) -> type:
        return type(command)

    for of, run in groupby(commands, kind):
        if of is DispatchCommand:
            # Kompute would take no workgroups for as many as the tensor has elements.
            some = [c for c in run if isinstance(c, DispatchCommand) and all(c.groups)]
            if some:
                yield Dispatches(kp, manager, [pipelines.bind(command) for command in some])
        elif of is not BarrierCommand:
            for command in run:
                if isinstance(command, CopyCommand):
                    yield Copy(mover, command)
                elif isinstance(command, FillCommand):
                    yield Fill(mover, command)


class KomputeRecording:
    """See `driver.resources.Recording`. `parts`: None once freed."""

    __slots__ = ("__weakref__", "parts")

    def __init__(self, made: tuple[Part, ...]) -> None:
        self.parts: tuple[Part, ...] | None = made

    def free(self) -> None:
        """Releases it once its last submission is done, which holds its parts until then."""
        self.parts = None
