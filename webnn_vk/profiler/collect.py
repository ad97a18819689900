"""Observes a device's work while a profile runs, and collects raw measurements."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from typing import Any

from webnn_vk.compiler.program import BarrierStep, DeviceSegment, HostSegment, Program
from webnn_vk.driver import BarrierCommand, Command, DriverError, Recording, TimestampCommand
from webnn_vk.runtime.work import Read, RunGraph, Write
from webnn_vk.support.dataclass import dataclass

from .sampling import Sampler

#: Recordings with times that are kept for the next run on the same tensors.
SPARE = 32


@dataclass
class Run:
    """One run of a graph: the number of its program, the times when the call queued it and when its
    batch was begun, submitted and done (``Collector.now``), and whether its kernels are timed."""

    program: int
    queued: float
    begun: float = 0.0
    submitted: float = 0.0
    done: float = 0.0
    measured: bool = True


@dataclass
class DeviceTimes:
    """The timestamps of one recording, in nanoseconds of the device's clock: for the steps of a
    program's segment, or for transfers (``kinds`` and ``sizes``), which may have none. ``run``: the
    number of a run, or -1 for transfers."""

    run: int
    program: int = -1
    segment: int = -1
    times: Sequence[int] = ()
    kinds: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """The seconds from the first to the last timestamp."""
        return (self.times[-1] - self.times[0]) * 1e-9 if self.times else 0.0


@dataclass
class HostRun:
    """A segment (-1: the whole program) of a run, computed by the host."""

    run: int
    program: int
    segment: int
    start: float
    end: float


@dataclass
class BatchTimes:
    """The times of one batch. ``host``: its seconds in CPU steps; ``waited``: seconds from the
    submission of parts that the host waited for until their ends were seen; ``submitted``: when the
    rest was."""

    works: int
    begun: float
    submitted: float = 0.0
    done: float = 0.0
    host: float = 0.0
    waited: float = 0.0
    device: list[DeviceTimes] = field(default_factory=list)


class Collector:
    """See ``runtime.observer.Observer``. The measurements are complete when the device is idle."""

    def __init__(self, device: Any, sampler: Sampler) -> None:
        driver = getattr(device, "driver", None)
        self.timestamps = None if driver is None else driver.timestamps
        #: Whether everything that runs on the device can be timed.
        self.timed = driver is None or driver.timestamps is not None
        self.sampler = sampler
        #: Whether the device is software in this process, which other processes slow down.
        self.in_software = driver is not None and device.profile.is_software
        self.programs: list[Program] = []
        self.reports: list[Any] = []
        #: The runs, CPU steps and batches that were observed.
        self.runs: list[Run] = []
        self.hosts: list[HostRun] = []
        self.batches: list[BatchTimes] = []
        #: By program: its number of runs, also of runs that were not observed, and the number of
        #: timestamps in a run.
        self.counts: list[int] = []
        self.stamps: list[int] = []
        # Executables with their numbers, by identity.
        self._executables: dict[int, tuple[int, Any]] = {}
        # When work was queued, by identity. The work is kept, so that its identity is unique.
        self._queued: dict[int, tuple[Any, float]] = {}
        # Free recordings with timestamps, by executable and tensors.
        self._spare: OrderedDict[Any, list[list[Any]]] = OrderedDict()
        self._lock = threading.Lock()
        #: When collecting began (``time.perf_counter``).
        self.began = time.perf_counter()

    def now(self) -> float:
        """The seconds since collecting began."""
        return time.perf_counter() - self.began

    def queued(self, works: Any) -> None:
        if type(works) is tuple:
            for work in works:
                if type(work) is RunGraph:
                    self._queued[id(work)] = work, self.now()

    def begin(self, works: Sequence[Any]) -> BatchRecorder | None:
        begun = self.now()
        runs = []
        for work in works:
            if type(work) is RunGraph:
                _, queued = self._queued.pop(id(work), (None, begun))
                program = self._number(work.executable)
                run = Run(program, queued, begun, measured=self._measures(program))
                runs.append((work.executable, run))
        if self.sampler.every is None and not any(run.measured for _, run in runs):
            kinds = tuple(type(work) for work in works if type(work) in (Read, Write))
            if runs or not kinds or not self.sampler.chooses(kinds, 1 + len(kinds)):
                return None
            return BatchRecorder(self, works, begun, runs, kinds)
        return BatchRecorder(self, works, begun, runs)

    def _number(self, executable: Any) -> int:
        with self._lock:
            if (numbered := self._executables.get(id(executable))) is not None:
                self.counts[numbered[0]] += 1
                return numbered[0]
            number = len(self.programs)
            self._executables[id(executable)] = number, executable
            self.counts.append(1)
            self.programs.append(executable.program)
            self.reports.append(executable.report)
            self.stamps.append(sum(
                1 + sum(not isinstance(step, BarrierStep) for step in segment.steps)
                for segment in executable.program.segments if isinstance(segment, DeviceSegment)
            ))
            return number

    def _measures(self, program: int) -> bool:
        """Whether the next run of a program is measured. All are where no timestamps are needed."""
        stamps = self.stamps[program]
        return self.timestamps is None or not stamps or self.sampler.chooses(program, stamps)

    # -- for batches ---------------------------------------------------------------------------
    def add(self, run: Run) -> int:
        """Add a run; returns its number."""
        with self._lock:
            self.runs.append(run)
            return len(self.runs) - 1

    def take(self, key: Any) -> list[Any] | None:
        """Take free recordings for this executable and these tensors."""
        with self._lock:
            spare = self._spare.get(key)
            return spare.pop() if spare else None

    def give(self, key: Any, recordings: list[Any]) -> None:
        """Keep recordings for the next run, after their timestamps were read."""
        dropped: list[list[Any]] = []
        with self._lock:
            self._spare.setdefault(key, []).append(recordings)
            self._spare.move_to_end(key)
            while sum(map(len, self._spare.values())) > SPARE:
                dropped += self._spare.popitem(last=False)[1]
        _free(itertools.chain(*dropped))

    def close(self) -> None:
        """Free the recordings and the executables."""
        with self._lock:
            spare, self._spare = self._spare, OrderedDict()
        _free(itertools.chain(*(r for kept in spare.values() for r in kept)))
        self._executables.clear()
        self._queued.clear()


class BatchRecorder:
    """See ``runtime.observer.BatchObserver``."""

    def __init__(
        self, collector: Collector, works: Sequence[Any], begun: float,
        runs: Sequence[tuple[Any, Run]], kinds: Hashable = None,
    ) -> None:
        """``runs``: each with its executable. ``kinds``: the sampler's key for transfers without a
        run."""
        self._collector, self._kinds = collector, kinds
        self._times = BatchTimes(len(works), begun)
        self._processor = time.process_time()
        self._begun = iter(runs)
        self._runs: list[int] = []
        # Recordings whose timestamps will be read, with their description.
        self._pending: list[tuple[Any, DeviceTimes]] = []
        self._lent: list[tuple[Any, list[Any]]] = []
        self._transfers: list[tuple[str, int]] = []
        # When the oldest unfinished part was submitted.
        self._submitted: float | None = None

    def _run(self, executable: Any) -> int:
        """The run that begins: the next work of this executable (work before it has failed)."""
        for begun, run in self._begun:
            if begun is executable:
                self._runs.append(self._collector.add(run))
                return self._runs[-1]
        return -1

    def recordings(self, executable: Any, inputs: Any, outputs: Any) -> Iterator[Any]:
        number, collector = self._run(executable), self._collector
        run = collector.runs[number]
        if collector.timestamps is None or not run.measured:
            yield from executable.recordings(inputs, outputs)
            return
        start = time.thread_time()
        serials = tuple(s.serial for s in (*inputs.values(), *outputs.values()))
        key = (id(executable), serials)
        parts = collector.take(key)
        if parts is None:
            parts = executable.timed_recordings(inputs, outputs)
            collector.sampler.spent(time.thread_time() - start)
        self._lent.append((key, parts))
        for segment, part in enumerate(parts):
            # Added only when requested: when timestamps before a host segment are read, a recording
            # after it has none yet, or the times of an earlier run.
            if not isinstance(part, HostSegment):
                self._pending.append((part, DeviceTimes(number, run.program, segment)))
            yield part

    def host(self, executable: Any, segment: Any, start: float, end: float) -> None:
        run = self._run(executable) if segment is None else self._runs[-1]
        collector = self._collector
        program = collector.runs[run].program
        segments = collector.programs[program].segments
        number = -1 if segment is None else next(
            n for n, other in enumerate(segments) if other is segment
        )
        start, end = start - collector.began, end - collector.began
        collector.hosts.append(HostRun(run, program, number, start, end))
        self._times.host += end - start

    def transfer(self, kind: str, size: int) -> None:
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
        if self._kinds is None:
            self._collector.sampler.spent(0.0, next(slots))
        return timed

    def recorded(self, recording: Recording) -> None:
        kinds, sizes = zip(*self._transfers, strict=True)
        self._transfers = []
        self._pending.append((recording, DeviceTimes(-1, kinds=kinds, sizes=sizes)))

    def submits(self) -> None:
        # The device may begin during the call that submits.
        if self._submitted is None:
            self._submitted = self._collector.now()

    def submitted(self) -> None:
        now = self._collector.now()
        self._times.submitted = now if self._submitted is None else self._submitted

    def read(self) -> None:
        if self._submitted is not None:
            self._times.waited += self._collector.now() - self._submitted
            self._submitted = None
        self._read()

    def _read(self) -> None:
        """Read the timestamps of finished work."""
        pending, self._pending = self._pending, []
        timestamps, sampler = self._collector.timestamps, self._collector.sampler
        start = time.thread_time()
        for recording, times in pending:
            if timestamps is not None:
                try:
                    times.times = timestamps.read(recording)
                except (DriverError, ValueError):
                    continue  # never submitted, as its work has failed
            self._times.device.append(times)
        if pending:
            sampler.spent(time.thread_time() - start)

    def done(self) -> None:
        self._times.done = self._collector.now()
        self._read()
        collector = self._collector
        for number in self._runs:
            run = collector.runs[number]
            run.submitted, run.done = self._times.submitted, self._times.done
        self._tell_sampler()
        lent, self._lent = self._lent, []
        for key, parts in lent:
            collector.give(key, parts)
        collector.batches.append(self._times)

    def _tell_sampler(self) -> None:
        """Tell the sampler how long the chosen runs took."""
        taken: dict[int, float] = {}
        for times in self._times.device:
            if times.times:
                taken[times.run] = taken.get(times.run, 0.0) + times.seconds
        collector, sampler = self._collector, self._collector.sampler
        if collector.in_software:
            # Timing costs processor time, so compare it with the processor time of the work.
            spent = time.process_time() - self._processor
            busy = min(spent / max(self._times.done - self._times.begun, 1e-9), 1.0)
            taken = {number: busy * seconds for number, seconds in taken.items()}
        for number, seconds in taken.items():
            if number >= 0:
                program = collector.runs[number].program
                sampler.took(program, seconds, collector.stamps[program])
            elif self._kinds is not None:
                sampler.took(self._kinds, seconds, 1 + len(self._kinds))


def _free(recordings: Any) -> None:
    for recording in recordings:
        if not isinstance(recording, HostSegment):
            recording.free()
