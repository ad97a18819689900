"""Kernels compiled for a chip that is not in this machine (`webnn-vk shader … --chip`). Imported by
this command only, since it starts RADV in another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.api.graph_source import with_weights
from webnn_vk.codegen import ShaderStore, ShaderUnavailable
from webnn_vk.codegen.isa import Compiled, IsaError, Module, chip_profile, compile_for, listing
from webnn_vk.codegen.isa import text as isa_text
from webnn_vk.compiler.program import DispatchStep, Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.errors import DOMException, sanitize

from . import ToolError
from .devices import open_context
from .kernels import Kernel, Source, of_program
from .output import emit, table, working

#: Columns of the list of kernels, and the driver's names of these statistics.
COLUMNS = {
    "VGPR": "VGPRs", "SGPR": "SGPRs", "LDS": "LDS size", "waves": "Subgroups per SIMD",
    "instr": "Instructions",
}
SPILLS = ("Spilled VGPRs", "Spilled SGPRs")


def kernels(source: Source, chip: str) -> list[Kernel]:
    """The dispatches of a graph, planned for a chip's limits and features. ``ToolError`` where RADV
    or a GLSL compiler is missing."""
    with working("building the graph"), open_context("cpu") as context:
        try:
            graph = with_weights(source(context), "shader")
        except DOMException as error:
            raise ToolError(str(error)) from None
    try:
        profile = DeviceProfile.from_json(chip_profile(chip))
        program, _ = compile_program(graph, Target(profile))
        specs = list(dict.fromkeys(
            step.spec for step in program.device_steps if isinstance(step, DispatchStep)
        ))
        return of_program(program, dict(zip(specs, ShaderStore().get(specs), strict=True)))
    except (IsaError, ShaderUnavailable) as error:
        raise ToolError(str(error)) from None


def compiled(kernels: Sequence[Kernel], chip: str) -> list[Compiled]:
    """Compile each kernel for the chip. ``ToolError`` where one fails."""
    with working(f"compiling for {chip}"):
        try:
            results = compile_for(chip, [
                Module.of_spec(k.spec, k.module, k.step.constants, k.spec.template) for k in kernels
            ])
        except IsaError as error:
            raise ToolError(str(error)) from None
    for kernel, result in zip(kernels, results, strict=True):
        if result.error:
            raise ToolError(f"kernel {kernel.number}, {kernel.spec.template}: {result.error}")
    return results


def show_all(kernels: Sequence[Kernel], chip: str, as_json: bool) -> None:
    """Print a line for each kernel: registers, spills, occupancy and its main loop."""
    results = compiled(kernels, chip)
    if as_json:
        emit([
            {**kernel.data, "chip": chip, **isa_text.data(result)}
            for kernel, result in zip(kernels, results, strict=True)
        ])
        return
    numbers = (*COLUMNS, "spills", "loop's FMAs", "share")
    table(
        ("#", "operators", "kernel", *numbers),
        [_row(kernel, result) for kernel, result in zip(kernels, results, strict=True)],
        right=("#", *numbers),
    )


def _row(kernel: Kernel, result: Compiled) -> tuple[Any, ...]:
    loop = listing.main_loop(listing.parse(result.assembly))
    share = isa_text.row("", listing.mix(loop))[-2:] if loop else ("-", "-")
    return (
        kernel.number, sanitize(" + ".join(kernel.operators)),
        kernel.spec.template.removesuffix(".comp.j2"),
        *(result.statistics.get(name, "-") for name in COLUMNS.values()),
        "+".join(str(result.statistics.get(name, 0)) for name in SPILLS), *share,
    )


def show(kernel: Kernel, chip: str, assembly: bool, as_json: bool) -> None:
    """Print the statistics and loops of a compiled kernel, or its assembly."""
    (result,) = compiled([kernel], chip)
    if as_json:
        more = {"isa": result.assembly} if assembly else {}
        emit({**kernel.data, "chip": chip, **isa_text.data(result), **more})
    else:
        print(result.assembly.rstrip() if assembly else f"{chip}\n{isa_text.report(result)}")
