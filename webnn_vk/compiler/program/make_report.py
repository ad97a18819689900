"""The report of a program, made from its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from webnn_vk.support.errors import sanitize

from .graph_report import GraphReport, ReportLine, ReportStep
from .overwriting import donation_notes
from .program import (
    BarrierStep,
    CopyStep,
    CpuStep,
    DeviceStep,
    DispatchStep,
    HostSegment,
    Origin,
    Program,
    RepeatStep,
    Slot,
    executed,
)

#: The kernel and variant of CPU steps, by their origins.
CpuKernels = Mapping[int, tuple[str, str]]


def with_report(program: Program, folded: tuple[str, ...] = ()) -> Program:
    """The program with the report of its steps."""
    return replace(program, report=_report(program, folded, {}))


def with_kernels(report: GraphReport, program: Program, kernels: CpuKernels) -> GraphReport:
    """The report with the kernels and variants of CPU steps."""
    if not kernels:
        return report
    made = _report(program, report.folded, kernels)
    return replace(made, build_seconds=report.build_seconds)


def _report(program: Program, folded: tuple[str, ...], kernels: CpuKernels) -> GraphReport:
    located = [
        (None if isinstance(step, CopyStep) else step.origin,
         _line(step, program, isinstance(segment, HostSegment), kernels))
        for segment in program.segments
        for step in segment.steps
        if not isinstance(step, BarrierStep)
    ]
    packed = sum(s.size for s in program.slots if s.kind == "packed")
    kept = [*program.resident_constants(), *program.host_constants()]
    return GraphReport(
        tuple(_steps(located, program.origins)),
        folded,
        arena_bytes=sum(program.arenas),
        weight_bytes=sum(program.constants[i].byte_length for i in kept) + packed,
        lines=tuple(line for _, line in located),
        setup=tuple(
            _line(step, program, False, kernels)
            for part in program.setup
            for step in part.steps
            if not isinstance(step, BarrierStep)
        ),
        packed_bytes=packed,
        donated=tuple(donation_notes(program)),
    )


def _steps(
    located: Sequence[tuple[int | None, ReportLine]], origins: Sequence[Origin]
) -> Iterator[ReportStep]:
    """One step per origin, in order of first execution."""
    parts: dict[int, list[ReportLine]] = {}
    for number, line in located:
        if number is not None:
            parts.setdefault(number, []).append(line)
    for number, lines in parts.items():
        origin = origins[number]
        yield ReportStep(
            origin.operators,
            origin.device,
            origin.reason,
            lines[0].kernel,
            lines[0].variant,
            sum(line.repeated or line.groups is not None for line in lines),
            sum(line.flops for line in lines),
            sum(line.bytes for line in lines),
            tuple(lines),
        )


def _line(
    step: DispatchStep | CopyStep | CpuStep | RepeatStep, program: Program, on_host: bool,
    kernels: CpuKernels,
) -> ReportLine:
    match step:
        case RepeatStep(count, steps):
            origin = program.origins[step.origin]
            inner = [*executed((step,))]
            dispatches = [(n, s) for n, s in inner if isinstance(s, DispatchStep)]
            copied = sum(n * 2 * s.target.size for n, s in inner if isinstance(s, CopyStep))
            return ReportLine(
                origin.operators, origin.device, "repeat", f"{count} × ({_names(steps)})",
                flops=sum(n * d.flops for n, d in dispatches),
                bytes=copied + sum(n * d.bytes for n, d in dispatches), reason=origin.reason,
                repeated=sum(n for n, _ in dispatches),
            )
        case DispatchStep():
            origin = program.origins[step.origin]
            return ReportLine(
                origin.operators, origin.device, step.kernel, step.variant, step.groups,
                step.flops, step.bytes, origin.reason,
            )
        case CopyStep(source, target):
            slots = program.slots
            return ReportLine(
                ("copy",), "cpu" if on_host else "vulkan", "copy",
                f"{_side(slots[source.slot])} to {_side(slots[target.slot])}",
                bytes=2 * target.size,
            )
        case CpuStep():
            origin = program.origins[step.origin]
            tensors = (*step.operands.values(), *step.results)
            return ReportLine(
                origin.operators, origin.device, *kernels.get(step.origin, ("numpy", "")),
                bytes=sum(t.descriptor.byte_length for t in tensors), reason=origin.reason,
            )


def _names(steps: Iterable[DeviceStep]) -> str:
    """The kernels of a loop's body; of a loop inside with the number of its repetitions."""
    named = (
        f"{step.count} × ({_names(step.steps)})" if isinstance(step, RepeatStep) else step.kernel
        for step in steps if isinstance(step, (DispatchStep, RepeatStep))
    )
    return ", ".join(named)


def _side(slot: Slot) -> str:
    if slot.kind in ("input", "output"):
        return f"{slot.kind} {sanitize(slot.name)!r}"
    return {"host": "CPU", "arena": "device"}.get(slot.kind, slot.kind)
