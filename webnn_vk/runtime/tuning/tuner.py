"""The tuner: which schedules of a graph's kernels are measured, and which one is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.codegen.glsl import GlslError
from webnn_vk.codegen.spec import KernelSpec, SpecError
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.compiler.kernels import (
    KernelNode,
    KernelTarget,
    Schedule,
    Task,
    Unsupported,
    dispatches_by,
    forms,
    solver_of,
)
from webnn_vk.compiler.kernels.choose import fitting, modelled, ranked
from webnn_vk.compiler.kernels.node import view
from webnn_vk.compiler.kernels.schedule import NOTHING_TUNED, Tuned, problem_class
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import UnknownError

from ..device import Device
from ..driver_memory import DriverMemory
from .probe import known_profile, probed_profile
from .store import FOLDER, Entry, TunedStore
from .workbench import Trial, Workbench

#: A schedule other than the usual one has to take at most this share of its time to be accepted:
#: smaller differences are noise, and every further schedule is another pipeline to compile.
WORTH = 0.95
#: Schedules that take this many times as long as the fastest are not measured further.
_HOPELESS = 2.0
#: The maximum number of rounds, as a multiple of the planned ones, and the ratio up to which two
#: times are about the same.
_PATIENCE, _ABOUT = 4, 1.1
#: A time in seconds that no other process takes away at once.
_NO_ACCIDENT = 0.2

#: Errors that concern one schedule or one problem alone: the others are measured, the build goes
#: on. A lost or closed device is not among them.
_FAILURES = (
    GlslError, MemoryError, ShaderUnavailable, SpecError, Unsupported, UnknownError, ValueError
)


@dataclass(frozen=True)
class Plan:
    """How much is measured: the first ``candidates`` of each problem, in ``rounds``, in turns.
    ``again``: also problems with stored results."""

    candidates: int = 4
    rounds: int = 5
    again: bool = False


@dataclass(frozen=True)
class Measured:
    """One schedule: its least seconds (None: not measured, ``rejected`` is the reason) and its cost
    by the cost model, in the model's own unit, if it knows the kernel."""

    schedule: Schedule
    seconds: float | None
    modelled: float | None
    rejected: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result for one problem, which ``kernels`` kernels of the graph have. ``kept``: it was
    stored before. ``left``: why it was not measured, else ""."""

    family: str
    problem: str
    operators: str
    kernels: int
    chosen: Schedule
    usual: Schedule
    seconds: float | None = None
    usual_seconds: float | None = None
    timed_by: str = ""
    kept: bool = False
    measured: tuple[Measured, ...] = ()
    left: str = ""


@dataclass
class _Problem:
    """Kernels that behave alike: the first of them, and their number."""

    family: str
    text: str
    problem: Any
    node: KernelNode
    candidates: Sequence[Schedule]
    kernels: int = 1


#: Called before each problem: its number, how many there are, and its operators.
Progress = Callable[[int, int, str], None]


@dataclass
class Tuner:
    """Tunes what a context builds: the store, the measurements, and the results so far."""

    device: DriverMemory
    store: TunedStore
    plan: Plan = field(default_factory=Plan)
    progress: Progress = lambda number, total, operators: None
    outcomes: list[Outcome] = field(default_factory=list)

    def __call__(
        self, nodes: Iterable[KernelNode], available: Callable[[KernelSpec], bool]
    ) -> None:
        """Measure the best few schedules of each distinct problem of these kernels and put the
        fastest into the store. Problems with one schedule are left out. ``available``: whether a
        shader is available."""
        problems = self._problems(nodes)
        profile = self.device.profile
        if problems:
            profile = probed_profile(self.device, self.store.folder)
        for number, problem in enumerate(problems):
            self.progress(number, len(problems), problem.node.title)
            self.outcomes.append(self._tune(problem, profile, available))

    def _problems(self, nodes: Iterable[KernelNode]) -> list[_Problem]:
        found: dict[tuple[str, str], _Problem] = {}
        for node in nodes:
            solver, problem = solver_of(node)
            key = solver.name, problem_class(problem)
            if key in found:
                found[key].kernels += 1
                continue
            profile = self.device.profile
            candidates = fitting(solver.candidates(problem, profile), problem, profile)
            if len(candidates) > 1:
                found[key] = _Problem(*key, problem, node, candidates)
        return list(found.values())

    def _tune(
        self, p: _Problem, profile: DeviceProfile, available: Callable[[KernelSpec], bool]
    ) -> Outcome:
        order = [*ranked(p.family, p.candidates, p.problem, profile)]
        usual = order[0]
        outcome = Outcome(p.family, p.text, p.node.title, p.kernels, usual, usual)
        known = None if self.plan.again else self.store.entry(p.family, p.text)
        if known is not None and known.schedule in p.candidates:
            return replace(
                outcome, chosen=known.schedule, seconds=known.seconds, usual_seconds=known.usual,
                timed_by=known.timed_by, kept=True,
            )
        try:
            measured, timed_by = self._measure(p, order[: self.plan.candidates], available)
        except _FAILURES as error:
            return replace(outcome, left=f"{type(error).__name__}: {error}")
        outcome = replace(outcome, measured=measured, timed_by=timed_by)
        times = {m.schedule: m.seconds for m in measured if m.seconds is not None}
        if usual not in times:
            return replace(outcome, left="the usual schedule can't be measured")
        chosen = accepted(usual, times)
        self.store.put(Entry(p.family, p.text, chosen, times[chosen], times[usual], timed_by))
        return replace(
            outcome, chosen=chosen, seconds=times[chosen], usual_seconds=times[usual]
        )

    def _measure(
        self, p: _Problem, schedules: Sequence[Schedule], available: Callable[[KernelSpec], bool]
    ) -> tuple[tuple[Measured, ...], str]:
        """The schedules measured in turns, only those whose results equal the plain kernel's."""
        profile = self.device.profile
        target = KernelTarget(profile, available=available)
        task = Task.of(p.node)
        plain = task.lowered(p.candidates[0], profile)
        size = max(1, sum(access.size for access in p.node.outputs))
        fan = max(1.0, sum(dispatch.flops for dispatch in plain) / (2 * size))
        rounded = task.solver.rounding(p.problem)
        bench = Workbench(self.device, p.node, fan)
        rejected: dict[Schedule, str] = {}
        trials: dict[Schedule, Trial] = {}
        try:
            expected = bench.results(bench.trial(plain))
            for schedule in schedules:
                try:
                    packed = next(forms(task, schedule, target))
                    trial = bench.trial(dispatches_by(packed, schedule, target))
                    results = bench.results(trial)
                    reason = difference(p.node, results, expected, fan, rounded)
                except _FAILURES as error:
                    rejected[schedule] = str(error)
                    continue
                if reason:
                    rejected[schedule] = reason
                else:
                    trials[schedule] = trial
            _in_turns(bench, list(trials.values()), self.plan.rounds)
            for trial in trials.values():
                bench.done(trial)
        finally:
            bench.close()
        return tuple(
            Measured(
                schedule, min(trials[schedule].seconds) if schedule in trials else None,
                modelled(p.problem, schedule, profile), rejected.get(schedule, ""),
            )
            for schedule in schedules
        ), bench.timed_by


def prepared(
    device: Device, cache: Path | None, tune: bool | None
) -> tuple[DeviceProfile | None, Tuned, Tuner | None]:
    """Knowledge of a device's kernels from measurements: its profile, the stored schedules, and the
    tuner for graphs being built. ``cache``: the user's folder of caches; ``tune`` as in
    ``Settings``."""
    if tune is False or not isinstance(device, DriverMemory):
        return device.profile, NOTHING_TUNED, None
    folder = None if cache is None else cache / FOLDER
    store = TunedStore(folder, device.profile)
    return known_profile(device.profile, folder), store, Tuner(device, store) if tune else None


def accepted(usual: Schedule, seconds: Mapping[Schedule, float]) -> Schedule:
    """The fastest schedule, if it is enough faster than the usual one."""
    fastest = min(seconds, key=lambda schedule: seconds[schedule])
    return fastest if seconds[fastest] <= WORTH * seconds[usual] else usual


def _in_turns(bench: Workbench, trials: Sequence[Trial], rounds: int) -> None:
    """Measure trials this often, one after the other, so that other work of the machine affects all
    of them; longer if it is so busy that no time occurs twice."""
    left = list(trials)
    for number in range(1, _PATIENCE * rounds + 1):
        for trial in left:
            bench.measure(trial)
        fastest = min((min(trial.seconds) for trial in left), default=0.0)
        left = [trial for trial in left if not _hopeless(trial, fastest)]
        if number >= rounds and all(map(_settled, left)):
            break


def _hopeless(trial: Trial, fastest: float) -> bool:
    """Whether a trial takes much longer than the fastest, and not by accident."""
    seconds = min(trial.seconds)
    far = _settled(trial) or seconds > fastest + _NO_ACCIDENT
    return far and seconds > _HOPELESS * fastest


def _settled(trial: Trial) -> bool:
    """Whether the least time of a trial is not an accident: the next is about the same."""
    least = sorted(trial.seconds)[:2]
    return len(least) == 2 and least[1] <= _ABOUT * least[0]


def difference(
    node: KernelNode, got: Sequence[np.ndarray], expected: Sequence[np.ndarray], fan: float,
    rounded: float = 0.0,
) -> str:
    """Why results differ from the plain kernel's, "" if they don't: integers exactly, floats except
    for rounding in another order of ``fan`` products, and of a factor of each by the relative error
    ``rounded``."""
    for access, one, other in zip(node.outputs, got, expected, strict=True):
        a, b = view(one, access), view(other, access)
        if a.dtype.kind != "f":
            if not np.array_equal(a, b):
                return f"{np.count_nonzero(a != b)} of {a.size} elements differ"
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        numbers = b[np.isfinite(b)]
        usual = float(np.sqrt(np.mean(numbers**2))) if numbers.size else 0.0
        rounding = 2 * float(np.finfo(one.dtype).eps)
        # Roundings of factors have either sign, so that their sum grows as the results do.
        relative = float(np.finfo(np.float32).eps) * (16 + 2 * fan) + 4 * rounded
        allowed = relative * usual
        with np.errstate(invalid="ignore"):
            wrong = ~same & ~(np.abs(a - b) <= allowed + rounding * np.abs(b))
        if wrong.any():
            return f"{np.count_nonzero(wrong)} of {a.size} elements are not the plain kernel's"
    return ""
