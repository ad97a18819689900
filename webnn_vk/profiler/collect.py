"""Looking on while a device works: what is written down, raw, while a profile runs."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..driver import BarrierCommand, Command, DriverError, Recording, TimestampCommand
from ..program import HostSegment, Program
from ..runtime.work import Read, RunGraph, Write

#: Recordings with times that are kept for the next run on the same tensors.
SPARE = 32

now = time.perf_counter


@dataclass
class Run:
    """One run of a graph: the number of its program, when the call queued it, when its batch was
    begun, submitted and over. Seconds of ``time.perf_counter``."""

    program: int
    queued: float
    begun: float = 0.0
    submitted: float = 0.0
    done: float = 0.0


@dataclass
class DeviceTimes:
    """The times in one recording, in seconds of the device's clock: of the steps of a segment of a
    program, or of transfers (``kinds`` and ``sizes``). ``run``: a number among the runs, -1 for
    transfers."""

    run: int
    program: int = -1
    segment: int = -1
    times: tuple[float, ...] = ()
    kinds: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()


@dataclass
class HostRun:
    """The host has computed a segment (-1: the whole program) of a run."""

    run: int
    program: int
    segment: int
    start: float
    end: float


@dataclass
class BatchTimes:
    """One batch: begun, on the device, over; ``host``: seconds of it in CPU steps."""

    works: int
    begun: float
    submitted: float = 0.0
    done: float = 0.0
    host: float = 0.0
    device: list[DeviceTimes] = field(default_factory=list)


class Collector:
    """See ``runtime.observer.Observer``. What it writes down is complete when the device is at
    rest."""

    def __init__(self, device: Any, every: int = 1) -> None:
        driver = getattr(device, "driver", None)
        self.timestamps = None if driver is None else driver.timestamps
        #: Whether all that runs there is timed.
        self.timed = driver is None or driver.timestamps is not None
        #: Of a graph's runs so many at a time have their kernels timed once.
        self.every = every
        self.programs: list[Program] = []
        self.reports: list[Any] = []
        self.runs: list[Run] = []
        self.hosts: list[HostRun] = []
        self.batches: list[BatchTimes] = []
        self._executables: list[Any] = []
        self._counts: list[int] = []
        self._queued: deque[tuple[Any, float]] = deque()
        # Recordings with times that are free, by executable and tensors.
        self._spare: OrderedDict[Any, list[list[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def queued(self, works: Any) -> None:
        if type(works) is tuple:
            for work in works:
                if type(work) is RunGraph:
                    self._queued.append((work, now()))

    def begin(self, works: Sequence[Any]) -> BatchWatch:
        return BatchWatch(self, works)

    # -- of the watches ------------------------------------------------------------------------
    def run_of(self, work: Any, begun: float) -> int:
        """A new run of what was queued; its number."""
        with self._lock:
            at = begun
            for queued in self._queued:
                if queued[0] is work:
                    at = queued[1]
                    self._queued.remove(queued)
                    break
            self.runs.append(Run(self._number(work.executable), at, begun))
            return len(self.runs) - 1

    def _number(self, executable: Any) -> int:
        for number, known in enumerate(self._executables):
            if known is executable:
                return number
        self._executables.append(executable)
        self._counts.append(0)
        self.programs.append(executable.program)
        self.reports.append(executable.report)
        return len(self._executables) - 1

    def is_timed(self, program: int) -> bool:
        """Whether the kernels of this run of a program are timed: the first, and one in so many
        after it."""
        if self.timestamps is None:
            return False
        self._counts[program] += 1
        return (self._counts[program] - 1) % self.every == 0

    def take(self, key: Any) -> list[Any] | None:
        """Free recordings for that executable and those tensors."""
        with self._lock:
            spare = self._spare.get(key)
            return spare.pop() if spare else None

    def give(self, key: Any, recordings: list[Any]) -> None:
        """Keep recordings, whose times were read, for the next run."""
        dropped: list[list[Any]] = []
        with self._lock:
            self._spare.setdefault(key, []).append(recordings)
            self._spare.move_to_end(key)
            while sum(map(len, self._spare.values())) > SPARE:
                dropped += self._spare.popitem(last=False)[1]
        _free(itertools.chain(*dropped))

    def close(self) -> None:
        """Give up the recordings and the executables."""
        with self._lock:
            spare, self._spare = self._spare, OrderedDict()
        _free(itertools.chain(*(r for kept in spare.values() for r in kept)))
        self._executables = []
        self._queued.clear()


class BatchWatch:
    """See ``runtime.observer.Watch``."""

    def __init__(self, collector: Collector, works: Sequence[Any]) -> None:
        self._collector = collector
        self._times = BatchTimes(len(works), now())
        self._runs: list[int] = []
        self._works = iter([work for work in works if type(work) is RunGraph])
        # Recordings whose times are to be read, with what they are of.
        self._pending: list[tuple[Any, DeviceTimes]] = []
        self._lent: list[tuple[Any, list[Any]]] = []
        self._transfers: list[tuple[str, int]] = []

    def _run(self, executable: Any) -> int:
        """The run that begins: the next work of this executable (those before it have failed)."""
        for work in self._works:
            if work.executable is executable:
                self._runs.append(self._collector.run_of(work, self._times.begun))
                return self._runs[-1]
        return -1

    def recordings(self, executable: Any, inputs: Any, outputs: Any) -> list[Any]:
        run = self._run(executable)
        program = self._collector.runs[run].program
        if not self._collector.is_timed(program):
            return list(executable.recordings(inputs, outputs))
        serials = tuple(s.serial for s in (*inputs.values(), *outputs.values()))
        key = (id(executable), serials)
        parts = self._collector.take(key)
        if parts is None:
            parts = executable.timed_recordings(inputs, outputs)
        self._lent.append((key, parts))
        for number, part in enumerate(parts):
            if not isinstance(part, HostSegment):
                self._pending.append((part, DeviceTimes(run, program, number)))
        return parts

    def host(self, executable: Any, segment: Any, start: float, end: float) -> None:
        run = self._run(executable) if segment is None else self._runs[-1]
        program = self._collector.runs[run].program
        segments = self._collector.programs[program].segments
        number = -1 if segment is None else next(
            n for n, other in enumerate(segments) if other is segment
        )
        self._collector.hosts.append(HostRun(run, program, number, start, end))
        self._times.host += end - start

    def transfer(self, work: Any, size: int) -> None:
        kind = {Write: "upload", Read: "download"}.get(type(work), "copy")
        if kind == "upload" and work.data is None and work.staged is None:
            kind = "clear"
        self._transfers.append((kind, size))

    def timed(self, commands: Sequence[Command]) -> Sequence[Command]:
        if self._collector.timestamps is None:
            return commands
        timed: list[Command] = [TimestampCommand(0)]
        slots = itertools.count(1)
        for command in commands:
            timed.append(command)
            if not isinstance(command, BarrierCommand):
                timed.append(TimestampCommand(next(slots)))
        return timed

    def recorded(self, recording: Recording) -> None:
        kinds, sizes = zip(*self._transfers, strict=True)
        self._transfers = []
        self._pending.append((recording, DeviceTimes(-1, kinds=kinds, sizes=sizes)))

    def submitted(self) -> None:
        self._times.submitted = now()

    def read(self) -> None:
        pending, self._pending = self._pending, []
        timestamps = self._collector.timestamps
        for recording, times in pending:
            if timestamps is not None:
                try:
                    times.times = tuple(t * 1e-9 for t in timestamps.read(recording))
                except (DriverError, ValueError):
                    continue  # it was never submitted: its work has failed
            self._times.device.append(times)

    def done(self) -> None:
        self._times.done = now()
        self.read()
        for number in self._runs:
            run = self._collector.runs[number]
            run.submitted, run.done = self._times.submitted, self._times.done
        lent, self._lent = self._lent, []
        for key, parts in lent:
            self._collector.give(key, parts)
        self._collector.batches.append(self._times)


def _free(recordings: Any) -> None:
    for recording in recordings:
        if not isinstance(recording, HostSegment):
            recording.free()
