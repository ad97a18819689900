"""Recorded commands: a log to which each command is added in one step, assembled at the end.

A signal handler may interrupt a recording method, and raise or record itself: the log still has
whole commands, with barriers where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from webnn_vk.driver import BarrierCommand, Command
from webnn_vk.runtime.storage import Storage
from webnn_vk.support.dataclass import dataclass

from .buffer import GPUBuffer
from .objects import alive
from .query import GPUQuerySet, PassWrites


@dataclass(eq=False, frozen=True)
class Step:
    """One command and the buffers that it accesses."""

    command: Command
    #: (buffer, its memory, whether it is read, whether it is written)
    touched: tuple[tuple[GPUBuffer, Storage, bool, bool], ...] = ()
    query_set: GPUQuerySet | None = None


def step_of(
    command: Command,
    uses: Mapping[GPUBuffer, tuple[bool, bool]],
    query_set: GPUQuerySet | None = None,
) -> Step:
    touched = [(b, alive(b, "recording"), *how) for b, how in uses.items()]
    return Step(command, tuple(touched), query_set)


@dataclass
class Recorded:
    """Steps in order, with a barrier before each that depends on earlier ones."""

    commands: list[Command] = field(default_factory=list)
    #: The memory that they read and write.
    reads: dict[Storage, None] = field(default_factory=dict)
    writes: dict[Storage, None] = field(default_factory=dict)
    buffers: dict[GPUBuffer, None] = field(default_factory=dict)
    query_sets: dict[GPUQuerySet, None] = field(default_factory=dict)
    # Since the last barrier.
    _read: set[Storage] = field(default_factory=set)
    _written: set[Storage] = field(default_factory=set)

    def add(self, step: Step) -> None:
        read, written = set(), set()
        for buffer, storage, reads, writes in step.touched:
            self.buffers[buffer] = None
            # Reading what this command buffer itself wrote doesn't depend on other work.
            if reads and storage not in self.writes:
                self.reads[storage] = None
            if writes:
                self.writes[storage] = None
            (written if writes else read).add(storage)
        if written & (self._read | self._written) or read & self._written:
            self.barrier()
        self._read |= read
        self._written |= written
        self.commands.append(step.command)
        if step.query_set is not None:
            self.query_sets[step.query_set] = None

    def add_pass(self, steps: Sequence[Step], writes: PassWrites | None) -> None:
        if writes is not None:
            self.query_sets[writes.set] = None
            if (begin := writes.command(end=False)) is not None:
                self.barrier()  # no dispatch of the pass starts before the timestamp
                self.commands.append(begin)
        for step in steps:
            self.add(step)
        if writes is not None and (end := writes.command(end=True)) is not None:
            self.commands.append(end)

    def barrier(self) -> None:
        self.commands.append(BarrierCommand())
        self._read, self._written = set(), set()


def append(log: list[Any], steps: Sequence[Any], check: Callable[[], Any]) -> None:
    """Add steps to a log, unless a signal handler has ended the recording meanwhile."""
    log.extend(steps)
    try:
        check()
    except BaseException:
        for step in steps:
            log.remove(step)
        raise
