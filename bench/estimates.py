"""`python -m bench estimates`: the schedules that are chosen for a chip, beside the others that fit
its registers, in the cycles that the chip's driver estimates. Nothing runs.

Drivers estimate the cycles of a compiled kernel with a fixed number of turns for each loop. Here
the estimate is scaled by how much a dispatch's invocation does (`isa.execution`) to how much that
number of turns does, and counts once for each subgroup. Memory's bandwidth is not in it, nor how
many subgroups hide each other's waits: so a schedule is compared with those alone that make as
many invocations, or enough to fill the device.

``--json FILE`` puts the lines into a file, in which the lines of other chips stay. The table in
docs/devices.md is made of docs/estimates.json.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from webnn_vk.codegen.isa import IsaError, Module, chip_profile, compile_for
from webnn_vk.codegen.isa.chips import ANV, PANVK, TURNIP, chip_of
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.compiler.kernels import (
    Dispatch,
    KernelNode,
    KernelTarget,
    Task,
    Unsupported,
    dispatches_by,
    forms,
    solver_of,
)
from webnn_vk.compiler.kernels.choose import fitting, ranked
from webnn_vk.compiler.kernels.heuristics import device_class
from webnn_vk.compiler.kernels.schedule import Schedule, problem_class
from webnn_vk.compiler.program import Target
from webnn_vk.compiler.program.compile import kernels_of
from webnn_vk.driver.device_profile import DeviceProfile

from .isa import graphs
from .isa.execution import Inputs, Loop, Undetermined, executed
from .table import show

MODELS = ("minilm_8x64", "mobilenet_v2", "resnet50", "bert", "recurrent")
#: Families with schedules worth comparing.
FAMILIES = ("matmul", "conv", "norm", "attention")
#: Drivers that estimate cycles: how often they count a loop, the name of the number of loops that
#: are left, and the invocations of a subgroup (None: as compiled).
_DRIVERS: Mapping[str, tuple[int, str, int | None]] = {
    ANV.name: (10, "Loop Count", None), TURNIP.name: (1, "Loops", 64), PANVK.name: (1, "Loops", 16),
}
_WIDTH = "Max dispatch width"
#: The chips that are compared by default, and seconds that compiling a kernel may take (qemu is
#: slow).
CHIPS, LIMIT = ("dg2", "adreno750", "mali-g610"), 300.0
TITLES = ("chip", "family", "problems", "chosen", "best", "ratio")


@dataclass
class Alternative:
    """A schedule for a problem that ``count`` kernels have. ``cycles``: of all subgroups, by the
    driver's estimate (None: ``why``); ``invocations``: the most of a dispatch."""

    family: str
    problem: str
    count: int
    schedule: Schedule
    chosen: bool
    dispatches: Sequence[Dispatch] = field(repr=False)
    cycles: float | None = None
    invocations: int = 0
    spills: int = 0
    why: str = ""


def alternatives(chip: str, models: Sequence[str] = MODELS) -> list[Alternative]:
    """Every schedule that fits the registers, for each distinct problem of the models. Raises
    `IsaError`."""
    profile = DeviceProfile.from_json(chip_profile(chip))
    found = [*_planned(models, profile)]
    kinds = list(dict.fromkeys((d.spec, d.specialised) for a in found for d in a.dispatches))
    modules = ShaderStore().get([spec for spec, _ in kinds])
    compiled = compile_for(chip, [
        Module.of_spec(spec, module, constants, spec.template)
        for (spec, constants), module in zip(kinds, modules, strict=True)
    ], assembly=False, limit=LIMIT)
    results = dict(zip(kinds, zip(modules, compiled, strict=True), strict=True))
    for alternative in found:
        try:
            _estimate(alternative, chip, results)
        except Undetermined as error:
            alternative.cycles, alternative.why = None, str(error)
    return found


def _planned(models: Sequence[str], profile: DeviceProfile) -> Iterator[Alternative]:
    nodes: dict[tuple[str, str], list[KernelNode]] = {}
    for model in models:
        graph = graphs.described(graphs.GRAPHS[model])
        for node in kernels_of(graph, Target(profile)):
            solver, problem = solver_of(node)
            if solver.name in FAMILIES:
                nodes.setdefault((solver.name, problem_class(problem)), []).append(node)
    target = KernelTarget(profile)
    for (family, text), alike in nodes.items():
        task = Task.of(alike[0])
        candidates = task.solver.candidates(task.problem, profile)
        chosen = next(ranked(family, candidates, task.problem, profile))
        for schedule in fitting(candidates, task.problem, profile):
            if schedule.load != "storage":
                continue  # which are left out on GPUs
            try:
                made = dispatches_by(next(forms(task, schedule, target)), schedule, target)
            except Unsupported:
                continue
            yield Alternative(family, text, len(alike), schedule, schedule == chosen, made)


def _estimate(a: Alternative, chip: str, results: Mapping[Any, Any]) -> None:
    turns, loops, width = _DRIVERS[chip_of(chip).driver.name]
    total = 0.0
    for dispatch in a.dispatches:
        module, compiled = results[dispatch.spec, dispatch.specialised]
        if compiled.state != "ok":
            a.why = compiled.error
            return
        figures = chip_of(chip).figures(compiled.statistics)
        local = [1, 1, 1]
        for number, value in dispatch.specialised:
            if number < 3:
                local[number] = int.from_bytes(value, "little")
        groups = math.prod(dispatch.groups)
        invocations = groups * math.prod(local)
        subgroups = groups * math.ceil(
            math.prod(local) / (width or compiled.statistics[_WIDTH])
        )
        left = int(compiled.statistics[loops])
        scale = _scale(_executed(dispatch, module, local), left, turns) if left else 1.0
        total += subgroups * scale * (figures["cycles"] or 0)
        a.invocations = max(a.invocations, invocations)
        a.spills += int(figures["spills"] or 0)
    a.cycles = total


def _executed(dispatch: Dispatch, module: bytes, local: Sequence[int]) -> Loop:
    spec = dispatch.spec
    block = spec.pack_params(dispatch.params) if spec.params else b""
    in_buffer = spec.param_storage == "buffer"
    uniforms = {(0, spec.binding_count - 1): block} if in_buffer else {}
    x, y, z = (*dispatch.groups, 1, 1)[:3]
    return executed(module, dispatch.specialised, "main", Inputs(
        (x, y, z), (local[0], local[1], local[2]), b"" if in_buffer else block, uniforms
    ))


def _scale(module: Loop, left: int, turns: int) -> float:
    """The work of an invocation, as a multiple of its work where each of the ``left`` loops that
    the compiler kept turns ``turns`` times. Of those that it was not asked to unroll, it keeps the
    longest. `Undetermined` where one of these does not turn: what it would do isn't known."""
    free = sorted(
        (loop for loop in _inside(module) if not loop.unrolled), key=_each, reverse=True
    )
    kept = {id(loop) for loop in free[:left]}
    if any(not loop.turns for loop in free[:left]):
        raise Undetermined("a loop that the driver counts does not turn")

    def visit(loop: Loop, times: float) -> tuple[float, float]:
        if loop is not module:
            times *= turns if id(loop) in kept else _each(loop)
        done = float(sum(loop.work))
        counted = done / loop.turns * times if loop.turns else 0.0
        for inner in loop.inner:
            more, as_counted = visit(inner, times)
            done, counted = done + more, counted + as_counted
        return done, counted

    done, counted = visit(module, 1.0)
    return done / counted if counted else 1.0


def _inside(loop: Loop) -> Iterator[Loop]:
    for inner in loop.inner:
        yield inner
        yield from _inside(inner)


def _each(loop: Loop) -> float:
    return loop.turns / loop.entered if loop.entered else 0.0


def compared(
    found: Iterable[Alternative], enough: int
) -> Iterator[tuple[Alternative, Alternative]]:
    """For each problem whose chosen schedule has an estimate, that schedule and the cheapest that
    makes as many invocations, or ``enough``."""
    problems: dict[tuple[str, str], list[Alternative]] = {}
    for each in found:
        problems.setdefault((each.family, each.problem), []).append(each)
    for alike in problems.values():
        known = [each for each in alike if each.cycles is not None and not each.spills]
        for chosen in known:
            if chosen.chosen:
                least = min(chosen.invocations, enough)
                yield chosen, min(
                    (each for each in known if each.invocations >= least),
                    key=lambda each: each.cycles or 0.0,
                )


def summary(chip: str, pairs: Sequence[tuple[Alternative, Alternative]]) -> list[dict[str, Any]]:
    """A line for each family: its problems, and the cycles of all kernels of the models."""
    rows = []
    for family in FAMILIES:
        own = [(chosen, best) for chosen, best in pairs if chosen.family == family]
        if own:
            now, best = (
                sum(pair[side].count * (pair[side].cycles or 0.0) for pair in own)
                for side in (0, 1)
            )
            rows.append({
                "chip": chip, "family": family, "problems": len(own), "chosen": round(now),
                "best": round(best), "ratio": round(now / best, 3),
            })
    return rows


def main(chips: Sequence[str], models: Sequence[str], json_file: Path | None) -> None:
    """Print the table, with the problems whose choice is not the best below, and put its lines into
    the file."""
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for chip in chips or CHIPS:
        try:
            found = alternatives(chip, models or MODELS)
        except IsaError as error:
            notes.append(f"{chip}: {error}")
            continue
        enough = device_class(DeviceProfile.from_json(chip_profile(chip))).min_invocations
        pairs = list(compared(found, enough))
        rows += summary(chip, pairs)
        notes += [
            f"{chip}: {(chosen.cycles or 0) / (best.cycles or 1):.2f}, {chosen.count} x "
            f"{chosen.schedule} -> {best.schedule}: {chosen.problem}"
            for chosen, best in pairs if (chosen.cycles or 0) > 1.03 * (best.cycles or 0)
        ]
        notes += [f"{chip}: {each.schedule}: {each.why}" for each in found if each.why]
    show(TITLES, [[str(row[title]) for title in TITLES] for row in rows])
    print(*notes, sep="\n")
    if json_file:
        update(json_file, rows)


def update(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Put the lines of chips into a file, in place of older ones. What was chosen first stays."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    lines = {(row["chip"], row["family"]): row for row in kept}
    for row in rows:
        key = row["chip"], row["family"]
        before = lines[key]["before"] if key in lines else row["chosen"]
        lines[key] = {**row, "before": before, "date": datetime.date.today().isoformat()}
    path.write_text(json.dumps(list(lines.values()), indent=1) + "\n", encoding="utf-8")
