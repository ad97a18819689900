"""Kernels compiled for chips that are not in this machine (`webnn-vk shader … --chip`), each in
another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from webnn_vk.api.graph_source import with_weights
from webnn_vk.codegen import ShaderStore, ShaderUnavailable
from webnn_vk.codegen.__main__ import ERRORS, module_of
from webnn_vk.codegen.isa import Compiled, IsaError, Module, chip_profile, compile_for, listing
from webnn_vk.codegen.isa import text as isa_text
from webnn_vk.codegen.isa.chips import RADV, chip_of
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.errors import DOMException, sanitize

from . import ToolError
from .devices import open_context
from .kernels import Kernel, Source, of_program
from .output import emit, table, working

#: The figures of `Chip.figures`.
FIGURES = ("spills", "fills", "scratch", "registers", "occupancy", "cycles")
#: Columns of the list of kernels on AMD's chips, and the driver's names of these statistics.
COLUMNS = {
    "VGPR": "VGPRs", "SGPR": "SGPRs", "LDS": "LDS size", "waves": "Subgroups per SIMD",
    "instr": "Instructions",
}
SPILLS = ("Spilled VGPRs", "Spilled SGPRs")


def graph_of(source: Source) -> Graph:
    """A graph with its weights, built on the CPU device. ``ToolError`` where that fails."""
    with working("building the graph"), open_context("cpu") as context:
        try:
            return with_weights(source(context), "shader")
        except DOMException as error:
            raise ToolError(str(error)) from None


def kernels(graph: Graph, chip: str) -> list[Kernel]:
    """The dispatches of a graph, planned for a chip's limits and features. ``ToolError`` where the
    chip's driver or a GLSL compiler is missing."""
    try:
        profile = DeviceProfile.from_json(chip_profile(chip))
        program, _ = compile_program(graph, Target(profile))
        specs = list(dict.fromkeys(
            step.spec for step in program.dispatches_of_a_run
        ))
        return of_program(program, dict(zip(specs, ShaderStore().get(specs), strict=True)))
    except (IsaError, ShaderUnavailable) as error:
        raise ToolError(str(error)) from None


def _compiled(kernels: Sequence[Kernel], chip: str, assembly: bool = True) -> list[Compiled]:
    with working(f"compiling for {chip}"):
        try:
            return compile_for(chip, [
                Module.of_spec(k.spec, k.module, k.step.constants, k.spec.template) for k in kernels
            ], assembly=assembly)
        except IsaError as error:
            raise ToolError(str(error)) from None


def compiled(kernels: Sequence[Kernel], chip: str) -> list[Compiled]:
    """Compile each kernel for the chip. ``ToolError`` where one fails."""
    results = _compiled(kernels, chip)
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
    amd = chip_of(chip).driver is RADV
    numbers = (*COLUMNS, "spills", "loop's FMAs", "share") if amd else FIGURES
    table(
        ("#", "operators", "kernel", *numbers), [
            (kernel.number, *_names(kernel),
             *(_numbers(result) if amd else _figures(chip, result).values()))
            for kernel, result in zip(kernels, results, strict=True)
        ], right=("#", *numbers),
    )


def _names(kernel: Kernel) -> tuple[str, str]:
    return (
        sanitize(" + ".join(kernel.operators)), kernel.spec.template.removesuffix(".comp.j2")
    )


def _figures(chip: str, result: Compiled) -> dict[str, int | float | None]:
    return chip_of(chip).figures(result.statistics)


def _numbers(result: Compiled) -> tuple[Any, ...]:
    loop = listing.main_loop(listing.parse(result.assembly))
    share = isa_text.row("", listing.mix(loop))[-2:] if loop else ("-", "-")
    return (
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


def stats(source: Source, chips: Sequence[str], as_json: bool) -> None:
    """Print a line for each chip, and for each kernel of a graph as planned for it."""
    graph = graph_of(source)
    found: list[dict[str, Any]] = []
    for chip in chips:
        # Each pipeline once, where it is used first.
        distinct = {(k.spec, k.step.constants): k for k in reversed(kernels(graph, chip))}
        planned = sorted(distinct.values(), key=lambda kernel: kernel.number)
        for kernel, result in zip(planned, _compiled(planned, chip, assembly=False), strict=True):
            found.append(_statistics(
                chip, kernel.spec.template.removesuffix(".comp.j2"), kernel.operators, result
            ) | {"number": kernel.number, "constants": kernel.constants})
    _show_statistics(found, chips, as_json)


def stats_of_own(arguments: Sequence[str], chips: Sequence[str], as_json: bool) -> None:
    """Print a line for each chip and for a shader of the user's own on it. ``arguments`` are for
    ``python -m webnn_vk.codegen inspect``."""
    try:
        module = module_of(arguments)
        results = [compile_for(chip, [module], assembly=False)[0] for chip in chips]
    except ERRORS as error:
        raise ToolError(str(error)) from None
    _show_statistics([
        _statistics(chip, module.name, (), result)
        for chip, result in zip(chips, results, strict=True)
    ], chips, as_json)


def _statistics(
    chip: str, kernel: str, operators: Sequence[str], result: Compiled
) -> dict[str, Any]:
    return {
        "chip": chip, "kernel": kernel, "operators": list(operators),
        **_figures(chip, result), "seconds": round(result.seconds, 3), "state": result.state,
        "error": result.error,
    }


def _show_statistics(
    found: Sequence[dict[str, Any]], chips: Sequence[str], as_json: bool
) -> None:
    """A table of the chips, and one of the kernels: all of them, or with several chips those that
    spill or did not compile, of which there may be none."""
    if as_json:
        emit(list(found))
        return
    totals = ("kernels", "spilling", "failed", "least occupancy", "cycles", "longest compilation")
    table(("chip", "product", *totals), [
        _summary(chip, [row for row in found if row["chip"] == chip]) for chip in chips
    ], right=totals)
    few = len(found) == len(chips) or len(chips) == 1
    shown = [row for row in found if few or row["spills"] or row["state"] != "ok"]
    if shown:
        print()
        numbers = (*FIGURES, "seconds")
        table(("chip", "operators", "kernel", *numbers, "state"), [
            (row["chip"], sanitize(" + ".join(row["operators"])), row["kernel"],
             *("-" if row[name] is None else row[name] for name in numbers), row["state"])
            for row in shown
        ], right=numbers)


def _summary(chip: str, rows: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    def known(figure: str) -> list[Any]:
        return [row[figure] for row in rows if row[figure] is not None]

    cycles = known("cycles")
    return (
        chip, chip_of(chip).product, len(rows), sum(bool(row["spills"]) for row in rows),
        sum(row["state"] != "ok" for row in rows), min(known("occupancy"), default="-"),
        round(sum(cycles)) if cycles else "-",
        f"{max((row['seconds'] for row in rows), default=0):.1f} s",
    )
