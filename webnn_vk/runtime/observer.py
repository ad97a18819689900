"""Observes a device's work (used by the profiler). Without an observer, work costs one check of an
attribute that is None."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from webnn_vk.compiler.program import HostSegment
from webnn_vk.driver import Command, Recording


class BatchObserver(Protocol):
    """Observes one batch; called by the thread that starts it, ``done`` by the one that waits."""

    def recordings(self, executable: Any, inputs: Any, outputs: Any) -> Iterator[Any]:
        """The results of ``DriverExecutable.recordings``, or the same with timestamps in them. Each
        is requested when the previous ones are added to the submission, or over."""

    def host(self, executable: Any, segment: HostSegment | None, start: float, end: float) -> None:
        """The host has computed a segment; None: all of a program on the CPU device. The times are
        ``time.perf_counter``'s."""

    def transfer(self, kind: str, size: int) -> None:
        """The next transfer: "upload", "download", "clear" or "copy", and its size in bytes."""

    def timed(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Transfers that are about to be recorded, with timestamps between them."""

    def recorded(self, recording: Recording) -> None:
        """The recording of those commands."""

    def submits(self) -> None:
        """A part of the batch is about to be submitted."""

    def submitted(self) -> None:
        """The whole batch is on the device, or over."""

    def read(self) -> None:
        """All submitted work is over; its recordings still exist."""

    def done(self) -> None:
        """The batch is over."""


class Observer(Protocol):
    """Observes a device. Its methods must be quick, and must not raise."""

    def queued(self, works: Any) -> None:
        """A call has queued these, on any thread."""

    def begin(self, works: Sequence[Any]) -> BatchObserver | None:
        """A batch of works is about to be started; None: it isn't observed."""
