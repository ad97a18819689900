"""Kernels to judge, as (spec, specialisation constants): of a program, and of the shader archive.

The parts of a pipeline come from plans that the library really makes. Only this module knows the
structure of a `Program`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from webnn_vk.codegen.spec import KernelSpec, push_bytes
from webnn_vk.compiler.kernels.heuristics import DEVICE_CLASSES, device_class
from webnn_vk.compiler.program import DeviceSegment, DeviceStep, DispatchStep, Program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import PipelineRequest

from .catalogue import catalogue

# Enough for the three tiles of matrix products.
_BORROWED = 3
# Registers with which every kernel has a schedule that fits.
_ENOUGH = DEVICE_CLASSES["gpu"].max_registers

Constants = tuple[tuple[int, bytes], ...]


class NoPlan(Exception):
    """A kernel of the archive for which no plan of the spread has constants."""


@dataclass(frozen=True)
class Kernel:
    """The parts of a pipeline, with (id, 4 bytes) for each specialisation constant. ``use``: an
    example of its work, for reports."""

    spec: KernelSpec
    constants: Constants
    use: str = ""

    @property
    def name(self) -> str:
        """Template, data types (``x4``: in vectors), options, constants: the same in every run."""
        types = " ".join(
            _short(b.data_type) + (f"x{b.width}" if b.width > 1 else "") for b in self.spec.buffers
        )
        out = self.spec.buffers[-1].data_type
        options = " ".join(
            name if value is True else f"{name}={value}"
            for name, value in self.spec.options
            # Tuples are expressions. Options that are off, and the output's type, are omitted.
            if not (value is None or value is False or isinstance(value, tuple) or value == out)
        )
        names = self.spec.constant_ids_names
        values = " ".join(
            f"{names[i]}={int.from_bytes(value, 'little')}"
            for i, value in self.constants
            # The workgroup's size if it is unusual, and the constants of the kernel.
            if i > 2 or int.from_bytes(value, "little") != 1
        )
        stem = self.spec.template.removesuffix(".comp.j2")
        return " | ".join(part for part in (stem, types, options, values) if part)

    def request(self, module: bytes) -> PipelineRequest:
        """The pipeline of its SPIR-V."""
        spec = self.spec
        return PipelineRequest(module, spec.binding_count, push_bytes(spec), self.constants,
                               spec.template, texels=spec.texels)


def of_program(program: Program) -> list[Kernel]:
    """The distinct pipelines of a program, in order of first use."""
    return _distinct(program, (
        step
        for segment in program.segments if isinstance(segment, DeviceSegment)
        for step in segment.steps
    ))


def of_setup(program: Program) -> list[Kernel]:
    """The distinct pipelines that prepack a program's constants, in order of first use."""
    return _distinct(program, (step for part in program.setup for step in part.steps))


def _distinct(program: Program, steps: Iterable[DeviceStep]) -> list[Kernel]:
    found: dict[tuple[KernelSpec, Constants], Kernel] = {}
    for step in steps:
        if isinstance(step, DispatchStep):
            use = " + ".join(program.origins[step.origin].operators)
            kernel = Kernel(step.spec, step.constants, use)
            found.setdefault((step.spec, step.constants), kernel)
    return list(found.values())


def of_pack(profile: DeviceProfile, planned: Iterable[Kernel]) -> list[Kernel]:
    """Every module of the archive that a device may get, once with each of its sets of constants in
    ``planned``.

    A module without a plan (of another data type, for example) gets at most `_BORROWED` sets of
    constants of the most similar planned modules: with the same template, the same names of
    constants, and the most options and buffers in common. `NoPlan` names modules without similar
    ones. A device with few registers leaves those out: no schedule that uses them fits it.
    """
    exact: dict[KernelSpec, list[Kernel]] = {}
    relatives: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in planned:
        exact.setdefault(kernel.spec, []).append(kernel)
        relatives.setdefault(_family(kernel.spec), []).append(kernel)
    made: list[Kernel] = []
    orphans: list[str] = []
    kinds = {matrix.a for matrix in profile.cooperative_matrices}
    for spec in catalogue(profile.features):
        if spec.template == "matmul_coopmat.comp.j2" and spec.option("operand") not in kinds:
            continue  # it multiplies matrices of a type that this device doesn't multiply
        if profile.device_type != "cpu" and ("shuffle", True) in spec.options:
            continue  # lanes exchange what they load only on processors: `lanes_that_shuffle`
        if spec in exact:
            made += exact[spec]
        elif _family(spec) in relatives:
            nearest = _nearest(spec, relatives[_family(spec)])
            made += [Kernel(spec, k.constants, f"as {k.use}") for k in nearest]
        else:
            orphans.append(f"{Kernel(spec, ()).name} {spec.constant_ids_names}")
    if orphans and device_class(profile).max_registers >= _ENOUGH:
        raise NoPlan("no plan of bench/isa/spread.py shows constants for " + "; ".join(orphans))
    return made


def _short(data_type: str) -> str:
    """``float32`` → ``f32``"""
    return re.sub(r"[a-z]+", lambda word: word[0][0], data_type)


def _family(spec: KernelSpec) -> tuple[object, ...]:
    # The size of Winograd's tiles is the only number of a schedule that is an option.
    return spec.template, tuple(spec.constant_ids_names), dict(spec.options).get("tile")


def _nearest(spec: KernelSpec, candidates: Sequence[Kernel]) -> list[Kernel]:
    """The pipelines that have most in common with ``spec``, with different constants."""

    def likeness(kernel: Kernel) -> int:
        options = set(spec.options) & set(kernel.spec.options)
        buffers = set(spec.buffers) & set(kernel.spec.buffers)
        return len(options) + len(buffers)

    most = max(map(likeness, candidates))
    by_constants: dict[Constants, Kernel] = {}
    for kernel in candidates:
        if likeness(kernel) == most:
            by_constants.setdefault(kernel.constants, kernel)
    return list(by_constants.values())[:_BORROWED]
