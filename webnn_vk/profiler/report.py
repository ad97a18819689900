"""The report of a profile, made from the collected measurements: plain data, printable as a
table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from webnn_vk.compiler.program import (
    CopyStep,
    CpuStep,
    DispatchStep,
    Program,
    RepeatStep,
    ReportLine,
)
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import sanitize
from webnn_vk.support.formatting import aligned, duration
from webnn_vk.support.mixins import html_table

from .collect import BatchTimes, Collector, DeviceTimes, HostRun, Run
from .roofline import Roofline

#: Rows of the printed table; ``kernels`` has all of them.
ROWS = 30
#: The number of operators that a line names: a CPU segment may have hundreds.
SHOWN = 8
#: Characters of a column.
_WIDEST = 48


@dataclass(frozen=True)
class KernelTime:
    """One line of a graph's report with its times: a dispatch, a copy, or steps of the CPU.
    ``graph`` numbers graphs in the order of their first run, ``line`` the lines of its report (-1:
    several lines of a CPU segment). ``seconds`` is the time of the measured ``runs``, out of
    ``graph_runs`` runs of the graph; ``total`` is the estimated time of all runs. ``flops`` and
    ``bytes`` are for one run."""

    graph: int
    line: int
    operators: tuple[str, ...]
    device: str
    kernel: str
    variant: str
    groups: tuple[int, int, int] | None
    runs: int
    seconds: float
    flops: int
    bytes: int
    graph_runs: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float:
        """The seconds of one run."""
        return self.seconds / self.runs if self.runs else 0.0

    @property
    def gflops(self) -> float:
        """10⁹ floating-point operations per second."""
        return self.flops / self.mean / 1e9 if self.seconds > 0 else 0.0

    @property
    def gigabytes(self) -> float:
        """10⁹ bytes of memory per second, as estimated from the tensors read and written."""
        return self.bytes / self.mean / 1e9 if self.seconds > 0 else 0.0

    def share_of(self, roofline: Roofline | None) -> float | None:
        """The rate relative to the device's peak: 1.0 is the peak. None where that is unknown."""
        if roofline is None or self.device != "vulkan" or self.seconds <= 0:
            return None
        return roofline.seconds(self.flops, self.bytes) / self.mean


@dataclass(frozen=True)
class Transfer:
    """Transfers of one kind that were measured: "upload", "download", "clear" or "copy"; seconds on
    the device."""

    kind: str
    count: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class HostTime:
    """Work and waits of the host, ``count`` times, where measured: "waiting in the queue" (a run,
    from its call to its batch), "putting together" (batches: recording, staging), "CPU steps",
    "device at work" (from the submission of a batch until its end was seen)."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True)
class MemoryBlock:
    """The place of an intermediate value in the arena: bytes [``offset``, ``offset + size``) of
    block ``block``, from line ``first`` to line ``last`` of the graph's report."""

    block: int
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True)
class GraphMemory:
    """A graph's memory in bytes: the ``arena`` of intermediate values, and ``weights``."""

    arena: int
    weights: int
    lines: int
    blocks: tuple[MemoryBlock, ...]


@dataclass(frozen=True, repr=False)
class ProfileReport:
    """The results of a profile. ``seconds``: from entering to leaving it; ``runs``: the number of
    runs of graphs, of which ``measured`` have times of their kernels. ``kernels``: the slowest
    first. ``timed``: whether the device writes timestamps; if not, kernels have no times.
    ``every``: one run in every N was measured; None: the first runs, and then as many as are cheap.
    ``overhead``: the cost of measuring, relative to the time without it: recording and reading
    timestamps, and ``stamp_seconds`` for each (0: unknown; a high estimate in software). A value
    above 1 is unreliable (``cost``). Times of kernels are measured by the device's clock, others by
    the host's. ``print(report)`` shows a table."""

    device: str
    seconds: float
    runs: int
    kernels: tuple[KernelTime, ...] = ()
    host: tuple[HostTime, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    memory: tuple[GraphMemory, ...] = ()
    roofline: Roofline | None = None
    timed: bool = True
    every: int | None = None
    measured: int = 0
    overhead: float = 0.0
    stamp_seconds: float = 0.0

    @property
    def cost(self) -> str:
        """``overhead`` in words. A value above 1 is an estimate divided by a very short time, and
        only means that measuring took most of the time."""
        return "more than half" if self.overhead > 1 else f"about {self.overhead:.1%}"

    @property
    def kernel_seconds(self) -> float:
        """The seconds of all kernels on the device, in the measured runs."""
        return sum(k.seconds for k in self.kernels if k.device == "vulkan")

    @property
    def host_seconds(self) -> float:
        """The seconds of CPU steps, in the measured runs."""
        return sum(k.seconds for k in self.kernels if k.device == "cpu")

    @property
    def total(self) -> float:
        """The seconds of all kernels and CPU steps, if all runs take as long as measured."""
        return sum(k.total for k in self.kernels)

    @property
    def share(self) -> float | None:
        """The share of the device's peak that all its kernels together reach: the least time for
        their operations and bytes, divided by the measured time. None where it is unknown."""
        if self.roofline is None or self.kernel_seconds <= 0:
            return None
        least = sum(
            k.runs * self.roofline.seconds(k.flops, k.bytes)
            for k in self.kernels if k.device == "vulkan"
        )
        return least / self.kernel_seconds

    @property
    def summary(self) -> str:
        """The totals in one line."""
        part = self.measured < self.runs
        said = f"{self.runs} runs in {duration(self.seconds)}, "
        said += f"measured {self.measured} of {self.runs} runs: " if part else "all measured: "
        said += (
            f"kernels {duration(self.kernel_seconds)}, CPU steps {duration(self.host_seconds)}"
            + (f" (of all runs about {duration(self.total)})" if part else "")
            + f", transfers {duration(sum(t.seconds for t in self.transfers))}"
        )
        if self.timed and self.stamp_seconds:
            said += (f"; measuring cost {self.cost} of the time, "
                     f"{duration(self.stamp_seconds)} a timestamp")
            if self.overhead > 1:
                said += "; for truer times measure longer runs, or one in more of them (every)"
        if self.roofline is not None:
            said += (
                f"; the device can do {self.roofline.flops / 1e9:.1f} GFLOP/s and "
                f"{self.roofline.bandwidth / 1e9:.1f} GB/s"
            )
            if (share := self.share) is not None:
                said += f", of which the kernels reach {share:.0%}"
        return said if self.timed else f"{said}; the device writes no times of kernels"

    def __str__(self) -> str:
        rows = [cells(k, self) for k in self.kernels[:ROWS]]
        lines = aligned([HEAD, *rows], widest=_WIDEST)
        if len(self.kernels) > ROWS:
            others = sum(k.mean for k in self.kernels[ROWS:])
            lines.append(f"… and {len(self.kernels) - ROWS} more, {duration(others)} a run")
        lines.append("")
        lines += aligned([
            *[(t.kind, f"{t.count} ×", duration(t.seconds), f"{t.bytes / 1e6:.3f} MB")
              for t in self.transfers],
            *[(h.name, f"{h.count} ×", duration(h.seconds), "") for h in self.host],
        ], widest=_WIDEST)
        return "\n".join([*lines, self.summary])

    def __repr__(self) -> str:
        return f"<ProfileReport {self.summary}>"

    def _repr_html_(self) -> str:
        html = html_table((cells(k, self) for k in self.kernels), HEAD, self.summary)
        rows = [(h.name, h.count, duration(h.seconds)) for h in self.host]
        rows += [(t.kind, t.count, duration(t.seconds)) for t in self.transfers]
        return html + html_table(rows, ("", "times", "time"))


def title_of(operators: Sequence[str]) -> str:
    """The operators in one line, of many only the first."""
    more = f" … and {len(operators) - SHOWN} more" if len(operators) > SHOWN else ""
    return sanitize(" + ".join(operators[:SHOWN])) + more


HEAD = ("share", "a run", "runs", "operators", "device", "kernel", "variant", "GFLOP/s", "GB/s",
        "of roof")


def cells(kernel: KernelTime, report: ProfileReport) -> tuple[str, ...]:
    """The row of a kernel in the table whose columns are `HEAD`."""
    everything = report.total
    share = kernel.share_of(report.roofline)
    rates = (f"{kernel.gflops:.2f}", f"{kernel.gigabytes:.2f}") if kernel.flops or kernel.bytes \
        else ("", "")
    return (
        f"{kernel.total / everything:.1%}" if everything else "",
        duration(kernel.mean), str(kernel.runs), title_of(kernel.operators),
        kernel.device, kernel.kernel, kernel.variant, *rates,
        "" if share is None else f"{share:.0%}",
    )


# -- making it ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Slice:
    """One execution of a line of a report, from ``start`` to ``end`` in seconds of the profile.
    ``last``: the last line, for CPU steps, of which several are timed together."""

    run: int
    graph: int
    line: int
    start: float
    end: float
    last: int | None = None

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


@dataclass
class Recorded:
    """The data of a profile for its report, trace and page. All times are in seconds from its
    beginning."""

    device: str
    seconds: float
    roofline: Roofline | None
    timed: bool
    lines: list[tuple[ReportLine, ...]]
    memory: list[GraphMemory]
    runs: list[Run]
    batches: list[BatchTimes]
    kernels: list[Slice] = field(default_factory=list)
    #: CPU steps.
    hosts: list[Slice] = field(default_factory=list)
    #: (kind, bytes, start, end)
    transfers: list[tuple[str, int, float, float]] = field(default_factory=list)
    #: The programs by number of graph.
    programs: list[Program] = field(default_factory=list)
    every: int | None = None
    #: Numbers of runs by graph, including runs that were not observed.
    counts: list[int] = field(default_factory=list)
    overhead: float = 0.0
    stamp_seconds: float = 0.0

    def measured_slices(self) -> Iterator[Slice]:
        """The kernels and CPU steps of runs whose kernels were timed."""
        yield from self.kernels
        yield from (host for host in self.hosts if self.runs[host.run].measured)

    def line_of(self, one: Slice) -> ReportLine:
        """The line that was executed. Several CPU steps are one line."""
        if one.last is None:
            return self.lines[one.graph][one.line]
        lines = self.lines[one.graph][one.line : one.last + 1]
        names = tuple(name for line in lines for name in line.operators)
        kernels = Counter(line.kernel for line in lines if line.kernel != "copy")
        kernel = " + ".join(kernels) or "copy"
        return ReportLine(names, "cpu", kernel, f"{len(lines)} steps",
                          bytes=sum(line.bytes for line in lines))


def recorded(
    collector: Collector, device: str, seconds: float, roofline: Roofline | None
) -> Recorded:
    """The data collected in some seconds."""
    shift = _shift(collector.batches)
    places = [_places(program) for program in collector.programs]
    found = Recorded(
        device, seconds, roofline, collector.timed,
        [report.lines for report in collector.reports],
        [_memory(program, report)
         for program, report in zip(collector.programs, collector.reports, strict=True)],
        list(collector.runs), list(collector.batches), programs=list(collector.programs),
        every=collector.sampler.every, counts=list(collector.counts),
        overhead=collector.sampler.overhead(seconds),
        stamp_seconds=collector.sampler.stamp_seconds,
    )
    for times in (times for batch in collector.batches for times in batch.device):
        stamps = [t * 1e-9 + shift for t in times.times]
        if times.run < 0:
            _add_transfers(found, times, stamps)
            continue
        for line, start, stop in zip(places[times.program][times.segment], stamps, stamps[1:],
                                     strict=False):
            found.kernels.append(Slice(times.run, times.program, line, start, max(start, stop)))
    for host in collector.hosts:
        found.hosts.append(_host_slice(host, places[host.program]))
    return found


def _add_transfers(found: Recorded, times: DeviceTimes, stamps: Sequence[float]) -> None:
    pairs = list(zip(stamps, stamps[1:], strict=False)) or [(0.0, 0.0)] * len(times.kinds)
    for kind, size, (start, stop) in zip(times.kinds, times.sizes, pairs, strict=True):
        found.transfers.append((kind, size, start, max(start, stop)))


def _shift(batches: Sequence[BatchTimes]) -> float:
    """The difference between the clocks of host and device. No batch ends after the host has seen
    its end, so the smallest difference is the best estimate."""
    return min(
        (batch.done - max(times.times[-1] for times in batch.device if times.times) * 1e-9
         for batch in batches if any(times.times for times in batch.device)),
        default=0.0,
    )


def steps_of(
    program: Program,
) -> list[tuple[int, DispatchStep | CopyStep | CpuStep | RepeatStep]]:
    """The number of the segment and the step of each line of a program's report."""
    return [
        (number, step) for number, segment in enumerate(program.segments) for step in segment.steps
        if isinstance(step, (DispatchStep, CopyStep, CpuStep, RepeatStep))
    ]


def _places(program: Program) -> list[list[int]]:
    """The numbers of the report's lines by segment."""
    places: list[list[int]] = [[] for _ in program.segments]
    for line, (number, _) in enumerate(steps_of(program)):
        places[number].append(line)
    return places


def _host_slice(host: HostRun, places: Sequence[Sequence[int]]) -> Slice:
    lines = [n for part in places for n in part] if host.segment < 0 else places[host.segment]
    first, last = (lines[0], lines[-1]) if lines else (0, -1)
    return Slice(host.run, host.program, first, host.start, host.end, last)


def _memory(program: Program, report: Any) -> GraphMemory:
    """The places of intermediate values, from their first to their last use."""
    uses: dict[int, list[int]] = {}
    steps = steps_of(program)
    for line, (_, step) in enumerate(steps):
        if not isinstance(step, CpuStep):
            for place, _, _ in step.accesses():
                uses.setdefault(place.slot, []).append(line)
    blocks = tuple(
        MemoryBlock(slot.index, slot.offset, slot.size, uses[n][0], uses[n][-1])
        for n, slot in enumerate(program.slots) if slot.kind == "arena" and n in uses
    )
    return GraphMemory(sum(program.arenas), report.weight_bytes, len(steps), blocks)


def report_of(found: Recorded) -> ProfileReport:
    """Sum up the data of a profile."""
    return ProfileReport(
        found.device, found.seconds, sum(found.counts),
        tuple(sorted(_kernel_times(found), key=lambda k: -k.total)),
        tuple(_host_times(found)), tuple(_transfers(found)), tuple(found.memory), found.roofline,
        found.timed, found.every, sum(run.measured for run in found.runs), found.overhead,
        found.stamp_seconds,
    )


def _kernel_times(found: Recorded) -> Iterator[KernelTime]:
    measured = Counter(run.program for run in found.runs if run.measured)
    executed: dict[tuple[int, int, int | None], list[Slice]] = {}
    for one in found.measured_slices():
        executed.setdefault((one.graph, one.line, one.last), []).append(one)
    for (graph, first, last), slices in executed.items():
        line, runs = found.line_of(slices[0]), found.counts[graph]
        seconds = sum(one.seconds for one in slices)
        yield KernelTime(
            graph, first if last in (None, first) else -1, line.operators, line.device, line.kernel,
            line.variant, line.groups, len(slices), seconds, line.flops, line.bytes, runs,
            seconds * runs / measured[graph],
        )


def _host_times(found: Recorded) -> Iterator[HostTime]:
    runs, batches = found.runs, found.batches
    yield HostTime("waiting in the queue", len(runs), sum(r.begun - r.queued for r in runs))
    yield HostTime("putting together", len(batches),
                   sum(max(b.submitted - b.begun - b.host - b.waited, 0.0) for b in batches))
    yield HostTime("CPU steps", len(found.hosts), sum(b.host for b in batches))
    yield HostTime("device at work", len(batches),
                   sum(max(b.done - b.submitted, 0.0) + b.waited for b in batches))


def _transfers(found: Recorded) -> Iterator[Transfer]:
    for kind in dict.fromkeys(kind for kind, *_ in found.transfers):
        own = [t for t in found.transfers if t[0] == kind]
        yield Transfer(kind, len(own), sum(t[1] for t in own), sum(t[3] - t[2] for t in own))
