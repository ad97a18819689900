"""A program as text, for golden files: everything that affects execution."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program.program import (
    CopyStep,
    CpuStep,
    DeviceSegment,
    DispatchStep,
    Program,
    Range,
    Slot,
)


def describe(program: Program) -> str:
    """The report without times, the kernels, the slots with their places, and every step. Kernel
    parameters are shown as a checksum. Equal programs have equal texts."""
    kernels = {spec: f"k{number}" for number, spec in enumerate(program.kernels)}
    lines = [str(replace(program.report, build_seconds={})), "", "kernels"]
    lines += [f"  {name} {_kernel(spec)}" for spec, name in kernels.items()]
    lines += ["", "slots"]
    for number, slot in enumerate(program.slots):
        lines.append(f"  s{number} {_slot(slot, program)}")
    for part in program.setup:
        lines += ["", f"set-up of s{part.target} from constant {part.constant}: {part.packing}"]
        lines.append(f"  scratch {part.scratch}")
        lines += [f"  {_step(step, program, kernels)}" for step in part.steps]
    for segment in program.segments:
        lines += ["", "device" if isinstance(segment, DeviceSegment) else "CPU"]
        lines += [f"  {_step(step, program, kernels)}" for step in segment.steps]
    lines += ["", *_totals(program)]
    return "\n".join(lines) + "\n"


def _kernel(spec: KernelSpec) -> str:
    buffers = " ".join(
        f"{b.name}:{b.data_type}:{b.access}"
        + f"x{b.width}" * (b.width > 1) + f"*{b.portions}" * (b.portions > 1)
        + f" by {b.load}" * (b.load != "storage")
        for b in spec.buffers
    )
    options = " ".join(f"{name}={value!r}" for name, value in spec.options)
    features = " ".join(sorted(spec.features))
    return f"{spec.template} ({buffers}) {options} [{features}]"


def _slot(slot: Slot, program: Program) -> str:
    match slot.kind:
        case "input" | "output":
            where = f"{slot.kind} {slot.name!r}"
        case "constant":
            where = f"constant {slot.index} {program.constants[slot.index]}"
        case "arena" | "scratch":
            where = f"{slot.kind} {slot.index} at {slot.offset}"
        case "host":
            where = f"host at {slot.offset}"
        case _:
            where = slot.kind
    return f"{where}: {slot.size} bytes"


def _step(step: object, program: Program, kernels: dict[KernelSpec, str]) -> str:
    match step:
        case DispatchStep():
            constants = " ".join(_constants(step))
            places = " ".join(_range(place, program.slots) for place in step.bindings)
            groups = "×".join(map(str, step.groups))
            given = zlib.crc32(_params(step, program))
            return f"{kernels[step.spec]} {{{constants}}} {groups} ({places}) params {given:08x}"
        case CopyStep(source, target):
            slots = program.slots
            return f"copy {_range(source, slots)} → {_range(target, slots)}"
        case CpuStep():
            operands = " ".join(f"{name}=s{t.slot}" for name, t in step.operands.items())
            results = " ".join(f"s{t.slot}" for t in step.results)
            arguments = " ".join(f"{name}={value!r}" for name, value in step.arguments.items())
            dead = " ".join(f"s{slot}" for slot in step.dead)
            return f"{results} = {step.operator}({operands}; {arguments}) dead ({dead})"
    return "barrier"


def _constants(step: DispatchStep) -> Iterator[str]:
    for number, data in step.constants:
        constant = step.spec.all_constants[number]
        code = {"float": "<f", "int": "<i", "uint": "<I"}[constant.type]
        yield f"{constant.name}={struct.unpack(code, data)[0]:g}"


def _params(step: DispatchStep, program: Program) -> bytes:
    if step.spec.param_storage != "buffer":
        return step.push
    place = step.bindings[-1]
    start = program.slots[place.slot].offset + place.offset
    return program.params[start : start + place.size]


def _range(place: Range, slots: Sequence[Slot]) -> str:
    if place.offset == 0 and place.size == slots[place.slot].size:
        return f"s{place.slot}"
    return f"s{place.slot}[{place.offset}+{place.size}]"


def _totals(program: Program) -> Iterator[str]:
    yield f"arenas {list(program.arenas)}"
    yield f"host {program.host_size}"
    yield f"params {len(program.params)}"
    total = sum(d.byte_length for d in program.constants)
    yield f"constants {len(program.constants)}, {total} bytes"
